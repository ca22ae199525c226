import { createHmac, createSign, generateKeyPairSync } from 'node:crypto'
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Tokens } from '../../lib/auth/tokens.js'
import { local } from '../support/login.js'
import { proof } from '../support/proof.js'

const hour = 3_600_000

async function opened(test: Test, state = join(test.testdir(), 'state')) {
  const clock = { now: 1_795_155_123_457 }
  const open = () => Tokens.open(state, { now: () => clock.now, lifetimeMs: hour, nodeLifetimeMs: 4 * hour })
  const key = () => readFileSync(join(state, 'token.key'))
  return { state, clock, open, key, tokens: await open() }
}

const b64 = (value: object | string) =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url')
const sign = (key: Uint8Array, text: string, hash = 'sha256') =>
  createHmac(hash, key).update(text).digest('base64url')

t.test('what is issued is verified, with its times in milliseconds', async t => {
  const { tokens, clock } = await opened(t)
  const issuedAt = clock.now
  t.strictSame(tokens.verify(tokens.issueUser(local('alice', 'viewer'))), {
    kind: 'user',
    ...local('alice', 'viewer'),
    issuedAt,
    expiresAt: issuedAt + hour
  })
  const groups = Array.from({ length: 32 }, (_, i) => `${i}`.padEnd(63, 'x'))
  const longest = { ...local('ü'.repeat(256), `operator:${groups}`), source: 'oidc' } as const
  t.match(tokens.verify(tokens.issueUser(longest)), longest, 'the longest names fit')
  t.strictSame(tokens.verify(tokens.issueNode('node001', 0)), {
    kind: 'node',
    node: 'node001',
    generation: 0,
    issuedAt,
    expiresAt: issuedAt + 4 * hour
  })
  for (let ms = 0; ms < 1000; ms++, clock.now++)
    if (tokens.verify(tokens.issueNode('n', 0))?.issuedAt !== clock.now) t.fail(`${clock.now} was rounded`)
  t.match(
    tokens.issueNode('n', 0),
    /^[\w-]+\.[\w-]+\.[\w-]{43}$/,
    'three parts, fit for a header and a script'
  )
})

// rules 5.1
t.test('expired and future tokens are void', async t => {
  const { tokens, clock } = await opened(t)
  const token = tokens.issueUser(local('alice', 'admin'))
  const node = tokens.issueNode('node001', 0)
  clock.now += hour - 1
  t.ok(tokens.verify(token))
  clock.now += 1
  t.equal(tokens.verify(token), undefined)
  t.ok(tokens.verify(node))
  clock.now += 3 * hour
  t.equal(tokens.verify(node), undefined)
  const future = tokens.issueUser(local('alice', 'admin'))
  clock.now -= 60_000
  t.ok(tokens.verify(future), 'a clock may be set back a little')
  clock.now -= 1
  t.equal(tokens.verify(future), undefined)
})

// rules 5.1
t.test('the key is made once, 0600, and outlives a restart', async t => {
  const { state, open, key, tokens } = await opened(t)
  const token = tokens.issueUser(local('alice', 'admin'))
  const first = key()
  t.equal(first.length, 32)
  t.equal(statSync(join(state, 'token.key')).mode & 0o777, 0o600)
  t.equal(statSync(state).mode & 0o777, 0o700)
  t.ok((await open()).verify(token))
  t.strictSame(key(), first)
  t.strictSame(readdirSync(state), ['token.key'], 'nothing half made is left')
})

t.test('first starts at the same time agree on one key', async t => {
  const state = join(t.testdir(), 'state')
  const options = { now: () => 5, lifetimeMs: hour, nodeLifetimeMs: hour }
  const all = await Promise.all(Array.from({ length: 16 }, () => Tokens.open(state, options)))
  const token = all[0]?.issueNode('n', 0) ?? ''
  t.ok(all.every(tokens => tokens.verify(token)))
})

