import crypto, { scryptSync } from 'node:crypto'
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import t from 'tap'
import { type Login, parseGrant } from '../../lib/auth/grant.js'
import { adminPasswordFile, type Directory, ensureAdminPassword, Logins } from '../../lib/auth/logins.js'
import { hashPassword, type User } from '../../lib/auth/passwords.js'
import { unavailable } from '../../lib/base/errors.js'
import { local } from '../support/login.js'
import { proof } from '../support/proof.js'
import { scratch } from '../support/scratch.js'

/**
 * The passwords in the order in which their checks began. The order in which they end depends on how the
 * system schedules the threads.
 */
const begun: string[] = []
const { scrypt } = crypto
crypto.scrypt = ((password: string, ...rest: unknown[]) => {
  begun.push(password)
  return Reflect.apply(scrypt, crypto, [password, ...rest])
}) as typeof scrypt
syncBuiltinESMExports()

// Cheap, so that a test can ask often; svcd passwd prints dearer ones.
const hashOf = (password: string) => {
  const salt = Buffer.alloc(16, password)
  const key = scryptSync(password, salt, 32, { N: 2, r: 1, p: 1 })
  return `$scrypt$N=2,r=1,p=1$${salt.toString('base64url')}$${key.toString('base64url')}`
}
const users: User[] = [
  { name: 'alice', role: 'admin', hash: hashOf('wonder') },
  { name: 'bob', role: 'viewer', hash: hashOf('builder') }
]

function logins(options: Partial<ConstructorParameters<typeof Logins>[0]> = {}) {
  const clock = { now: 1_000_000 }
  const waited: number[] = []
  const made = new Logins({
    users,
    adminPasswordFile: '/nonexistent/admin-password',
    ...options,
    now: () => clock.now,
    delay: async ms => void waited.push(ms)
  })
  return { logins: made, clock, waited }
}

t.test('the right password gives user and role, nothing else does', async t => {
  const { logins: l } = logins()
  t.strictSame(await l.login('alice', 'wonder', '10.0.0.1'), local('alice', 'admin'))
  t.strictSame(await l.login('bob', 'builder', '10.0.0.1'), local('bob', 'viewer'))
  const wrong: [string, string][] = [
    ['alice', 'builder'],
    ['alice', ''],
    ['Alice', 'wonder'],
    ['', 'wonder'],
    ['carol', 'wonder'],
    ['__proto__', 'wonder'],
    ['admin', ''],
    ['alice', 'wonder\0'],
    ['alice', 'x'.repeat(50_000_000)],
    ['x'.repeat(50_000_000), 'wonder']
  ]
  for (const [user, password] of wrong)
    t.equal(
      await l.login(user, password, '10.0.0.1'),
      undefined,
      `${user.slice(0, 20)} ${password.slice(0, 20)}`
    )
})

// rules 5.2
t.test('for users of the ini, grants follow the ini and not the token', async t => {
  const { logins: l } = logins({
    users: [...users, { name: 'eve', ...parseGrant('operator:a,b'), hash: '' }]
  })
  const role = (from: Logins, user: string) => from.grantOf(local(user, 'viewer:x'))?.role
  t.equal(role(l, 'alice'), 'admin')
  t.equal(role(l, 'bob'), 'viewer')
  t.strictSame(l.grantOf(local('eve', 'admin'))?.groups, ['a', 'b'])
  t.equal(role(l, 'admin'), undefined, 'the first admin is gone once the ini names a user')
  for (const name of ['constructor', '__proto__', '']) t.equal(role(l, name), undefined, name)
  t.equal(role(logins({ users: [] }).logins, 'admin'), 'admin')
  t.equal(role(logins({ users: [] }).logins, 'alice'), undefined)
})

/** A directory of carol, whom it also knows under other spellings, and of a namesake of alice. */
const directory = (asked: string[] = []): Directory => ({
  source: 'ldap',
  login: async (name, password) => {
    asked.push(`${name} ${password}`)
    const user = name.toLowerCase()
    if (password === 'down') throw unavailable('the directory does not answer')
    return password === 'secret' && ['carol', 'alice'].includes(user)
      ? { user, grant: parseGrant('operator:compute') }
      : undefined
  }
})

