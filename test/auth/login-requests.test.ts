import { createHmac } from 'node:crypto'
import t from 'tap'
import { hashPassword } from '../../lib/auth/passwords.js'
import { cheapHash, issuer, passwords, withUsers } from '../support/callers.js'
import { local } from '../support/login.js'
import { complaints } from '../support/routes.js'
import { row } from '../support/rows.js'
import { stored } from '../support/state.js'

const { c, as, firstPassword, firstToken } = await withUsers(t)
let address = 0
/** From an address of its own each time: a failed login does not slow the next. */
// rules 5.4
t.test('a page of another site has no browser guess a password', async t => {
  const source = '198.51.100.200'
  const guess = (headers: Record<string, string>) =>
    c.post('/token', { username: 'admin', password: 'wrong' }, { token: null, source, headers })
  for (const headers of [
    { origin: 'http://evil.example' },
    { origin: 'null' },
    { origin: 'http://controller.example:81', host: 'controller.example' },
    { 'sec-fetch-site': 'cross-site' }
  ])
    t.match(
      await guess(headers),
      { status: 403, body: { message: /a page of another site/ } },
      JSON.stringify(headers)
    )
  for (const headers of [
    {},
    {
      origin: 'https://controller.example:7050',
      host: 'Controller.example:7050',
      'sec-fetch-site': 'same-origin'
    }
  ])
    t.match(await guess(headers), { status: 401 }, JSON.stringify(headers))
})

const login = (body: unknown) => c.post('/token', body, { token: null, source: `198.51.100.${++address}` })

// rules 5.1
t.test('a user of the ini logs in, and the token says no more than who it is', async t => {
  for (const [username, password] of Object.entries(passwords)) {
    const { status, body } = await login({ username, password })
    t.same([status, Object.keys(body)], [201, ['token']])
    t.equal((await c.get('/config/group', { token: body.token })).status, 200)
    t.notMatch(Buffer.from(body.token.split('.')[1], 'base64url').toString(), password)
  }
  t.equal((await c.get('/config/group', { token: as.viewer })).status, 200)
})

t.test('a password is any text, also what answers show for a secret (rules 5.1)', async t => {
  const { overrides } = c
  Object.assign(c, { overrides: [...overrides, `users.star=admin ${cheapHash('********')}`] })
  await c.restart()
  t.equal((await login({ username: 'star', password: '********' })).status, 201)
  t.equal((await login({ username: 'root', password: '********' })).status, 401)
  const { status, body } = await login({ username: 'root', password: ['hidden'] })
  t.same([status, body.message], [400, 'token: field "password" must be a string'])
  Object.assign(c, { overrides })
  await c.restart()
})

// rules 5.4
t.test('wrong credentials are 401, and tell nothing of whether the name is known', async t => {
  const wrong = [
    { username: 'root', password: 'wrong' },
    { username: 'nobody', password: passwords.root },
    { username: 'root', password: passwords.alice },
    { username: 'Root', password: passwords.root },
    { username: 'root ', password: passwords.root },
    { username: 'root', password: `${passwords.root}\0` },
    { username: 'root', password: '' },
    { username: '', password: '' },
    { username: 'constructor', password: 'x' },
    { username: 'toString', password: 'x' },
    { username: 'root', password: 'x'.repeat(8_000) },
    { username: 'x'.repeat(8_000), password: 'x' }
  ]
  const messages = new Set<string>()
  for (const body of wrong) {
    const reply = await login(body)
    t.equal(reply.status, 401, JSON.stringify(body).slice(0, 80))
    messages.add(reply.body.message)
  }
  t.equal(messages.size, 1)
})

t.test('a body that is no login is 400 and names the field', async t => {
  const wrong: [unknown, RegExp][] = [
    [{}, /"username"/],
    [{ username: 'root' }, /"password"/],
    [{ password: 'x' }, /"username"/],
    [{ username: null, password: 'x' }, /"username".*string/],
    [{ username: 5, password: 'x' }, /"username".*string/],
    [{ username: ['root'], password: 'x' }, /"username".*string/],
    [{ username: 'root', password: { $ne: '' } }, /"password".*string/],
    [{ username: 'root', password: 'x', admin: true }, /"admin"/],
    [[], /object/],
    ['"root"', /object/],
    ['username=root&password=x', /JSON/],
    ['', /JSON/]
  ]
  for (const [body, says] of wrong)
    await row(t, c, {
      what: JSON.stringify(body),
      ask: ['POST', '/token', body],
      by: { token: null },
      status: 400,
      says
    })
})

// rules 5.1
t.test('the first password is void once the ini names a user, and so are its tokens', async t => {
  t.equal((await login({ username: 'admin', password: firstPassword })).status, 401)
  t.equal((await c.get('/config/group', { token: firstToken })).status, 401)
})

