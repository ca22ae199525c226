import { join } from 'node:path'
import { type Backend, checksMain, type Rendered, type RenderedFile } from '../backend.js'
import type { TftpData } from './variables.js'

/** A server reads the files of the tree each time that it is asked for them. */
const treeOf = ({ files }: TftpData, directory: string): Rendered => ({
  files: files.map(({ name, text }) => ({ path: join(directory, name), text, needs: 'none' })),
  owned: ['grub', 'nodes'].map(leaf => ({ directory: join(directory, leaf), suffix: '' }))
})

/** Joins the changed configurations, so that a single run of the checker is enough. */
function joined(changed: readonly RenderedFile[], directory: string): RenderedFile[] {
  const scripts = changed.filter(({ path }) => path.startsWith(join(directory, '/')))
  const text = scripts.map(file => `# ${file.path}\n${file.text}`).join('\n')
  return scripts.length === 0 ? [] : [{ path: join(directory, '.check.cfg'), text, needs: 'none' }]
}

const checker = ['grub-script-check']

/** tftpd-hpa, by the unit svcd-tftp: Debian's own reads a file by root's shell, which svcd must not write. */
export const hpa: Backend<TftpData> = {
  name: 'tftpd-hpa',
  defaults: { check: checker, service: 'svcd-tftp' },
  reload: 'restart',
  render: (data, { directory }) => treeOf(data, directory),
  checks: ({ directory, check }, changed, staged) => {
    const files = joined(changed, directory)
    return { commands: files.map(({ path }) => [...check, staged(path)]), files }
  }
}

/** dnsmasq gets a file of its own beside those of DHCP and DNS, which may be the same server. */
export const dnsmasq: Backend<TftpData> = {
  name: 'dnsmasq',
  defaults: { config: '/etc/dnsmasq.d/svcd-tftp.conf', check: checker, service: 'dnsmasq' },
  reload: 'restart',
  render: (data, { config, directory }, render) => {
    const tree = treeOf(data, directory)
    const text = render('tftp/templ_dnsmasq.cfg', { ...data, directory })
    return { ...tree, files: [{ path: config, text, needs: 'restart' }, ...tree.files] }
  },
  checks: (settings, changed, staged) => {
    const ofTree = hpa.checks(settings, changed, staged)
    const own = checksMain({ ...settings, check: ['dnsmasq', '--test', '-C'] }, changed, staged)
    return { ...ofTree, commands: [...own.commands, ...ofTree.commands] }
  }
}
