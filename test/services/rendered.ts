import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { runSliced } from '../../lib/base/concurrency.js'
import type { ClusterSettings } from '../../lib/model/stored.js'
import type { RenderedFile, ServiceSettings } from '../../lib/services/backend.js'
import { backendOf, type ServiceName } from '../../lib/services/backends.js'
import { capture } from '../../lib/services/capture.js'
import { type Cards, type DhcpOptions, dhcpData } from '../../lib/services/dhcp/data.js'
import { dnsData } from '../../lib/services/dns/data.js'
import { Templates } from '../../lib/template/templates.js'
import { programEnv } from '../support/programs.js'
import { type Objects, settings, view } from './cluster.js'

export const templates = fileURLToPath(new URL('../../templates', import.meta.url))
const golden = fileURLToPath(new URL('golden', import.meta.url))

export const options: DhcpOptions = {
  url: 'http://10.141.255.254:7050',
  next_server: '10.141.255.254',
  bios: 'undionly.kpxe',
  efi_x64: 'ipxe.efi',
  efi_arm64: 'ipxe-arm64.efi',
  loader: 'ipxe',
  shim_x64: 'shimx64.efi',
  shim_arm64: 'shimaa64.efi',
  lease_seconds: 3600,
  interfaces: [],
  standby: false,
  dns_too: false
}

/** Every server there is. */
export const servers = [
  ['dhcp', 'isc'],
  ['dhcp', 'kea'],
  ['dhcp', 'dnsmasq'],
  ['dns', 'bind'],
  ['dns', 'dnsmasq']
] as const

export const settingsOf = (service: ServiceName, server: string): ServiceSettings => ({
  ...{ config: '', directory: '', leaseFile: '' },
  ...backendOf(service, server).defaults,
  server,
  reload: [],
  control: ['systemctl'],
  gather: 0,
  controlSocket: server === 'kea' ? '/run/kea/kea4-ctrl-socket' : ''
})

/** What the data of DHCP is made of besides the objects. */
type More = Partial<DhcpOptions> & { readonly cards?: Cards }

export const dataOf = (
  service: ServiceName,
  objects: Objects,
  cluster: ClusterSettings = settings,
  { cards, ...more }: More = {},
  controllers?: readonly ClusterSettings['controller'][]
): Promise<object> => {
  const captured = capture(view(objects), cluster, controllers)
  return runSliced<object>(
    service === 'dhcp' ? dhcpData(captured, { ...options, ...more }, cards) : dnsData(captured)
  )
}

/** The files of a server, as they would be on a Debian system. */
export async function rendered(
  service: ServiceName,
  server: string,
  objects: Objects,
  more: More & Partial<ServiceSettings> = {},
  cluster: ClusterSettings = settings
): Promise<readonly RenderedFile[]> {
  const all = new Templates({ directory: templates })
  const render = (name: string, data: object) => all.render(name, { variables: cluster.variables, ...data })
  const data = await dataOf(service, objects, cluster, more)
  const given = { ...settingsOf(service, server), ...more }
  const serial = (_zone: string, _path: string, body: (serial: number) => string) => body(2026112001)
  return backendOf(service, server).render(data, given, render, serial).files
}

/** What each template of a server is given for some objects. */
export async function templateData(
  service: ServiceName,
  server: string,
  objects: Objects,
  more: Partial<DhcpOptions> = {},
  ini: Partial<ServiceSettings> = {},
  controllers?: readonly ClusterSettings['controller'][]
): Promise<{ template: string; data: object }[]> {
  const found: { template: string; data: object }[] = []
  const record = (template: string, data: object) => {
    found.push({ template, data: { variables: settings.variables, ...data } })
    return ''
  }
  const given = { ...settingsOf(service, server), ...ini }
  const serial = (_zone: string, _path: string, body: (serial: number) => string) => body(1)
  const data = await dataOf(service, objects, settings, more, controllers)
  backendOf(service, server).render(data, given, record, serial)
  return found
}

/**
 * Runs the server's own checks on files, which are put into a directory of their own; gives what went wrong.
 */
export function complaints(service: ServiceName, server: string, files: readonly RenderedFile[]): string[] {
  const directory = mkdtempSync(join(tmpdir(), 'svcd-services-'))
  try {
    const staged = (path: string) => join(directory, path)
    const { commands, files: more = [] } = backendOf(service, server).checks(
      settingsOf(service, server),
      files,
      staged
    )
    for (const { path, text } of [...files, ...more]) {
      mkdirSync(dirname(staged(path)), { recursive: true })
      writeFileSync(staged(path), text)
    }
    if (commands.length === 0) return [`${service} ${server}: nothing is checked`]
    return commands.flatMap(([program = '', ...args]) => {
      const { status, stdout, stderr, error } = spawnSync(program, args, {
        env: programEnv(),
        encoding: 'utf8'
      })
      return status === 0 ? [] : [`${program} ${args.join(' ')}: ${error ?? ''} ${status} ${stdout}${stderr}`]
    })
  } finally {
    rmSync(directory, { recursive: true })
  }
}

/** To make the golden files anew: SVC_GOLDEN=1 sh test/run.sh <the test>, then read the difference. */
export function isGolden(t: Test, name: string, files: readonly RenderedFile[]): void {
  const text = files.map(file => `==> ${file.path}\n${file.text}`).join('\n')
  const file = join(golden, `${name}.txt`)
  if (process.env.SVC_GOLDEN) {
    mkdirSync(golden, { recursive: true })
    writeFileSync(file, text)
  }
  t.equal(text, existsSync(file) ? readFileSync(file, 'utf8') : '', `golden file ${name}`)
}
