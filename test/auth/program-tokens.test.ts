import { createHash, randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parseGrant } from '../../lib/auth/grant.js'
import { ProgramTokens } from '../../lib/auth/program-tokens.js'
import { cheapHash } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { MemoryRecords } from '../support/memory-records.js'
import { until } from '../support/until.js'

const hour = 3_600_000
const viewer = parseGrant('viewer:compute')
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')

async function opened() {
  const clock = { now: 1_700_000_000_000 }
  const records = new MemoryRecords()
  const open = () => ProgramTokens.open(records.opener('tokens'), () => clock.now)
  return { clock, records, open, tokens: await open() }
}

// rules 5.9
t.test('a token has 256 random bits, is stored as its hash, and survives a restart', async t => {
  const { tokens, records, open } = await opened()
  const { text, token } = await tokens.create('prometheus', viewer, null, 'user admin')
  t.match(text, /^svcd_[\w-]{43}$/)
  t.not((await tokens.create('other', viewer, null, 'user admin')).text, text)
  t.strictSame(tokens.verify(text), { name: 'prometheus', grant: viewer })
  const stored = [...records.texts('tokens')].flat().join('\n')
  t.notMatch(stored, text.slice(5))
  t.match(stored, sha256(text))
  t.strictSame((await open()).verify(text), { name: 'prometheus', grant: viewer })
  t.strictSame(
    tokens.list().map(({ name }) => name),
    ['other', 'prometheus']
  )
  t.match(token, { role: 'viewer:compute', by: 'user admin', used: undefined, ends: undefined })
})

t.test('a token ends after its days, and is void once it is revoked', async t => {
  const { tokens, clock, open } = await opened()
  const { text: days } = await tokens.create('days', viewer, 2, 'user admin')
  const { text: endless } = await tokens.create('endless', viewer, null, 'user admin')
  clock.now += 48 * hour - 1
  t.ok(tokens.verify(days))
  clock.now += 1
  t.equal(tokens.verify(days), undefined)
  clock.now += 10_000 * 24 * hour
  t.ok(tokens.verify(endless))
  const revoking = tokens.revoke('endless')
  t.equal(tokens.verify(endless), undefined, 'at once, before it is on the disk')
  await revoking
  t.equal((await open()).verify(endless), undefined)
  await t.rejects(tokens.revoke('endless'), { message: 'there is no token endless' } as Error)
})

t.test('a failed write makes no token, and revokes none', async t => {
  const { tokens, records } = await opened()
  const { text } = await tokens.create('kept', viewer, null, 'user admin')
  records.before = () => {
    throw new Error('the disk is full')
  }
  await t.rejects(tokens.create('new', viewer, null, 'user admin'), /the disk is full/)
  await t.rejects(tokens.revoke('kept'), /the disk is full/)
  t.ok(tokens.verify(text))
  t.strictSame(
    tokens.list().map(({ name }) => name),
    ['kept']
  )
})