t.test('a damaged key stops the start, says so, and is left as it was', async t => {
  const { state, open, key } = await opened(t)
  for (const bytes of [Buffer.alloc(0), Buffer.alloc(31), Buffer.alloc(33)]) {
    writeFileSync(join(state, 'token.key'), bytes)
    await t.rejects(open(), {
      message: new RegExp(`^${state}/token\\.key is damaged \\(${bytes.length} bytes, not 32\\)`)
    })
    t.strictSame(key(), bytes)
  }
})

// rules 11.6
t.test(
  'a key of zeros, one that others may read, or in a directory that others may write, stops the start',
  async t => {
    const { state, open } = await opened(t)
    const file = join(state, 'token.key')
    const bytes = readFileSync(file)
    writeFileSync(file, Buffer.alloc(32))
    await t.rejects(open(), {
      message: `${file} is damaged (all bytes are alike): restore it, or remove it, which voids every token`
    })
    writeFileSync(file, bytes)
    chmodSync(file, 0o644)
    await t.rejects(open(), {
      message: `${file} has mode 0644: others than its owner may read it; give it mode 0600 (chmod 0600 ${file})`
    })
    chmodSync(file, 0o600)
    chmodSync(state, 0o777)
    await t.rejects(open(), {
      message: `${state} has mode 0777: others than its owner may replace the key in it; give it mode 0700 (chmod 0700 ${state})`
    })
    chmodSync(state, 0o755)
    await open()
    proof('token key and directories that others can write', { tried: 3, note: 'each stops the start' })
  }
)

t.test('tokens of another daemon are void', async t => {
  const ours = await opened(t)
  const theirs = await opened(t, join(ours.state, 'other'))
  t.equal(ours.tokens.verify(theirs.tokens.issueUser(local('alice', 'admin'))), undefined)
})

t.test('forgeries', async t => {
  const { tokens, clock, key } = await opened(t)
  const user = tokens.issueUser(local('alice', 'viewer'))
  const node = tokens.issueNode('node001', 0)
  const [header = '', payload = '', signature = ''] = user.split('.')
  const now = clock.now / 1000
  const claims = { kind: 'user', sub: 'alice', role: 'admin', iat: now, exp: now + 3600 }
  const forged = (head: object | string, body: object | string, hash?: string) =>
    `${b64(head)}.${b64(body)}.${sign(key(), `${b64(head)}.${b64(body)}`, hash)}`
  const real = { alg: 'HS256', typ: 'JWT' }
  t.ok(tokens.verify(forged(real, claims)), 'the forger of this test can make a valid one')

  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const rs = `${b64({ alg: 'RS256', typ: 'JWT' })}.${b64(claims)}`
  const publicPem = publicKey.export({ type: 'spki', format: 'pem' })
  const void_: Record<string, string> = {
    'alg none, no signature': `${b64({ alg: 'none', typ: 'JWT' })}.${b64(claims)}.`,
    'alg None, our signature': forged({ alg: 'None', typ: 'JWT' }, claims),
    'our header, no signature': `${b64(real)}.${b64(claims)}.`,
    'HS512 with our key': forged({ alg: 'HS512', typ: 'JWT' }, claims, 'sha512'),
    RS256: `${rs}.${createSign('sha256').update(rs).sign(privateKey, 'base64url')}`,
    'HS256 with a public key as the key': `${b64(real)}.${b64(claims)}.${sign(Buffer.from(publicPem), `${b64(real)}.${b64(claims)}`)}`,
    'a key named in the header': forged({ ...real, kid: '/dev/null' }, claims),
    'the header in another order': forged({ typ: 'JWT', alg: 'HS256' }, claims),
    'the header with white space': forged('{ "alg":"HS256","typ":"JWT"}', claims),
    'another payload, this signature': `${header}.${b64(claims)}.${signature}`,
    'the signature of another token': `${header}.${payload}.${node.split('.')[2]}`,
    'a signature cut short': user.slice(0, -1),
    'a signature with more behind it': `${user}A`,
    'four parts': `${user}.${signature}`,
    'two parts': `${header}.${payload}`,
    'another spelling of the last sextet': respelled(user),
    padding: `${user}=`,
    'white space': ` ${user}`,
    'line end': `${user}\n`,
    NUL: `${user}\0`,
    'a letter whose low byte is right': user.replace(/.$/, last =>
      String.fromCharCode(0x100 + last.charCodeAt(0))
    ),
    'lone surrogates': `${header}.${payload}.${'\ud800'.repeat(43)}`,
    empty: '',
    dots: '..',
    Bearer: `Bearer ${user}`,
    oversized: `${header}.${'A'.repeat(50_000_000)}.${signature}`,
    'oversized and signed': forged(real, { ...claims, sub: 'a'.repeat(2000) }),
    'no kind': forged(real, { ...claims, kind: undefined }),
    'kind of a prototype': forged(real, { ...claims, kind: 'constructor' }),
    'a source that is none': forged(real, { ...claims, src: 'token' }),
    'an admin of groups': forged(real, { ...claims, role: 'admin:compute' }),
    'a group that is none': forged(real, { ...claims, role: 'viewer:' }),
    'a role that is none': forged(real, { ...claims, role: 'root' }),
    'no role': forged(real, { ...claims, role: undefined }),
    'a subject that is no text': forged(real, { ...claims, sub: ['alice'] }),
    'times that are no numbers': forged(real, { ...claims, exp: '9999999999' }),
    'no expiry': forged(real, { ...claims, exp: undefined }),
    endless: forged(real, JSON.stringify({ ...claims, exp: 0 }).replace('"exp":0', '"exp":null')),
    null: forged(real, 'null'),
    'not JSON': forged(real, 'x')
  }
  for (const [what, token] of Object.entries(void_)) t.equal(tokens.verify(token), undefined, what)
})