// rules 5.1, 5.4
t.test('a directory is asked for names that the ini does not have, under the same limits', async t => {
  const asked: string[] = []
  const { logins: l, waited, clock } = logins({ directory: directory(asked) })
  const carol = { ...local('carol', 'operator:compute'), source: 'ldap' }
  t.strictSame(await l.login('Carol', 'secret', '10.0.0.1'), carol)
  t.strictSame(await l.login('Carol', 'secret', '10.0.0.1'), carol)
  t.equal(asked.length, 1, 'a right login is remembered for a minute')
  t.equal(await l.login('Carol', 'other', '10.0.0.1'), undefined, 'with its password alone')
  clock.now += 60_000
  t.ok(await l.login('Carol', 'secret', '10.0.0.1'))
  t.equal(asked.length, 3)
  t.strictSame(await l.login('alice', 'wonder', '10.0.0.1'), local('alice', 'admin'))
  t.equal(await l.login('alice', 'secret', '10.0.0.1'), undefined, 'the ini alone decides about its names')
  t.equal(await l.login('ALICE', 'secret', '10.0.0.1'), undefined, 'in any spelling of the directory')
  await t.rejects(l.login('carol', 'down', '10.0.0.1'), /does not answer/)
  for (let n = 0; n < 8; n++) await l.login('carol', `wrong ${n}`, '10.0.0.9')
  t.strictSame(waited.slice(-4), [250, 500, 750, 1000], 'failures slow an address down')
  t.equal(await l.login('admin', 'secret', '10.0.0.2'), undefined)
})

t.test('a directory that hangs does not hold up users of the ini, and has a bounded queue', async t => {
  const answers: (() => void)[] = []
  const hanging: Directory = {
    source: 'ldap',
    login: () => new Promise(resolve => answers.push(() => resolve(undefined)))
  }
  const { logins: l } = logins({ directory: hanging })
  let refused = 0
  const guesses = Array.from({ length: 600 }, (_, n) =>
    l.login('carol', `guess ${n}`, `10.1.${n >> 8}.${n & 255}`).catch(() => void refused++)
  )
  await new Promise(setImmediate)
  t.equal(answers.length, 8, 'questions at once')
  t.strictSame(await l.login('alice', 'wonder', '10.2.0.1'), local('alice', 'admin'))
  t.equal(refused, 600 - 500 - 8)
  let isOver = false
  const ended = Promise.all(guesses).then(() => {
    isOver = true
  })
  while (!isOver) {
    for (const answer of answers.splice(0)) answer()
    await new Promise(setImmediate)
  }
  await ended
})

// rules 5.2
t.test(
  'tokens of a directory count by what they say while it is configured, whoever the ini has',
  async t => {
    const carol = { ...local('alice', 'operator:compute'), source: 'ldap' } as const
    const role = (options: Parameters<typeof logins>[0], login: Login) =>
      logins(options).logins.grantOf(login)
    t.strictSame(role({ directory: directory() }, carol), { role: 'operator', groups: ['compute'] })
    t.strictSame(role({ sources: ['oidc'] }, { ...carol, source: 'oidc' })?.groups, ['compute'])
    t.equal(role({ directory: directory() }, { ...carol, source: 'oidc' }), undefined)
    t.equal(role({}, carol), undefined)
  }
)

// rules 5.4
t.test('an unknown user costs the same check as a known one', async t => {
  const real = await hashPassword('wonder')
  const { logins: l } = logins({ users: [{ name: 'alice', role: 'admin', hash: real }] })
  const cost = async (user: string) => {
    const before = process.cpuUsage()
    t.equal(await l.login(user, `wrong ${Math.random()}`, '10.0.0.1'), undefined)
    const { user: spent, system } = process.cpuUsage(before)
    return spent + system
  }
  // The least of several, as other work in this process can only add. A skipped check is a thousandth.
  const least = async (user: string) => Math.min(await cost(user), await cost(user), await cost(user))
  const [known, unknown] = [await least('alice'), await least('nobody')]
  t.ok(known / unknown < 3 && unknown / known < 3, `${known} µs known, ${unknown} µs unknown`)
})

