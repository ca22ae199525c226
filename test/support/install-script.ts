import { fileURLToPath } from 'node:url'
import type { InstallData } from '../../lib/boot/install-data.js'
import { Templates } from '../../lib/template/templates.js'
import { installData } from './install-data.js'

const directory = fileURLToPath(new URL('../../templates', import.meta.url))
const templates = new Templates({ directory })

export const installScript = (data: InstallData): string =>
  templates.render('install/templ_install.cfg', { ...data })
export const kickstart = (data: InstallData): string =>
  templates.render('install/templ_kickstart.cfg', { ...data })
/** What all install scripts share. */
export const installLibrary = (): string => templates.render('install/templ_library.cfg', {})
/** The program that reports the hardware, as the installation puts it into the image. */
export const inventoryProgram = (): string =>
  /^inventory_text\(\) \{\n {2}cat <<'SVC_END_OF_SCRIPT'\n(.*?)^SVC_END_OF_SCRIPT$/ms.exec(
    installLibrary()
  )?.[1] ?? ''
/** svc-files, as the installation puts it into the image. */
export const runningFiles = (): string =>
  /^svc_files\(\) \{\n {2}cat <<'SVC_END_OF_SCRIPT'\n(.*?)^SVC_END_OF_SCRIPT$/ms.exec(
    installScript(installData({ files: true }))
  )?.[1] ?? ''
