import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { runSliced } from '../../lib/base/concurrency.js'
import { objectTypes, typeNames } from '../../lib/model/types.js'
import { backendOf } from '../../lib/services/backends.js'
import { capture } from '../../lib/services/capture.js'
import { dhcpData } from '../../lib/services/dhcp/data.js'
import { dnsData } from '../../lib/services/dns/data.js'
import { Templates } from '../../lib/template/templates.js'
import { settings } from '../services/cluster.js'
import { complaints, options, servers, settingsOf, templates } from '../services/rendered.js'
import { locate, output, requirePrograms } from '../support/programs.js'
import { proof } from '../support/proof.js'
import { populated } from '../support/routes.js'
import { scratch } from '../support/scratch.js'
import { fuzzSeed, Random } from './random.js'
import { added, goodFor } from './values.js'

// Every value that a field takes, into every file that is made of it: no line is added, and the programs that
// read the files can read them.

requirePrograms(
  'dhcpd',
  'kea-dhcp4',
  'dnsmasq',
  'named-checkconf',
  'named-checkzone',
  'bash',
  'dash',
  'busybox'
)

const long = process.env.SVCD_LONG !== undefined
const rounds = Number(process.env.FUZZ_ROUNDS ?? (long ? 300 : 1))
const random = new Random(fuzzSeed())
const again = `again with FUZZ_SEED=${random.seed}`

if (existsSync('/dev/shm')) process.env.TMPDIR = '/dev/shm'
const c = await populated(t, 'image.initramfs=no')
const directory = scratch(t)
await c.post('/config/network/cluster', {
  ...{ dhcp: true, dhcp_range_begin: '10.141.99.1', dhcp_range_end: '10.141.99.99' }
})
await c.post('/config/network/bmc', { network: '10.142.0.0/16' })
await c.post('/config/node/n1', { setupbmc: true, interfaces: [{ interface: 'BMC', network: 'bmc' }] })
await c.post('/config/node/n2', { group: 'compute', macaddr: '52:54:00:00:00:02', bootmenu: true })
await c.post('/config/node/n3', { group: 'compute', macaddr: '52:54:00:00:00:03', netboot: false })
const beginning = (await c.get('/config/cluster/export')).text

/** Objects, and the values that each of their fields takes: a round sets all of them, one by one. */
const objects = [
  ...['network/cluster', 'network/bmc', 'group/compute', 'node/n1', 'node/n2', 'node/n3', 'osimage/compute'],
  ...['bmcsetup/boards', 'switch/sw1', 'otherdev/pdu']
]

/** What a round must leave as it is, so that there is something to render at all. */
const fixed =
  /^(network|dhcp.*|osimage|osimagetag|group|interfaces|kernelfile|initrdfile|imagefile|setupbmc|bmcsetupname|macaddr|netboot|provision_interface)$/

const comment = objectTypes.node.fields.filter(({ name }) => name === 'comment')

async function disturb(): Promise<number> {
  await c.post('/config/cluster/import', beginning)
  let taken = 0
  for (const object of objects) {
    const [type = '', name = ''] = object.split('/')
    const { fields } = objectTypes[typeNames.find(known => known === type) ?? 'node']
    for (const field of fields) {
      const values = goodFor(field).filter(value => value !== null)
      if (field.derived || values.length === 0 || (fixed.test(field.name) && !random.is(0.03))) continue
      const { status } = await c.post(`/config/${object}`, { [field.name]: random.pick(values) })
      if (status < 300) taken++
    }
    if (type !== 'node' && type !== 'group') continue
    // Free text of an interface.
    const entry = { interface: 'BOOTIF', options: String(random.pick(comment.flatMap(goodFor))) }
    if ((await c.post(`/config/${type}/${name}`, { interfaces: [entry] })).status < 300) taken++
  }
  return taken
}
interface Rendered {
  readonly name: string
  readonly text: string
}

/** What machines are sent. */
async function scripts(): Promise<Rendered[]> {
  const found: Rendered[] = []
  for (const path of ['/boot', '/boot/short', '/boot/disk'])
    found.push({ name: `ipxe ${path}`, text: (await c.get(path, { token: null })).text })
  for (const node of ['n1', 'n2', 'n3']) {
    const source = (await c.get(`/config/node/${node}`)).body?.config.node[node].interfaces.find(
      (entry: { interface: string }) => entry.interface === 'BOOTIF'
    )?.ipaddress
    const ask = { token: null, source: source ?? '127.0.0.1' }
    for (const [kind, path] of [
      ['ipxe', `/boot/manual/hostname/${node}`],
      ['sh', `/boot/install/${node}`],
      ['kickstart', `/kickstart/install/${node}`]
    ] as const) {
      const { status, text } = await c.get(path, ask)
      // A node without an image or an address has none.
      if (status === 200) found.push({ name: `${kind} ${path}`, text })
      else if (status >= 500) found.push({ name: `status ${status} ${path}`, text })
    }
  }
  return found
}

const commands = new Set(
  'echo imgfetch imgload imgargs imgexec imgfree goto menu item choose chain set clear read isset iseq sleep sanboot exit boot config shell reboot ifopen'.split(
    ' '
  )
)

