import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, readFileSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import t from 'tap'
import { wordsAs } from '../../lib/helper/directories.js'
import { INSIDE, runRehearsal } from '../../lib/helper/rehearse.js'
import { requirePrograms } from '../support/programs.js'

// rules 16.2: nothing leads out of the network of a rehearsal, and svcd sees its machine at the node's address.

/** Tells the source of requests to the controller's address and to loopback, and that nothing leads out. */
const program = `
const net = require('node:net'), os = require('node:os')
const seen = []
const server = net.createServer(socket => { seen.push(socket.remoteAddress); socket.end() })
const ask = (host, port) => new Promise(done => {
  const socket = net.connect({ host, port, timeout: 2000 })
  socket.on('close', () => done('closed')).on('error', error => done(error.code)).resume()
})
server.listen(7050, '0.0.0.0', async () => {
  for (const host of ['127.0.0.1', '127.0.0.2', '127.255.255.254', '10.141.0.1']) await ask(host, 7050)
  const out = await ask('192.0.2.1', 80)
  console.log(JSON.stringify({ seen, out, interfaces: Object.keys(os.networkInterfaces()) }))
  process.exit()
})`

const asked = (controller: string) => {
  const inside = ['sh', '-c', INSIDE, 'sh', '10.141.0.71', controller, process.execPath, '-e', program]
  const text = execFileSync('unshare', ['--user', '--map-root-user', '--net', '--', ...inside])
  return JSON.parse(text.toString())
}

t.test('in the namespace there is loopback alone, and what comes to svcd comes from the node', async t => {
  requirePrograms('unshare', 'ip')
  const node = '10.141.0.71'
  t.strictSame(asked('10.141.0.1'), {
    seen: [node, node, node, node],
    out: 'ENETUNREACH',
    interfaces: ['lo']
  })
})

t.test('it gets the group of the device, and never group root', t => {
  const owner = { uid: 990, gid: 980 }
  const words = (groups: string) => [
    ...['setpriv', '--reuid=990', '--regid=980', groups, '--inh-caps=-all', '--no-new-privs', '--']
  ]
  t.strictSame(wordsAs(owner, 105), words('--groups=105'))
  for (const kvm of [0, undefined]) t.strictSame(wordsAs(owner, kvm), words('--clear-groups'))
  t.end()
})

t.test('under the units systemd gives it a unit with a drop-in of its own, and ends that', async t => {
  const base = t.testdir({ bin: {}, files: {}, state: {} })
  const at = (...names: string[]) => join(base, ...names)
  for (const name of ['systemd-run', 'systemctl']) {
    writeFileSync(at('bin', name), `#!/bin/sh\necho "${name} $*" >>${at('called')}\n`)
    chmodSync(at('bin', name), 0o755)
  }
  // Files of root are refused to a svcd that is not root.
  if (process.getuid?.() === 0) chownSync(at('files'), 65534, 65534)
  const PATH = `${at('bin')}${delimiter}${process.env.PATH}`
  t.intercept(process, 'env', { value: { ...process.env, PATH } })
  const places = {
    ...{ images: at('images'), files: at('files'), state: at('state'), sshKey: '', sshPort: 22 },
    ...{ sshUnit: 'svcd-ssh', byRoot: false, units: [] }
  }
  const course = { signal: new AbortController().signal, timeLimitMs: 30_000, line: () => {} }
  await runRehearsal(places, { node: '10.141.0.71', controller: '10.141.0.1' }, course)
  const called = readFileSync(at('called'), 'utf8')
  const [, unit = ''] = /^systemd-run .* --unit=(\S+) -p PrivateNetwork=yes -- sh -c /.exec(called) ?? []
  // The drop-in of svcd-ssh- would forbid what node and ip need.
  t.match(unit, /^svcd-rehearsal-[0-9a-f]{16}\.service$/)
  t.ok(called.endsWith(`systemctl stop ${unit}\n`), called)
})
