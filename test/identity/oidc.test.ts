import { createHmac, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { createLog } from '../../lib/base/log.js'
import { loadConfig } from '../../lib/config/load.js'
import { openIdentity } from '../../lib/identity/identity.js'
import type { Oidc } from '../../lib/identity/oidc.js'
import { startProvider } from '../support/provider.js'
import { scratch } from '../support/scratch.js'

const ini = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))
const page = 'http://10.141.255.254:7050'
const secretFile = join(scratch(t), 'secret')
writeFileSync(secretFile, 'a secret of svcd\n', { mode: 0o600 })
const provider = await startProvider(t, [page], secretFile)

async function open(...more: string[]) {
  const log: string[] = []
  const clock = { now: Date.now(), ticks: 0 }
  const { oidc } = await openIdentity(loadConfig(ini, [...provider.settings(), ...more]), {
    log: createLog('info', line => log.push(line)),
    now: () => clock.now,
    ticks: () => clock.ticks,
    key: Buffer.alloc(32, 7)
  })
  return { oidc: oidc as Oidc, log, clock }
}
const me = '10.0.0.1'
const begin = (oidc: Oidc) => oidc.begin(page, me)
/** Begins a log-in, and goes on as this person; returns the query of the page, and the browser's secret. */
async function visit(oidc: Oidc, person: string) {
  const { url, secret } = await begin(oidc)
  const back = await provider.browse(url, person)
  return { back, query: back.search.slice(1), secret }
}
const refused = { status: 401, code: 'login-refused' }

// rules 5.11
t.test('code flow: a person logs in with the role of a group', async t => {
  const { oidc } = await open()
  const { searchParams } = new URL((await begin(oidc)).url)
  t.match(Object.fromEntries(searchParams), { code_challenge_method: 'S256', response_type: 'code' })
  const { back, query, secret } = await visit(oidc, 'alice')
  t.equal(back.origin, page)
  t.strictSame(await oidc.finish(query, secret, me), {
    ...{ user: 'alice', grant: { role: 'admin' }, source: 'oidc' }
  })
  await t.rejects(oidc.finish(query, secret, me), refused, 'a second time')
  const bob = await visit(oidc, 'bob')
  t.match(await oidc.finish(bob.query, bob.secret, me), { grant: { role: 'operator', groups: ['gpu'] } })
  const dave = await visit(oidc, 'dave')
  const noRole = { status: 403, code: 'no-role', message: /dave/ }
  await t.rejects(oidc.finish(dave.query, dave.secret, me), noRole)
})

// rules 5.11
t.test(
  'another controller with the same key finishes what one has begun, and the code counts once',
  async t => {
    const [one, other, third] = [await open(), await open(), await open()]
    const { query, secret } = await visit(one.oidc, 'alice')
    t.match(await other.oidc.finish(query, secret, me), { user: 'alice' })
    await t.rejects(third.oidc.finish(query, secret, me), refused, 'the provider refuses the code')
    t.match(third.log.join(), /a log-in by Example SSO is refused: invalid_grant/)
  }
)

// rules 5.11
t.test('a log-in of another browser, another time, another maker: nobody asks the provider', async t => {
  const { oidc, clock } = await open()
  const { back, query, secret } = await visit(oidc, 'alice')
  const asked = provider.asked.length
  const state = back.searchParams.get('state') ?? ''
  const [text = '', proof = ''] = state.split('.')
  const other = JSON.parse(Buffer.from(text, 'base64url').toString())
  other.content[2] = 'https://evil.example'
  const forged = Buffer.from(JSON.stringify(other)).toString('base64url')
  const withState = (changed: string) =>
    `code=x&iss=${encodeURIComponent(provider.issuer)}&state=${encodeURIComponent(changed)}`
  for (const [what, given, by] of [
    ['the secret of another browser', query, (await begin(oidc)).secret],
    ['no secret', query, ''],
    ['no state', 'code=x', secret],
    ['an invented state', withState('e30.x'), secret],
    ['a changed state', withState(`${forged}.${proof}`), secret],
    ['a state with a shorter proof', withState(`${text}.${proof.slice(1)}`), secret],
    ['two states', `state=x&${query}`, secret]
  ] as const)
    await t.rejects(oidc.finish(given, by, me), refused, what)
  clock.now += 600_001
  await t.rejects(oidc.finish(query, secret, me), refused, 'too late')
  clock.now -= 700_000
  await t.rejects(oidc.finish(query, secret, me), refused, 'from the future')
  t.equal(provider.asked.length, asked)
  await t.rejects(oidc.begin('https://evil.example', me), {
    ...refused,
    status: 403,
    code: 'browser-refused'
  })
  await t.rejects(oidc.finishDevice(state, me), refused, 'a state is no device')
})

