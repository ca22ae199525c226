import t from 'tap'
import { withUsers } from '../support/callers.js'
import { longestTurn, yardstick } from '../support/turns.js'

const { c, as } = await withUsers(t)
const NODES = 2000
const table = Array.from({ length: NODES }, (_, i) => `m${i},compute\n`).join('')
t.equal((await c.post('/config/node?format=csv', `name,group\n${table}`)).status, 200)

// rules 12.10
t.test('a viewer does not hold the event loop by a set', { timeout: 600_000 }, async t => {
  const hostlist = `${'x'.repeat(100_000)}[1-1000]`
  const repeated = Array.from({ length: 15_900 / 11 }, () => '@stale:yes').join(',')
  let looked = 0
  const { boots } = c.daemon
  const allRunning = boots.allRunning.bind(boots)
  Object.assign(boots, {
    allRunning: () => {
      looked++
      return allRunning()
    }
  })
  const body = { control: { power: { status: { hostlist } } } }
  const table: [what: string, ask: () => ReturnType<typeof c.get>, status: number, says: RegExp][] = [
    [
      'long names',
      () => c.post('/control/action/power/_status', body, { token: as.viewer }),
      400,
      /^node set x{200}…: x{200}… would be a name of more than 63 characters$/
    ],
    [
      'a group again and again',
      () => c.get(`/config/node?fields=name&format=text&nodes=${repeated}`, { token: as.viewer }),
      200,
      /^$/
    ],
    [
      'names that are no nodes, with many numbers',
      () =>
        c.post(
          '/control/action/power/_status',
          { hostlist: Array.from({ length: 9999 }, (_, i) => `${'1-'.repeat(28)}${i}`).join(',') },
          { token: as.viewer }
        ),
      404,
      /there is no node/
    ],
    [
      'all fields of all nodes, sorted by eight',
      () =>
        c.get(
          '/config/node?nodes=@all!m7&sort=comment,-group,osimage,-domain,netboot,status,macaddr,-name&format=csv&fields=name',
          { token: as.viewer }
        ),
      200,
      /^name\r\n/
    ]
  ]
  for (const [what, ask, status, says] of table) {
    let answer: Awaited<ReturnType<typeof c.get>> | undefined
    const longest = await longestTurn(async () => {
      answer = await ask()
    })
    t.equal(answer?.status, status, what)
    if (says.source !== '^$') t.match(answer?.body?.message ?? answer?.text, says, what)
    t.ok(longest < 50 + yardstick(), `${what}: ${longest.toFixed(1)} ms in one turn`)
  }
  t.equal(looked, 1, 'what an @ stands for is worked out once')
})

// rules 12.10
t.test('a table of nodes is read in pieces', { timeout: 600_000 }, async t => {
  const lines = Array.from({ length: 8 * NODES }, (_, i) => `m${i % NODES},yes\n`).join('')
  let status = 0
  const longest = await longestTurn(async () => {
    ;({ status } = await c.post('/config/node?format=csv&dryrun=yes', `name,netboot\n${lines}`))
  })
  t.equal(status, 400, 'each name stands there eight times')
  t.ok(longest < 50 + yardstick(), `${longest.toFixed(1)} ms in one turn`)
})

// rules 12.4
t.test('columns are bounded', async t => {
  const fields = (count: number) => Array.from({ length: count }, (_, i) => `n${i}.network`).join(',')
  t.match(await c.get(`/config/node?fields=${fields(1000)}`), {
    status: 400,
    body: { message: 'query key "fields" names more than 128 fields' }
  })
  t.equal((await c.get(`/config/node?nodes=m1&fields=${fields(128)}`)).status, 200)
  t.match(await c.post('/config/node?format=csv', `name,${fields(512)}\n`), {
    status: 400,
    body: {
      message: 'the table is refused, nothing was changed: it has 513 columns; at most 512 are allowed'
    }
  })
})

// rules 12.10
t.test('many requests at once do not hold the event loop either', { timeout: 600_000 }, async t => {
  // As many of one client wait; more are asked to come back.
  const many = process.env.SVCD_LONG === '1' ? 128 : 50
  const members = Array.from({ length: 6000 }, (_, i) => `k${i},compute\n`).join('')
  t.equal((await c.post('/config/node?format=csv', `name,group\n${members}`)).status, 200)
  const hostlist = 'node[00001-06000]!node[00001-06000],x[1-5000]'
  const status = { control: { power: { status: { hostlist } } } }
  const table: [what: string, ask: () => ReturnType<typeof c.get>, status: number][] = [
    ['a set', () => c.post('/control/action/power/_status', status, { token: as.viewer }), 404],
    ['members', () => c.get('/config/osimage/compute/_list', { token: as.viewer }), 200],
    ['members by their tag', () => c.get('/config/osimagetag/compute/_list', { token: as.viewer }), 200],
    ['members of a group', () => c.get('/config/group/compute/_list', { token: as.viewer }), 200]
  ]
  for (const [what, ask, status] of table) {
    const ended: string[] = []
    const longest = await longestTurn(async () => {
      const all = Array.from({ length: many }, async () => {
        t.equal((await ask()).status, status, what)
        ended.push(what)
      })
      const boot = c.get('/boot/search/mac/52:54:00:00:00:99', { token: null }).then(() => ended.push('boot'))
      await Promise.all([...all, boot])
    })
    t.ok(longest < 50 + yardstick(), `${what}: ${longest.toFixed(1)} ms in one turn`)
    t.ok(
      ended.indexOf('boot') < many / 2,
      `${what}: a boot script is answered after ${ended.indexOf('boot')}`
    )
  }
})