// rules 5.4
t.test('after failures an address waits, is never refused, and others do not wait', async t => {
  const { logins: l, waited, clock } = logins()
  for (let count = 0; count < 10; count++) await l.login(count % 2 ? 'alice' : 'nobody', 'wrong', '10.0.0.1')
  t.strictSame(waited, [250, 500, 750, 1000, 1000, 1000])
  t.strictSame(await l.login('bob', 'builder', '10.0.0.2'), local('bob', 'viewer'))
  t.equal(waited.length, 6)
  t.strictSame(await l.login('alice', 'wonder', '10.0.0.1'), local('alice', 'admin'), 'slow, not refused')
  t.equal(waited.length, 7)
  clock.now += 60_000
  await l.login('alice', 'wrong', '10.0.0.1')
  t.equal(waited.length, 7, 'forgiven after a minute')
  await l.login('x'.repeat(1000), 'y', '10.0.0.3')
  for (let count = 0; count < 4; count++) await l.login('alice', 'x'.repeat(5000), '10.0.0.3')
  t.equal(waited.length, 8, 'refused unlooked at counts as failed')
})

// rules 5.4
t.test('guessers from many addresses do not hold up one who has not failed, and have a bound', async t => {
  const { logins: l } = logins()
  const guess = (i: number, n: number) => l.login('alice', `${n} ${i}`, `10.1.${n}.${i}`)
  // Each has failed once, unlooked at.
  for (let i = 0; i < 250; i++) await l.login('alice', 'x'.repeat(5000), `10.1.1.${i}`)
  const refused: Error[] = []
  begun.length = 0
  const guesses = Array.from({ length: 250 }, (_, i) =>
    guess(i, 1).catch((error: Error) => void refused.push(error))
  )
  await new Promise(setImmediate)
  t.strictSame(await l.login('alice', 'wonder', '10.2.0.1'), local('alice', 'admin'))
  const checked = begun.indexOf('wonder')
  proof('guessers from many addresses', {
    tried: 250,
    note: `${checked} guesses were looked at before the right login`
  })
  t.ok(checked >= 0 && checked <= 4, `${checked} guesses were looked at before`)
  await Promise.all(guesses)
  t.equal(refused.length, 250 - 100 - 2)
  t.match(refused[0], { status: 503, message: /too many logins wait/, headers: { 'Retry-After': '10' } })
})

// rules 5.4
t.test(
  'an address from which somebody has logged in goes before hundreds that nothing is known of',
  async t => {
    const { logins: l } = logins()
    t.ok(await l.login('alice', 'wonder', '10.2.0.1'))
    begun.length = 0
    let refused = 0
    const guesses = Array.from({ length: 600 }, (_, i) =>
      l.login('alice', `guess ${i}`, `10.1.${i >> 8}.${i & 255}`).catch(() => void refused++)
    )
    await new Promise(setImmediate)
    // Another password of hers, so that it has to be checked.
    t.equal(await l.login('alice', 'wonders', '10.2.0.1'), undefined)
    const checked = begun.indexOf('wonders')
    t.ok(checked >= 0 && checked <= 4, `${checked} guesses were looked at before`)
    t.ok(await l.login('alice', 'wonder', '127.0.0.1'))
    await Promise.all(guesses)
    t.equal(refused, 600 - 500 - 2)
  }
)

t.test('a verified login is remembered for a minute, with this password only', async t => {
  const real = await hashPassword('wonder')
  const { logins: l, clock } = logins({ users: [{ name: 'alice', role: 'admin', hash: real }] })
  const cpu = async (password: string) => {
    const before = process.cpuUsage()
    await l.login('alice', password, '10.0.0.1')
    const { user, system } = process.cpuUsage(before)
    return user + system
  }
  const check = await cpu('wonder')
  const times = 200
  const before = process.cpuUsage()
  for (let count = 0; count < times; count++)
    t.strictSame(await l.login('alice', 'wonder', '10.0.0.1'), local('alice', 'admin'))
  const { user, system } = process.cpuUsage(before)
  t.ok((user + system) / times < check / 5, `${(user + system) / times} µs remembered, ${check} µs checked`)
  t.equal(await l.login('alice', 'wonder ', '10.0.0.1'), undefined)
  t.ok((await cpu('wonder')) < check / 2, 'a failure does not make it forgotten')
  clock.now += 60_000
  t.ok((await cpu('wonder')) > check / 3, 'checked again after a minute')
  clock.now -= 30_000
  t.ok((await cpu('wonder')) > check / 3, 'and when the clock was set back')
})

