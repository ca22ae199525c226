import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { generationOf } from '../../lib/model/types/node.js'
import { cheapHash, issuer } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { local } from '../support/login.js'
import { clientHere, svcctlFor } from '../support/svcctl.js'
import { until } from '../support/until.js'
import { attach, lab, type } from './lab.js'

const users = ['root', 'bob', 'alice'].map(
  name => `users.${name}=${name === 'alice' ? 'viewer' : 'admin'} ${cheapHash(name)}`
)
const { c, machines } = await lab(t, ['n1', 'n2'], async (...set) => {
  const started = await Controller.start(t, ...set, ...users)
  started.token = (await issuer(started)).issueUser(local('root', 'admin'))
  return started
})
const tokens = await issuer(c)
const machine = machines.n1 as NonNullable<typeof machines.n1>
const detached = () => until(async () => (await audited()).attach === (await audited()).detach)

async function audited() {
  const { audit } = (await c.get('/monitor/audit')).body.monitor
  const of = (what: string) =>
    audit.filter(({ after }: { after?: { console?: string } }) => after?.console === what).length
  return { attach: of('attach'), detach: of('detach') }
}

// rules 13.6
t.test('nobody but an admin sees a console or types into one', async t => {
  const mine = await attach(c, 'n1')
  const { model } = c.daemon
  const callers = {
    nobody: [null, 401],
    viewer: [tokens.issueUser(local('alice', 'viewer')), 403],
    'the node itself': [tokens.issueNode('n1', generationOf(model.view, 'n1')), 403],
    'another node': [tokens.issueNode('n2', generationOf(model.view, 'n2')), 403]
  } as const
  for (const [who, [token, status]] of Object.entries(callers)) {
    t.equal((await attach(c, 'n1', token)).status, status, `${who} attaches`)
    t.equal((await c.get('/monitor/console/n1', { token })).status, status, `${who} reads the log`)
    const input = { session: mine.session, input: 'reboot\r' }
    t.equal((await type(c, 'n1', input, token as string)).status, status, `${who} types`)
  }
  const bob = tokens.issueUser(local('bob', 'admin'))
  t.match(await type(c, 'n1', { session: mine.session, input: 'x' }, bob), { status: 403 }, 'another admin')
  mine.leave()
  await detached()
  t.equal(machine.received, '', 'nothing of it was typed')
  t.match((await attach(c, 'n3')).message, /n3/)
  await c.post('/config/node/bare', { group: 'compute' })
  t.match(await attach(c, 'bare'), {
    status: 404,
    message: /no interface BMC: type svcctl .* BMC\.network=NETWORK/
  })
})

t.test('one user, and all together, attach so many consoles', async t => {
  const all = await Promise.all(Array.from({ length: 20 }, () => attach(c, 'n2')))
  const open = all.filter(({ status }) => status === 200)
  t.equal(open.length, 8, 'of 20 at once')
  t.match(await attach(c, 'n1'), { status: 503, message: /user root has 8 consoles open/ })
  const bob = await attach(c, 'n1', tokens.issueUser(local('bob', 'admin')))
  t.equal(bob.status, 200, 'another user still attaches')
  for (const one of [...open, bob]) one.leave()
  await detached()
  const again = await attach(c, 'n1')
  t.equal(again.status, 200)
  again.leave()
  await detached()
})

t.test('a console that floods costs no memory, and its reader sees the end', async t => {
  const slow = await attach(c, 'n1')
  slow.pause()
  const before = process.memoryUsage().rss
  const megabyte = Buffer.alloc(1 << 20, 'flood\r\n')
  for (let i = 0; i < 64; i++) {
    machine.says(megabyte)
    await sleep(5)
  }
  machine.says('\r\nTHE END\r\n')
  await until(async () => {
    const { lines } = (await c.get('/monitor/console/n1?lines=1')).body.monitor.consoles.n1
    return lines[0].text === 'THE END'
  })
  const grown = (process.memoryUsage().rss - before) >> 20
  // The 64 MiB of this test itself leave through the socket of its machine.
  t.ok(grown < 160, `${grown} MiB`)
  slow.resume()
  machine.says('and more\r\n')
  await until(() => slow.text.includes('and more'))
  slow.leave()
  await detached()
})

t.test('svcctl console attaches, types, and leaves with &.', async t => {
  const env = svcctlFor(t.testdir({}), c)
  const run = (args: readonly string[], keys?: (key: (text: string) => void) => void) =>
    clientHere(args, env, { keys })
  machine.received = ''
  const told = await run(['console', 'n1'], async key => {
    key('l')
    key('s && date\r&')
    await until(() => machine.received.includes('ls & date\r'))
    machine.says('Thu Nov 26\r\n')
    machine.says('<ConMan> Console [n1] is currently disconnected from <10.142.0.1>\r\n')
    await sleep(300)
    key('.')
  })
  t.match(told, { code: 0, stdout: /Thu Nov 26\r\n/, stderr: /attached to n1; &\. leaves/ })
  t.match(told.stderr, /does its BMC answer\? svcctl node power n1 status\r\n/)
  await detached()
  machine.says('evil \u001b]0;title\u0007 \u001b[2J\r\nlast\r\n')
  // conmand may notice the end of the attachment after that, and say so in a line of its own.
  await until(async () => (await run(['console', 'n1', '--log', '-n', '9'])).stdout.includes('last\n'))
  const { stdout } = await run(['console', 'n1', '--log', '-n', '9'])
  t.match(stdout, /evil/)
  t.notMatch(stdout, /[\u0000-\u0009\u000b-\u001f]/)
  t.match(await run(['console', 'n1']), { code: 2, stderr: /no terminal to type on: use --log/ })
  t.match(await run(['console', 'nope', '--log']), { code: 1, stderr: /nope/ })
  const many = await run(['console', 'n1', '--log', '-n', '1001'])
  t.match(many, { code: 2, stderr: /-n takes a number from 1 to 1000, not 1001/ })
  const set = await run(['console', 'n[1-2]', '--log'])
  t.match(set, { code: 2, stderr: /console takes one node, n\[1-2\] is a node set/ })
})