// rules 5.11
t.test('an answer of another issuer, or an error, is refused', async t => {
  const { oidc } = await open()
  const { back, secret } = await visit(oidc, 'alice')
  back.searchParams.set('iss', 'https://evil.example')
  await t.rejects(oidc.finish(back.search.slice(1), secret, me), refused, 'mix-up')
  const begun = await begin(oidc)
  const state = new URL(begun.url).searchParams.get('state') ?? ''
  const no = new URLSearchParams({ error: 'access_denied', state, iss: provider.issuer }).toString()
  await t.rejects(oidc.finish(no, begun.secret, me), { ...refused, message: /access_denied/ })
  const [stolen, mine] = [await visit(oidc, 'bob'), await begin(oidc)]
  stolen.back.searchParams.set('state', new URL(mine.url).searchParams.get('state') ?? '')
  const theirs = stolen.back.search.slice(1)
  await t.rejects(oidc.finish(theirs, mine.secret, me), refused, "a stolen code in one's own log-in")
})

// rules 5.11
t.test('device flow', async t => {
  const { oidc } = await open()
  const begun = await oidc.beginDevice(me)
  t.match(begun, {
    user_code: /^[A-Z]{4}-[A-Z]{4}$/,
    verification_uri: `${provider.issuer}/device`,
    interval: 5
  })
  t.equal(await oidc.finishDevice(begun.device, me), 'pending')
  await provider.browse(begun.verification_uri_complete ?? '', 'bob', { confirm: 'yes' })
  t.match(await oidc.finishDevice(begun.device, me), { user: 'bob', source: 'oidc' })
  await t.rejects(oidc.finishDevice(begun.device, me), refused, 'a second time')
  const own = Buffer.from(JSON.stringify({ content: [Date.now() + 1000, 'code'] })).toString('base64url')
  await t.rejects(oidc.finishDevice(`${own}.x`, me), refused)
})

// rules 5.11
t.test('a provider that does not do what it should: 503, and it rests', async t => {
  const unanswered = { status: 503, code: 'directory-unavailable' }
  const answers = {
    'an empty object': (_, response) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}'),
    'no JSON': (_, response) => response.end('<html>'),
    'another issuer': (_, response) =>
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end('{"issuer":"https://evil.example"}'),
    'too much': (_, response) => {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(Buffer.alloc(600_000, ' '))
    },
    'a redirect': (_, response) => response.writeHead(302, { location: 'http://169.254.169.254/' }).end(),
    'the end': (_, response) => response.destroy(),
    'plain http in its endpoints': (_, response) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end(
        JSON.stringify({
          issuer: provider.issuer,
          authorization_endpoint: 'http://evil.example/',
          token_endpoint: 'http://evil.example/'
        })
      ),
    'a script as its page': (_, response) =>
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ issuer: provider.issuer, authorization_endpoint: 'javascript:alert(1)' }))
  } satisfies Record<string, typeof provider.instead>
  for (const [what, instead] of Object.entries(answers)) {
    const { oidc, log, clock } = await open()
    provider.instead = instead
    await t.rejects(begin(oidc), unanswered, what)
    t.match(log.join(), /a log-in fails: \[auth\] oidc_issuer: http:/, what)
    provider.instead = undefined
    clock.ticks += 5001
    await begin(oidc)
  }
  const { oidc } = await open('auth.oidc_issuer=http://127.0.0.1:1')
  await t.rejects(begin(oidc), unanswered)
  t.match(await oidc.fault(), /^\[auth\] oidc_issuer: http:\/\/127\.0\.0\.1:1: connect ECONNREFUSED/)
})

const encoded = (json: object) => Buffer.from(JSON.stringify(json)).toString('base64url')
function signed(claims: object, key: KeyObject, header: object = { alg: 'RS256' }): string {
  const text = `${encoded(header)}.${encoded(claims)}`
  return `${text}.${sign('sha256', Buffer.from(text), key).toString('base64url')}`
}