t.test('a thousand logins at once: equal ones share a check, others wait their turn', async t => {
  const real = await hashPassword('wonder')
  const { logins: l } = logins({ users: [{ name: 'alice', role: 'admin', hash: real }, ...users.slice(1)] })
  const before = process.memoryUsage().rss
  let most = before
  const sampler = setInterval(() => {
    most = Math.max(most, process.memoryUsage().rss)
  }, 5)
  const cpuBefore = process.cpuUsage()
  const equal = await Promise.all(Array.from({ length: 1000 }, () => l.login('alice', 'wonder', '10.0.0.1')))
  const { user, system } = process.cpuUsage(cpuBefore)
  t.ok(equal.every(login => login?.user === 'alice'))
  const cpuOne = process.cpuUsage()
  await l.login('alice', 'other', '10.0.0.1')
  const one = process.cpuUsage(cpuOne)
  t.ok(user + system < 5 * (one.user + one.system), `${user + system} µs for a thousand`)

  begun.length = 0
  const different = Promise.all(
    Array.from({ length: 12 }, (_, n) => l.login('alice', `wrong ${n}`, '10.0.0.1'))
  )
  await readFile('/proc/version')
  t.ok(begun.length < 6, `files are read meanwhile, after ${begun.length} of 12 checks`)
  t.ok(await l.login('alice', 'wonder', '10.0.0.2'))
  await l.login('alice', 'wrong', '10.0.0.3')
  const place = begun.indexOf('wrong')
  t.ok(place >= 0 && place < 10, `and another address has its turn, after ${place} of 12 checks`)
  t.ok((await different).every(login => login === undefined))
  clearInterval(sampler)
  t.ok(most - before < 8 * 16 * 1024 * 1024, `${(most - before) / 1024 / 1024} MiB more`)
})

// rules 5.1
t.test('the first admin: made once, 0600, alone on a line, valid while the ini names nobody', async t => {
  const state = join(t.testdir(), 'new', 'state')
  const file = adminPasswordFile(state)
  t.strictSame(
    await Promise.all([1, 2, 3, 4].map(() => ensureAdminPassword(file))).then(made => made.filter(Boolean)),
    [true]
  )
  const text = readFileSync(file, 'utf8')
  t.match(text, /^[\w-]{24}\n$/)
  t.equal(statSync(file).mode & 0o777, 0o600)
  const { mtimeNs } = statSync(state, { bigint: true })
  t.equal(await ensureAdminPassword(file), false, 'the second start')
  t.equal(statSync(state, { bigint: true }).mtimeNs, mtimeNs, 'which needs no writable directory')
  t.equal(readFileSync(file, 'utf8'), text)

  const { logins: l } = logins({ users: [], adminPasswordFile: file })
  t.strictSame(await l.login('admin', text.trim(), '10.0.0.1'), local('admin', 'admin'))
  t.equal(await l.login('admin', text, '10.0.0.1'), undefined, 'the line end is no part of it')
  t.equal(await l.login('alice', text.trim(), '10.0.0.1'), undefined)
  t.equal(await l.login('admin', 'wrong', '10.0.0.1'), undefined)
  const named = logins({ adminPasswordFile: file })
  t.equal(
    await named.logins.login('admin', text.trim(), '10.0.0.1'),
    undefined,
    'ignored once the ini names a user'
  )
})

t.test('a changed file counts at once, an empty or missing one lets nobody in', async t => {
  const file = join(t.testdir({ 'admin-password': 'first\n' }), 'admin-password')
  const { logins: l } = logins({ users: [], adminPasswordFile: file })
  t.ok(await l.login('admin', 'first', '10.0.0.1'))
  writeFileSync(file, 'second\r\n')
  t.equal(await l.login('admin', 'first', '10.0.0.1'), undefined, 'though remembered')
  t.ok(await l.login('admin', 'second', '10.0.0.1'))
  for (const text of ['', '\n', '\nsecond\n']) {
    writeFileSync(file, text)
    t.equal(await l.login('admin', '', '10.0.0.1'), undefined)
    t.equal(await l.login('admin', 'second', '10.0.0.1'), undefined)
    await t.rejects(ensureAdminPassword(file), {
      message: `${file} holds no password: remove it, and the next start makes a new one`
    })
  }
  rmSync(file)
  t.equal(await l.login('admin', 'second', '10.0.0.1'), undefined)
  t.equal(await l.login('admin', '', '10.0.0.1'), undefined)
})