// rules 5.1, 5.3
t.test('tokens that are not valid', async t => {
  const part = (json: object) => Buffer.from(JSON.stringify(json)).toString('base64url')
  const now = Date.now() / 1000
  const claims = { kind: 'user', sub: 'root', role: 'admin', iat: now, exp: now + 3600 }
  const hs256 = part({ alg: 'HS256', typ: 'JWT' })
  const signedBy = (key: string | Buffer, head: string) =>
    `${head}.${part(claims)}.${createHmac('sha256', key)
      .update(`${head}.${part(claims)}`)
      .digest('base64url')}`
  const [head, payload, signature] = as.admin.split('.') as [string, string, string]
  const hour = 3_600_000
  const [past, future, present] = await Promise.all([issuer(c, -2 * hour), issuer(c, hour), issuer(c)])
  const wrong: Record<string, string> = {
    text: 'garbage',
    'three parts': 'a.b.c',
    'two parts': `${head}.${payload}`,
    'four parts': `${as.admin}.x`,
    'no signature': `${head}.${payload}.`,
    'cut short': as.admin.slice(0, -1),
    'one bit': `${head}.${payload}.${signature.startsWith('A') ? 'B' : 'A'}${signature.slice(1)}`,
    'another payload': `${head}.${part(claims)}.${signature}`,
    'alg none': `${part({ alg: 'none', typ: 'JWT' })}.${part(claims)}.`,
    'the wrong key': signedBy('secret', hs256),
    'an empty key': signedBy('', hs256),
    'another algorithm': `${part({ alg: 'HS512', typ: 'JWT' })}.${payload}.${signature}`,
    'a bearer': `Bearer ${as.admin}`,
    twice: `${as.admin}, ${as.admin}`,
    long: `${as.admin}${'A'.repeat(4000)}`,
    'not ASCII': '\u00e9\u00ff',
    'prototype keys': '__proto__.constructor.toString',
    expired: past.issueUser(local('root', 'admin')),
    'expired, of a node': (await issuer(c, -5 * hour)).issueNode('n1', 0),
    'from the future': future.issueUser(local('root', 'admin')),
    'a user who is not in the ini': present.issueUser(local('mallory', 'admin')),
    'a user with an inherited name': present.issueUser(local('constructor', 'admin')),
    'a node that is not there': present.issueNode('none', 0)
  }
  t.equal(
    (await c.get('/config/group', { token: present.issueUser(local('root', 'admin')) })).status,
    200,
    'the control'
  )
  const before = await stored(c)
  for (const [what, token] of Object.entries(wrong))
    for (const path of [
      '/config/group',
      '/config/osimage',
      '/monitor/node/n1',
      '/boot/roles/web',
      '/boot/install/n1'
    ]) {
      const { status, body } = await c.get(path, { token })
      t.equal(status, 401, `${what}: ${path}`)
      t.type(body.message, 'string')
    }
  t.same(await stored(c), before)
  t.notMatch(c.log.join(''), as.admin)
  t.notMatch(c.log.join(''), passwords.root)
})

// rules 5.2
t.test('what the ini says of a user now counts, not what the token says', async t => {
  const token = (await issuer(c)).issueUser(local('alice', 'admin'))
  t.equal((await c.get('/config/group', { token })).status, 200)
  await row(t, c, {
    what: 'alice is a viewer',
    ask: ['POST', '/config/group/x', {}],
    by: { token },
    status: 403,
    says: /alice \(viewer\)/
  })
})

// rules 5.1
t.test('tokens outlive a restart', async t => {
  await c.restart()
  for (const token of [as.admin, as.viewer]) t.equal((await c.get('/config/group', { token })).status, 200)
  t.equal((await c.post('/monitor/node/n1', { state: 'x' }, { token: as.own })).status, 204)
  t.same(complaints(c), [])
})

// rules 5.1, 5.2
t.test('a hash as svcd prints it logs in; a user who left the ini is out at once', async t => {
  const hash = await hashPassword('opensesame')
  Object.assign(c, {
    overrides: [...c.overrides.filter(line => !line.startsWith('users.root')), `users.carol=admin ${hash}`]
  })
  await c.restart()
  const { status, body } = await login({ username: 'carol', password: 'opensesame' })
  t.equal(status, 201)
  t.equal((await c.post('/config/group/carols', {}, { token: body.token })).status, 201)
  t.equal((await login({ username: 'root', password: passwords.root })).status, 401)
  t.equal((await c.get('/config/group', { token: as.admin })).status, 401)
  t.equal((await c.get('/config/group', { token: as.viewer })).status, 200)
})