// rules 5.11
t.test('an ID token that the provider has not made for this log-in logs nobody in', async t => {
  const other = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey
  const publicText = createPublicKey(provider.key).export({ format: 'pem', type: 'spki' })
  const second = Math.floor(Date.now() / 1000)
  const good = (nonce: string) => ({
    ...{ iss: provider.issuer, sub: 'alice', aud: 'svcd', nonce, iat: second, exp: second + 60 },
    ...{ preferred_username: 'alice', groups: ['svcd-admins'] }
  })
  const own = (nonce: string, changed: object) => signed({ ...good(nonce), ...changed }, provider.key)
  const tokens: Record<string, (nonce: string) => string> = {
    'the right one': nonce => own(nonce, {}),
    'another key': nonce => signed(good(nonce), other),
    'no signature': nonce => `${encoded({ alg: 'none' })}.${encoded(good(nonce))}.`,
    'the public key as a secret': nonce => {
      const text = `${encoded({ alg: 'HS256' })}.${encoded(good(nonce))}`
      return `${text}.${createHmac('sha256', publicText).update(text).digest('base64url')}`
    },
    'a key of its own': nonce =>
      signed(good(nonce), other, { alg: 'RS256', jwk: createPublicKey(other).export({ format: 'jwk' }) }),
    'another nonce': nonce => own(nonce, { nonce: 'other' }),
    'no nonce': nonce => own(nonce, { nonce: undefined }),
    'for another client': nonce => own(nonce, { aud: 'other' }),
    'of another issuer': nonce => own(nonce, { iss: 'https://evil.example' }),
    'that has ended': nonce => own(nonce, { exp: second - 60 }),
    'without an end': nonce => own(nonce, { exp: undefined }),
    'a name that is none': nonce => own(nonce, { preferred_username: 'a\u202eb' }),
    'a name that is a list': nonce => own(nonce, { preferred_username: ['alice'] }),
    'no text': () => 'x.y.z'
  }
  t.teardown(() => provider.only.clear())
  for (const [what, make] of Object.entries(tokens)) {
    const { oidc } = await open()
    const { url, secret } = await begin(oidc)
    const { searchParams } = new URL(url)
    const state = searchParams.get('state') ?? ''
    const id_token = make(searchParams.get('nonce') ?? '')
    provider.only.set('/token', (_, response) =>
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ access_token: 'a', token_type: 'Bearer', expires_in: 60, id_token }))
    )
    const query = new URLSearchParams({ code: 'c', state, iss: provider.issuer }).toString()
    const done = oidc.finish(query, secret, me)
    if (what === 'the right one') t.match(await done, { user: 'alice', grant: { role: 'admin' } })
    else await t.rejects(done, { name: 'ServiceError' }, what)
  }
})

// rules 5.11
t.test('a wrong secret of svcd is said in the log, and not to the stranger', async t => {
  const file = join(scratch(t), 'secret')
  writeFileSync(file, 'another\n', { mode: 0o600 })
  const { oidc, log } = await open(`auth.oidc_client_secret_file=${file}`)
  const { query, secret } = await visit(oidc, 'alice')
  await t.rejects(oidc.finish(query, secret, me), { status: 503, code: 'directory-unavailable' })
  t.match(log.join(), /\[auth\] oidc_client_id: \S+ refuses svcd, or oidc_client_secret_file/)
  t.notMatch(log.join(), /another/)
})

// rules 5.11
t.test('a network begins so many log-ins in a minute', async t => {
  const { oidc, clock } = await open()
  for (let i = 0; i < 60; i++) await begin(oidc)
  await t.rejects(begin(oidc), { status: 503, code: 'busy' })
  await oidc.begin(page, '10.0.1.1')
  clock.ticks += 60_000
  await begin(oidc)
})

// rules 5.11
t.test('what the provider says of itself and its keys are asked for once', async t => {
  const { oidc, clock } = await open()
  const from = provider.asked.length
  const count = (path: string) => provider.asked.slice(from).filter(one => one === `GET ${path}`).length
  for (const person of ['alice', 'bob']) {
    const { query, secret } = await visit(oidc, person)
    await oidc.finish(query, secret, me)
  }
  t.equal(count('/.well-known/openid-configuration'), 1)
  t.equal(count('/jwks'), 1)
  clock.ticks += 3_600_001
  await begin(oidc)
  t.equal(count('/.well-known/openid-configuration'), 2)
})