// rules 5.4
t.test('logins in flight from hundreds of networks keep nobody out', async t => {
  const { logins: l } = logins()
  const guesses = Array.from({ length: 700 }, (_, n) =>
    l.login('alice', `guess ${n}`, `10.${1 + (n % 3)}.${Math.floor(n / 3)}.1`).catch(() => undefined)
  )
  await new Promise(setImmediate)
  const right = l.login('alice', 'wonder', '10.9.1.1').catch((error: Error) => error.message)
  const more = Array.from({ length: 1400 }, (_, n) =>
    l.login('alice', `more ${n}`, `10.${4 + (n % 5)}.${Math.floor(n / 7)}.1`).catch(() => undefined)
  )
  t.strictSame(await right, local('alice', 'admin'))
  await Promise.all([...guesses, ...more])
})

// rules 5.4
t.test('hundreds of logins in flight, each from a new address, keep nobody out', async t => {
  const { logins: l, clock } = logins()
  let isOver = false
  let guessed = 0
  let refused = 0
  /**
   * Each of 600 guesses again as soon as it is answered, from an address that nobody had before, of three
   * networks.
   */
  const guesser = async (i: number) => {
    for (let n = i; !isOver; n += 600) {
      const address = `10.${1 + (n % 3)}.0.${n % 256}`.replace('.0.', `.${(n >> 8) % 2}.`)
      await l.login('alice', `guess ${n}`, address).then(
        () => guessed++,
        () => refused++
      )
      await new Promise(setImmediate)
    }
  }
  const guessers = Array.from({ length: 600 }, (_, i) => guesser(i))
  await new Promise(setImmediate)
  for (let i = 1; i <= 12; i++) {
    // It is remembered for a minute.
    clock.now += 60_001
    t.strictSame(
      await l.login('alice', 'wonder', `10.9.${i}.1`).catch((error: Error) => error.message),
      local('alice', 'admin'),
      `the right login ${i} of 12`
    )
  }
  isOver = true
  await Promise.all(guessers)
  t.ok(refused > 100, `${guessed} guesses were looked at, ${refused} were refused`)
})

// rules 5.4
t.test('addresses of right logins outlive a restart, in a file without secrets', async t => {
  const knownNetworksFile = join(scratch(t), 'logins.json')
  const { logins: first } = logins({ knownNetworksFile })
  for (const address of ['10.2.0.1', '2001:db8::1', '10.2.0.2', '10.2.0.1'])
    t.ok(await first.login('alice', 'wonder', address))
  await first.login('alice', 'wrong', '10.2.0.3')
  t.notOk(existsSync(knownNetworksFile), 'a login does not write')
  await first.close()
  t.equal(statSync(knownNetworksFile).mode & 0o777, 0o600)
  t.same(JSON.parse(readFileSync(knownNetworksFile, 'utf8')), ['8193:3512:0:0', '10.2.0.2', '10.2.0.1'])
  const { logins: next } = logins({ knownNetworksFile })
  let checked = 0
  // Each of a network of its own: nobody has more than another.
  const guesses = Array.from({ length: 600 }, (_, i) =>
    next.login('alice', `guess ${i}`, `10.${3 + (i >> 8)}.${i & 255}.1`).then(
      () => checked++,
      () => undefined
    )
  )
  await new Promise(setImmediate)
  t.ok(await next.login('alice', 'wonder', '10.2.0.1'))
  t.ok(checked <= 4, `${checked} guesses were looked at before`)
  await Promise.all(guesses)
  for (const damaged of ['', '[', '{"a":1}', 'null', '[1,null,{"a":"b"},"x y","10.2.0.9"]', '7']) {
    writeFileSync(knownNetworksFile, damaged)
    const { logins: again } = logins({ knownNetworksFile })
    t.ok(await again.login('alice', 'wonder', '10.2.0.1'), damaged)
    await again.close()
  }
  t.same(JSON.parse(readFileSync(knownNetworksFile, 'utf8')), ['10.2.0.1'])
  const many = Array.from({ length: 5000 }, (_, i) => `10.3.${i >> 8}.${i & 255}`)
  writeFileSync(knownNetworksFile, JSON.stringify(many))
  const { logins: last } = logins({ knownNetworksFile })
  await last.login('alice', 'wonder', '10.2.0.1')
  await last.close()
  t.same(
    JSON.parse(readFileSync(knownNetworksFile, 'utf8')),
    [...many.slice(-999), '10.2.0.1'],
    'the last 1,000'
  )
})
