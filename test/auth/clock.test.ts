import { createHmac } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { scriptToken, withUsers } from '../support/callers.js'
import type { Controller } from '../support/controller.js'
import { proof } from '../support/proof.js'
import { until } from '../support/until.js'

const hour = 3_600_000
const day = 24 * hour
const { c } = await withUsers(t)
const password = 'correct horse'
let tried = 0

/**
 * Sets the clock of the daemon, which voids the admin's token where it is set back: the admin logs in again.
 */
async function setClock(ms: number): Promise<void> {
  c.clockMs = ms
  c.token = await c.login('root', password)
}

/** What a node's own report is answered. */
const report = async (token: string, node = 'n1') => {
  tried++
  return (await c.post(`/monitor/node/${node}`, { state: 'installer.test' }, { token })).status
}

/** A token as an earlier version issued it: without a generation. */
function earlierToken(c: Controller, node: string, issuedMs: number): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const times = { iat: issuedMs / 1000, exp: issuedMs / 1000 + 4 * 3600 }
  const text = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({ kind: 'node', sub: node, ...times })}`
  const key = readFileSync(join(c.directory, 'state', 'token.key'))
  return `${text}.${createHmac('sha256', key).update(text).digest('base64url')}`
}

async function makeAnew(name = 'n1'): Promise<string> {
  t.equal((await c.get(`/config/node/${name}/_delete`)).status, 204)
  t.equal((await c.post(`/config/node/${name}`, { group: 'compute' })).status, 201)
  return scriptToken(c, name)
}

// rules 4.8
t.test(
  'a node made anew has a token that is good, and the old one is void, however the clock was set',
  async t => {
    let old = await scriptToken(c, 'n1')
    for (const ms of [0, -day, day, -30 * day, 400 * day, -hour]) {
      await setClock(ms)
      const fresh = await makeAnew()
      t.equal(await report(fresh), 204, `set to ${ms / day} days: the new one`)
      t.equal(await report(old), 401, `set to ${ms / day} days: the old one`)
      await c.restart()
      t.equal(await report(fresh), 204, 'after a restart')
      old = fresh
    }
    await setClock(0)
    t.equal(await report(old), 204, 'a token lives on when the clock is put right')
  }
)

t.test('the same after a rename there and back', async t => {
  const old = await scriptToken(c, 'n1')
  await setClock(-day)
  await c.post('/config/node/n1', { newhostname: 'm1' })
  await c.post('/config/node/m1', { newhostname: 'n1' })
  t.equal(await report(old), 401)
  t.equal(await report(await scriptToken(c, 'n1')), 204)
  await setClock(0)
  t.equal(await report(old), 401, 'also when the clock is right again')
})

t.test(
  'tokens and marks of an earlier version go by the time, until the tokens are voided again',
  async t => {
    const file = join(c.directory, 'state', 'revoked', 'n1.json')
    const at = Date.now() - 60_000
    await c.restart(() => writeFileSync(file, `${JSON.stringify({ name: 'n1', at }, null, 2)}\n`))
    const good = earlierToken(c, 'n1', at + 1)
    t.equal(await report(good), 204, 'issued after the mark')
    t.equal(await report(earlierToken(c, 'n1', at)), 401, 'issued before it')
    t.equal(await report(earlierToken(c, 'n2', at), 'n2'), 204, 'a node without a mark')
    t.equal(await report(await scriptToken(c, 'n1')), 204, 'and one of this version')
    await setClock(-hour)
    const fresh = await makeAnew()
    await setClock(0)
    t.equal(await report(good), 401)
    t.equal(await report(earlierToken(c, 'n1', Date.now())), 401, 'no generation is not this generation')
    t.equal(await report(fresh), 204)
  }
)

// rules 5.1
t.test(
  "a user's token from the future is void, and so is one whose time is over; a new login works at once",
  async t => {
    const asked = async (token: string) => (await c.get('/config/group', { token })).status
    const first = c.token
    await setClock(-day)
    t.equal(await asked(first), 401)
    t.equal(await asked(c.token), 200)
    const back = c.token
    await setClock(day)
    t.equal(await asked(c.token), 200)
    t.equal(await asked(back), 401)
    await setClock(0)
    t.equal(await asked(first), 200, 'the clock is right again: so is the token')
  }
)

// rules 5.4
t.test('guessers wait, however the clock is set', async t => {
  const source = '192.0.2.77'
  const guess = async (word: string) => {
    const from = performance.now()
    t.equal(
      (await c.post('/token', { username: 'root', password: word }, { token: null, source })).status,
      401
    )
    return performance.now() - from
  }
  for (const word of ['a', 'b', 'c', 'd']) await guess(word)
  for (const ms of [day, -day]) {
    c.clockMs = ms
    t.ok((await guess(`at ${ms}`)) >= 240, 'the fifth and the sixth are delayed')
  }
  await setClock(0)
})

// rules 2.9
t.test('records of requests stay when the clock goes back, and go 7 days after their end', async t => {
  const ids = async () => Object.keys((await c.get('/monitor/request')).body.monitor.request)
  const { id } = await c.daemon.jobs.submit({
    ...{ kind: 'pack', object: 'OS image compute', by: 'user root', lanes: [] },
    run: async () => {}
  })
  await c.idle()
  for (const [ms, kept] of [
    [-day, true],
    [6 * day, true],
    [8 * day, false]
  ] as const) {
    c.clockMs = ms
    await c.restart()
    await setClock(ms)
    // Old ones are removed in the background.
    if (!kept) await until(async () => !(await ids()).includes(id))
    t.equal((await ids()).includes(id), kept, `${ms / day} days`)
  }
  await setClock(0)
})

t.teardown(() => proof('clock set back and forward', { tried, crashes: 0 }))