/** What iPXE cannot read; it has no program that checks a script. */
function ipxeFaults(text: string): string[] {
  const lines = text.split('\n')
  const labels = new Set(lines.filter(line => line.startsWith(':')).map(line => line.slice(1)))
  return lines.flatMap((line, i) => {
    if (i === 0) return line === '#!ipxe' ? [] : [`no iPXE script: ${line}`]
    if (line === '' || line.startsWith('#') || line.startsWith(':')) return []
    const word = line.split(' ', 1)[0] ?? ''
    if (!commands.has(word)) return [`line ${i + 1}, no command: ${line}`]
    const target = / ?\bgoto (\w+)/.exec(line)?.[1]
    if (target !== undefined && !labels.has(target)) return [`line ${i + 1}, no label ${target}`]
    return /[^\x20-\x7e]/.test(line.replace(/^(echo|item|menu).*/, ''))
      ? [`line ${i + 1}, bytes: ${line}`]
      : []
  })
}

const shells = [
  ['sh', '-n'],
  ['bash', '-n'],
  ['dash', '-n'],
  ['busybox', 'sh', '-n']
] as const

async function shellFaults(text: string): Promise<string[]> {
  const file = join(directory, 'script')
  writeFileSync(file, text)
  const runs = shells.map(([program, ...args]) =>
    output(program, [...args, file]).then(
      () => [],
      (error: Error) => [error.message]
    )
  )
  return (await Promise.all(runs)).flat()
}

/** Of a kickstart: its sections, each of which is a shell script but that of the packages. */
async function kickstartFaults(text: string): Promise<string[]> {
  const faults: string[] = []
  let section: { head: string; lines: string[] } | undefined
  for (const line of text.split('\n')) {
    if (/^%(pre|post|packages|onerror|addon)\b/.test(line)) {
      if (section) faults.push(`${line} within ${section.head}`)
      section = { head: line, lines: [] }
    } else if (line.startsWith('%end')) {
      if (!section) faults.push('%end without a section')
      else if (!section.head.startsWith('%packages'))
        faults.push(...(await bashFaults(section.lines.join('\n'))))
      section = undefined
    } else if (section) section.lines.push(line)
    else if (!/^(#.*|(%include|[a-z]+)( .*)?|)$/.test(line)) faults.push(`no kickstart command: ${line}`)
  }
  if (section) faults.push(`${section.head} has no %end`)
  const validator = locate('ksvalidator')
  if (validator === undefined) return faults
  const file = join(directory, 'kickstart')
  writeFileSync(file, text)
  await output(validator, [file]).catch((error: Error) => faults.push(error.message))
  return faults
}

async function bashFaults(text: string): Promise<string[]> {
  const file = join(directory, 'section')
  writeFileSync(file, text)
  return output('bash', ['-n', file]).then(
    () => [],
    (error: Error) => [error.message]
  )
}

/** The files of every DHCP and DNS server, and what its own checker says of them. */
async function serverFaults(): Promise<{ faults: string[]; files: Rendered[] }> {
  const all = new Templates({ directory: templates })
  const render = (name: string, data: object) => all.render(name, { ...data })
  const faults: string[] = []
  const files: Rendered[] = []
  for (const [service, server] of servers) {
    const captured = capture(c.daemon.model.view, settings)
    const data = await runSliced<object>(service === 'dhcp' ? dhcpData(captured, options) : dnsData(captured))
    const serial = (_zone: string, _path: string, body: (serial: number) => string) => body(2026112001)
    const made = backendOf(service, server).render(data, settingsOf(service, server), render, serial).files
    files.push(...made.map(({ path, text }) => ({ name: `${service} ${server} ${path}`, text })))
    faults.push(...complaints(service, server, made).map(text => `${service} ${server}: ${text}`))
  }
  return { faults, files }
}

/** A line that a value has added; within quotes of a shell it is no line of the script. */
const addedLines = ({ name, text }: Rendered) =>
  name.startsWith('sh ') || name.startsWith('kickstart ')
    ? []
    : text
        .split(/[\r\n]/)
        .filter(line => line.trimStart().startsWith(added))
        .map(line => `${name}: ${line}`)

// rules 4.2, 4.15, 4.20, 10.2
t.test('values into every rendered file', async t => {
  const faults: string[] = []
  let renders = 0
  let values = 0
  let round = 0
  for (; round < rounds && faults.length === 0; round++) {
    values += await disturb()
    const sent = await scripts()
    const { faults: ofServers, files } = await serverFaults()
    faults.push(...ofServers)
    for (const rendered of [...sent, ...files]) {
      const { name, text } = rendered
      renders++
      if (name.startsWith('status')) faults.push(`${name}: ${text}`)
      if (name.startsWith('ipxe')) faults.push(...ipxeFaults(text).map(what => `${name}: ${what}`))
      if (name.startsWith('sh ')) faults.push(...(await shellFaults(text)).map(what => `${name}: ${what}`))
      if (name.startsWith('kickstart'))
        faults.push(...(await kickstartFaults(text)).map(what => `${name}: ${what}`))
      faults.push(...addedLines(rendered))
    }
    // For who looks at a failure.
    if (faults.length > 0 && process.env.FUZZ_KEEP) {
      mkdirSync(process.env.FUZZ_KEEP, { recursive: true })
      for (const { name, text } of [...sent, ...files])
        writeFileSync(join(process.env.FUZZ_KEEP, name.replaceAll(/[ /]/g, '_')), text)
      writeFileSync(join(process.env.FUZZ_KEEP, 'export.json'), (await c.get('/config/cluster/export')).text)
    }
  }
  proof('values into rendered files', {
    tried: renders,
    unmeant5xx: faults.filter(text => text.startsWith('status')).length,
    note: `seed ${random.seed}, ${round} rounds, ${values} values, ${faults.length} faults`
  })
  t.same(faults.slice(0, 10), [], again)
  t.ok(values > rounds * 50, `values are taken: ${values}`)
  t.ok(renders > rounds * 15, `files are rendered: ${renders}`)
})
