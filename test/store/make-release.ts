/**
 * Makes the state directory of a release for test/store/releases/: `node test/compile.mjs && node
 * .cache/js/test/store/make-release.js DIRECTORY [killed]`, run as root with the code of that release. Every
 * type is in it, and what is no object; `killed`: the files of the last change are not written yet. Commit
 * DIRECTORY/state without holder.json, with /var/lib/svcd in the place of DIRECTORY.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { createLog } from '../../lib/base/log.js'
import { loadConfig } from '../../lib/config/load.js'
import { startDaemon } from '../../lib/daemon.js'
import { realFiles } from '../../lib/disk/steps.js'
import { makeTree } from '../image/small-tree.js'

const directory = resolve(process.argv[2] ?? '')
const at = (name: string) => join(directory, name)
for (const name of ['files', 'zones']) mkdirSync(at(name), { recursive: true })
makeTree(at('images/compute'))
// Accepted of a machine with a TPM, which no script plays.
const measured = {
  name: 'dc24f9385a8766a8e23c99379d1b1ced',
  ...{ vendor: 'ACME', product: 'R1', version: '1.0' },
  pcrs: [`0 ${'0'.repeat(63)}1 00000001`, `7 ${'0'.repeat(63)}2 00000002`]
}
mkdirSync(at('state/firmware'), { recursive: true })
writeFileSync(at(`state/firmware/${measured.name}.json`), `${JSON.stringify(measured, undefined, 2)}\n`)
const config = loadConfig('etc/svcd.ini', [
  `paths.state=${at('state')}`,
  `paths.files=${at('files')}`,
  `image.directory=${at('images')}`,
  'image.initramfs=no',
  'image.packer=builtin',
  ...['dns.server=bind', `dns.config=${at('named.conf')}`, `dns.directory=${at('zones')}`],
  ...['dns.control=/bin/true', 'dns.gather=0s'],
  'http.listen=127.0.0.1:0',
  'http.trusted_proxies=127.0.0.0/8',
  'http.url=http://10.141.255.254:7050',
  'controller.address=10.141.255.254'
])
const daemon = await startDaemon(
  config,
  createLog('warn', line => process.stderr.write(`${line}\n`))
)
const url = `http://127.0.0.1:${daemon.port}`
let token = ''

async function ask(method: 'GET' | 'POST', path: string, body?: unknown, from?: string): Promise<string> {
  const answer = await fetch(url + path, {
    method,
    headers: {
      ...(token === '' ? {} : { 'x-access-tokens': token }),
      ...(from === undefined ? {} : { 'x-forwarded-for': from })
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) })
  })
  const text = await answer.text()
  if (answer.status >= 400) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
  return text
}
const make = (path: string, fields: unknown) => {
  const [type = '', name] = path.split('/')
  const isWrapped = path.startsWith('secrets/')
  const wrapped = { config: { [type]: name === undefined ? fields : { [name]: fields } } }
  return ask('POST', `/config/${path}`, isWrapped ? fields : wrapped)
}

const password = readFileSync(at('state/admin-password'), 'utf8').trim()
token = JSON.parse(await ask('POST', '/token', { username: 'admin', password })).token
const content = Buffer.from('a secret text\n').toString('base64')
await make('network/cluster', { network: '10.141.0.0/16', gateway: '10.141.255.253' })
await make('network/ipmi', { network: '10.148.0.0/16' })
await make('disklayout/data', {
  disks: [{ name: 'data', partitions: [{ name: 'data', size: 'rest', format: 'xfs', mount: '/' }] }]
})
await make('bmcsetup/ipmi', { username: 'admin', password: 'bmc-word', userid: 2 })
await make('osimage/compute', { comment: 'the image' })
await ask('GET', '/config/osimage/compute/_pack')
await make('osimage/compute/tag', { tag: 'stable' })
await make('osimage/compute/_clone', { newosimage: 'test' })
await make('file/motd', { path: '/etc/motd', mode: '0644', template: 'node {{ hostname }}\n' })
await make('group/compute', {
  osimage: 'compute',
  osimagetag: 'stable',
  bmcsetupname: 'ipmi',
  setupbmc: true,
  variables: { rack: 'r1' },
  files: ['motd'],
  interfaces: [
    { interface: 'BOOTIF', network: 'cluster' },
    { interface: 'BMC', network: 'ipmi' }
  ]
})
for (const i of [1, 2, 3])
  await make(`node/node00${i}`, {
    group: 'compute',
    macaddr: `52:54:00:00:00:0${i}`,
    variables: { slot: `${i}` }
  })
await make('node/node003', { newnodename: 'node004' })
await make('switch/sw1', { network: 'cluster', read: 'community-word', oid: '.1.3.6.1.2.1.17.7.1.2.2.1.2' })
await make('otherdev/pdu1', { network: 'cluster' })
await make('secrets/node/node001', {
  config: { secrets: { node: { node001: [{ name: 'host', path: '/etc/host.key', content }] } } }
})
await make('secrets/group/compute', {
  config: { secrets: { group: { compute: [{ name: 'munge', path: '/etc/munge/munge.key', content }] } } }
})
await make('cluster', { ntp_server: 'ntp.example.org', variables: { site: 'here' } })
await ask('GET', '/config/node/node002/_release')
// By curl: svcd takes `fetch` for a browser here (rules 5.8).
await promisify(execFile)('curl', [
  '-fsS',
  '-H',
  'X-Forwarded-For: 10.141.0.1',
  `${url}/boot/search/mac/52:54:00:00:00:01`
])
await ask('POST', '/monitor/node/node001', {
  monitor: { status: { node001: { state: 'installer.started' } } }
})
await ask('POST', '/monitor/node/node001', {
  monitor: { status: { node001: { state: 'installer.completed' } } }
})
await daemon.images.recovered
await new Promise(resolve => setTimeout(resolve, 2000))
if (process.argv[3] === 'killed') {
  const { runSteps } = realFiles
  const isOfObject = (file: string) => /\/state\/(node|group)\//.test(file)
  Object.assign(realFiles, {
    runSteps: (...[steps, ...more]: Parameters<typeof runSteps>) =>
      steps.some(step => 'replace' in step && isOfObject(step.replace))
        ? new Promise(() => {})
        : runSteps(steps, ...more)
  })
  await make('group/compute', { newgroupname: 'workers' })
  process.kill(process.pid, 'SIGKILL')
}
await daemon.close(1000)
process.exit(0)