t.test('names are given once, at the same time too, and 1,000 is the most', async t => {
  const { tokens } = await opened()
  const make = (name: string) => tokens.create(name, viewer, null, 'user admin')
  const twice = await Promise.allSettled([make('a'), make('a')])
  t.strictSame(twice.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
  await Promise.all(Array.from({ length: 999 }, (_, i) => make(`t${i}`)))
  await t.rejects(make('more'), /there are 1000 tokens, the most: revoke one/)
  await tokens.revoke('t7')
  await make('more')
})

t.test('the last use is stored behind the answer, once in an hour at most', async t => {
  const { tokens, records, clock } = await opened()
  const { text } = await tokens.create('cron', viewer, null, 'user admin')
  const writes = () => records.writes.length
  const before = writes()
  for (let i = 0; i < 1000; i++) tokens.verify(text)
  t.equal(writes(), before, 'nothing waits for it')
  await until(() => writes() === before + 1)
  t.equal(tokens.get('cron').used, clock.now)
  clock.now += hour - 1
  tokens.verify(text)
  clock.now += 1
  tokens.verify(text)
  await tokens.close()
  t.equal(writes(), before + 2)
  t.equal(JSON.parse([...records.texts('tokens').values()][0] ?? '').used, clock.now)
})

t.test('a follower knows the tokens, writes no use, and hears of a revocation', async t => {
  const { tokens, records } = await opened()
  const { text } = await tokens.create('cron', viewer, null, 'user admin')
  records.isReadOnly = true
  let applied = (_name: string, _text?: string) => {}
  const follower = await ProgramTokens.open(async memory => {
    const kept = await records.opener('tokens')(memory)
    applied = (name, text) => (kept as unknown as { applyRemote: typeof applied }).applyRemote(name, text)
    return kept
  }, Date.now)
  const before = records.writes.length
  t.ok(follower.verify(text))
  applied(sha256(text).slice(0, 32))
  t.equal(follower.verify(text), undefined)
  await follower.close()
  t.equal(records.writes.length, before)
})

t.test('wrong tokens are void, whatever they are, and never touch the disk', async t => {
  const { tokens, records } = await opened()
  const { text } = await tokens.create('a', viewer, null, 'user admin')
  const writes = records.writes.length
  const last = text.at(-1) === 'A' ? 'B' : 'A'
  const hostile = [
    ...['', 'svcd_', text.slice(0, -1), `${text}A`, `${text.slice(0, -1)}${last}`, text.slice(5)],
    ...[text.toUpperCase(), ` ${text}`, `${text}\n`, `${text.slice(0, -1)}\0`, `Bearer ${text}`],
    ...[`${text.slice(0, -1)}é`, 'svcd_'.padEnd(48, '\ud800'), 'svcd_'.padEnd(48, '__proto__')],
    ...['__proto__', 'constructor', sha256(text), sha256(text).slice(0, 32), 'svcd_'.padEnd(1e7, 'A')]
  ]
  for (const wrong of hostile) t.equal(tokens.verify(wrong), undefined, wrong.slice(0, 60))
  for (let i = 0; i < 10_000; i++)
    if (tokens.verify(`svcd_${randomBytes(32).toString('base64url')}`)) t.fail('a random token')
  await tokens.close()
  t.equal(records.writes.length, writes)
})

t.test('a record that is no token is reported, and counts as none', async t => {
  const { tokens, records } = await opened()
  const { text, token } = await tokens.create('good', viewer, null, 'user admin')
  const key = sha256(text).slice(0, 32)
  const damaged = [
    { ...token, hash: sha256('x') },
    { ...token, hash: 7 },
    { ...token, role: 'root' },
    { ...token, role: 'admin:compute' },
    { ...token, ends: 'never' },
    {}
  ]
  for (const one of damaged) {
    records.texts('tokens').set(key, `${JSON.stringify(one)}\n`)
    const reports: string[] = []
    const open = records.opener('tokens', (_, reason) => reports.push(reason))
    const again = await ProgramTokens.open(open, Date.now)
    t.equal(again.verify(text), undefined, JSON.stringify(one))
    t.equal(reports.length, 1)
  }
})

const hash = cheapHash('correct horse')
const c = await Controller.start(t, `users.root=admin ${hash}`, `users.olga=operator ${hash}`)
const [root, olga] = [await c.login('root', 'correct horse'), await c.login('olga', 'correct horse')]
c.token = root
const make = (name: string, body: object = { role: 'viewer' }, token = root) =>
  c.post(`/config/token/${name}`, body, { token })

// rules 5.9
t.test('admins make, list and revoke them over http; a list does not hold them', async t => {
  const made = await make('prometheus', { role: 'viewer:compute', days: 30 })
  t.equal(made.status, 201)
  const { token, config } = made.body
  const shown = config.token.prometheus
  t.match(shown, { name: 'prometheus', role: 'viewer:compute', by: 'user root', used: null })
  t.equal(Date.parse(shown.ends) - Date.parse(shown.created), 30 * 24 * hour)
  t.match(await make('prometheus'), { status: 400, body: { code: 'already-exists' } })
  const envelope = { config: { token: { cron: { role: 'admin' } } } }
  const cron = (await make('cron', envelope)).body.token
  const listed = await c.get('/config/token')
  t.strictSame(Object.keys(listed.body.config.token), ['cron', 'prometheus'])
  t.match((await c.get('/config/token?format=csv&fields=name,role')).text, 'prometheus,viewer:compute')
  t.match((await c.get('/config/token/cron')).body, { config: { token: { cron: { ends: null } } } })
  for (const text of [listed.text, (await c.get('/monitor/audit')).text, c.log.join('\n')])
    for (const secret of [token, cron, sha256(token)]) t.notMatch(text, secret)
  t.match((await c.get('/monitor/audit')).text, /"type":"token".*"name":"cron"/)

  t.equal((await c.get('/config/group', { token: cron })).status, 200)
  t.equal((await c.get('/config/cluster', { token })).status, 403, 'it is limited to its groups')
  await c.post('/config/group/compute', {}, { token: cron })
  t.match((await c.get('/monitor/audit')).text, /"user":"token:cron"|"who":"user token:cron"|token:cron/)
  const own = [make('more', { role: 'viewer' }, cron), c.get('/config/token/cron/_delete', { token: cron })]
  for (const answer of await Promise.all(own))
    t.match(answer, { status: 403, body: { message: /the token of program cron may not do this: log in/ } })
  for (const asked of ['/config/token', '/config/token/cron', '/config/token/cron/_delete'])
    t.equal((await c.get(asked, { token: olga })).status, 403, asked)
  t.equal((await make('hers', { role: 'viewer' }, olga)).status, 403)

  t.equal((await c.get('/config/token/cron/_delete')).status, 204)
  t.equal((await c.get('/config/group', { token: cron })).status, 401)
  t.equal((await c.get('/config/token/cron/_delete')).status, 404)
  const { body } = await c.post('/config/token/days?dryrun=yes', { role: 'viewer' })
  t.match(body.message, /dryrun/, 'there is no dry run that would make one')
})

t.test('what is asked for is checked', async t => {
  const wrong: [string, object, RegExp][] = [
    ['x', {}, /"role"/],
    ['x', { role: 'root' }, /token x: field "role" must be admin, operator or viewer/],
    ['x', { role: 'admin:compute' }, /field "role" must not limit admin to groups/],
    ['x', { role: 'viewer:' }, /field "role" names the group ""/],
    ['x', { role: 'viewer', days: 0 }, /"days" must be an integer from 1 to 3650/],
    ['x', { role: 'viewer', days: 1e9 }, /"days"/],
    ['x', { role: 'viewer', name: 'y' }, /"name"/],
    ['__proto__', { role: 'viewer' }, /token "__proto__": a name must be/],
    ['a%20b', { role: 'viewer' }, /a name must be/],
    ['x'.repeat(64), { role: 'viewer' }, /a name must be/]
  ]
  for (const [name, body, says] of wrong) {
    const answer = await make(name, body)
    t.match(answer, { status: 400, body: { message: says } }, JSON.stringify(body))
  }
  t.equal((await make('constructor')).status, 201)
  t.equal((await c.get('/config/token/toString')).status, 404)
})

t.test('the state has hashes alone, mode 0600, and a restart knows them', async t => {
  const { token } = (await make('kept')).body
  await c.restart()
  c.token = root
  t.equal((await c.get('/config/group', { token })).status, 200)
  await until(async () => (await c.get('/config/token/kept')).body.config.token.kept.used !== null)
  const directory = join(c.directory, 'state', 'tokens')
  const files = readdirSync(directory)
  t.ok(files.includes(`${sha256(token).slice(0, 32)}.json`), files.join())
  for (const file of files) {
    t.equal(statSync(join(directory, file)).mode & 0o777, 0o600)
    t.notMatch(readFileSync(join(directory, file), 'utf8'), token)
  }
})

// rules 2.20, 5.9
t.test('a stream ends when its token is revoked', async t => {
  const { token } = (await make('follower', { role: 'operator:compute' })).body
  const headers = { Authorization: `Bearer ${token}` }
  const url = `http://127.0.0.1:${c.daemon.port}/monitor/events`
  const { body, status } = await fetch(url, { headers })
  t.equal(status, 200)
  const ended = (async () => {
    for await (const _ of body ?? []);
  })()
  await c.get('/config/token/follower/_delete')
  let isOver = false
  ended.then(() => {
    isOver = true
  })
  await c.post('/config/group/compute', {})
  await c.post('/config/node/streamed', { group: 'compute' })
  await until(async () => {
    await c.post('/monitor/node/streamed', { state: `at ${performance.now()}` })
    return isOver
  })
})

// rules 5.9
t.test('users and programs may send their token as Authorization: Bearer', async t => {
  const { token } = (await make('scraper')).body
  const status = async (headers: Record<string, string>) =>
    (await c.get('/metrics', { token: null, headers })).status
  for (const one of [token, root, olga])
    for (const scheme of ['Bearer', 'bearer', 'BEARER  ']) {
      t.equal(await status({ Authorization: `${scheme} ${one}` }), 200, scheme)
      t.equal(await status({ Authorization: `${scheme} ${one}`, 'x-access-tokens': one }), 200)
    }
  t.equal(await status({ Authorization: `Bearer ${token}`, 'x-access-tokens': root }), 401, 'two tokens')
  t.equal(await status({ Authorization: 'Bearer garbage', 'x-access-tokens': root }), 401)
  for (const wrong of ['Bearer garbage', `Bearer ${token}x`, `Bearer ${token}, ${token}`, 'Bearer a b'])
    t.equal(await status({ Authorization: wrong }), 401, wrong)
  for (const none of ['', 'Bearer', 'Bearer ', `Basic ${btoa(`x:${token}`)}`, token, `Token ${token}`])
    t.equal(await status({ Authorization: none }), 401, none)
  t.equal(await status({ Authorization: 'Basic eDp5', 'x-access-tokens': root }), 200, 'not looked at')
})
