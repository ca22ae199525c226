import t from 'tap'
import { machine } from '../inventory/machines.js'
import { cheapHash } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { inject } from '../support/inject.js'
import { longestTurn, yardstick } from '../support/turns.js'
import { formats } from './cluster.js'

const NODES = 10_000
const hash = cheapHash('correct horse')
const c = await Controller.start(t, `users.adam=admin ${hash}`, `users.vera=viewer:small ${hash}`)
c.token = await c.login('adam', 'correct horse')
await c.cluster()
await c.post('/config/network/ipmi', { network: '10.148.0.0/16' })
await c.post('/config/bmcsetup/boards', { username: 'admin', password: 'secret' })
const interfaces = [{ interface: 'BMC', network: 'ipmi' }]
await c.post('/config/group/compute', { bmcsetupname: 'boards', interfaces })
await c.post('/config/group/small', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
const name = (i: number) => `n${String(i).padStart(5, '0')}`
const rows = Array.from(
  { length: NODES },
  (_, i) => `${name(i)},${i < 3 ? 'small' : 'compute'},r${i % 300}\n`
)
t.equal((await c.post('/config/node?format=csv', `name,group,variables.rack\n${rows.join('')}`)).status, 200)
await c.post(`/monitor/inventory/${name(7)}`, machine())

// rules 12.10, 12.11
t.test('an export of 10,000 nodes holds no turn of the event loop', { timeout: 600_000 }, async t => {
  const asked = { method: 'GET', headers: { 'x-access-tokens': c.token } }
  for (const format of formats) {
    let length = 0
    const longest = await longestTurn(async () => {
      // Without the client of the tests, which parses a whole answer in one turn.
      const { status, body } = await inject(c.daemon.server, { ...asked, path: `/config/export/${format}` })
      length = status === 200 ? body.length : 0
    })
    t.ok(length > 60, format)
    t.ok(longest < 50 + yardstick(), `${format}: ${longest.toFixed(1)} ms in one turn, ${length} bytes`)
    t.comment(`${format}: ${longest.toFixed(1)} ms in one turn, ${length} bytes`)
  }
})

// rules 5.2, 12.11
t.test('a user who is limited to groups gets their nodes alone', async t => {
  const by = { token: await c.login('vera', 'correct horse') }
  for (const format of formats) {
    const { status, text } = await c.get(`/config/export/${format}`, by)
    t.equal(status, 200, format)
    t.notMatch(text, /n0000[3-9]|n000[1-9]|boards|r299|controller/, format)
  }
  t.match((await c.get('/config/export/genders', by)).text, /^#.*(?:\nn0000[0-2] .*){3}\n$/)
  t.equal((await c.get('/config/export/hosts?nodes=@compute', by)).status, 403)
})