/** The last of 43 base64 letters carries two bits that mean nothing. */
function respelled(token: string): string {
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  const last = letters.indexOf(token.slice(-1))
  const other = `${token.slice(0, -1)}${letters[last ^ 1]}`
  const bytes = (text: string) => Buffer.from(text.split('.')[2] ?? '', 'base64url').toString('hex')
  if (other === token || bytes(other) !== bytes(token)) throw new Error('not the same signature')
  return other
}

t.test('every single changed letter voids a token', async t => {
  const { tokens } = await opened(t)
  const token = tokens.issueNode('node001', 0)
  for (let at = 0; at < token.length; at++) {
    const changed = `${token.slice(0, at)}${token[at] === 'A' ? 'B' : 'A'}${token.slice(at + 1)}`
    if (changed !== token && tokens.verify(changed)) t.fail(`letter ${at}`)
  }
  t.ok(tokens.verify(token))
})

t.test('a token that was good is looked at anew each time: it ends, and none like it is good', async t => {
  const { tokens, clock } = await opened(t)
  const token = tokens.issueNode('node001', 3)
  const claims = tokens.verify(token)
  t.equal(claims?.kind, 'node')
  t.strictSame(tokens.verify(token), claims)
  t.equal(
    tokens.verify(`${token.slice(0, -2)}${token.endsWith('AA') ? 'BB' : 'AA'}`),
    undefined,
    'another signature'
  )
  t.equal(tokens.verify(`${token}=`), undefined, 'another spelling')
  clock.now += 4 * hour
  t.equal(tokens.verify(token), undefined, 'expired')
  clock.now -= 4 * hour + 61_000
  t.equal(tokens.verify(token), undefined, 'issued in the future')
})

t.test('what is remembered of tokens has a bound', async t => {
  const { tokens } = await opened(t)
  const many = Array.from({ length: 30_000 }, (_, i) => tokens.issueNode(`node${i}`, 0))
  for (const token of many) if (!tokens.verify(token)) t.fail(token)
  t.equal(tokens.remembered, 10_000)
  t.ok(tokens.verify(many[0] ?? ''), 'one that is forgotten is good all the same')
})
