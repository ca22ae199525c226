import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { cheapHash } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { startProvider } from '../support/provider.js'
import { scratch } from '../support/scratch.js'
import { startSlapd } from '../support/slapd.js'
import { clientHere } from '../support/svcctl.js'

// One controller with users of its own, a directory and a provider, over its http interface and by svcctl.

const port = await freePort()
const page = `http://127.0.0.1:${port}`
const directory = scratch(t)
const secretFile = join(directory, 'secret')
writeFileSync(secretFile, 'a secret of svcd\n', { mode: 0o600 })
const slapd = await startSlapd(t)
const provider = await startProvider(t, [page], secretFile)
const settings = [
  `http.listen=127.0.0.1:${port}`,
  `users.root=admin ${cheapHash('correct horse')}`,
  ...[...slapd.settings(slapd.tls), ...provider.settings()]
]
const c = await Controller.start(t, ...settings)
const ours = { origin: page, host: `127.0.0.1:${port}`, 'content-type': 'application/json' }
const post = (path: string, body: object, headers: Record<string, string> = ours) =>
  c.raw('POST', path, JSON.stringify(body), headers)
const login = (username: string, password: string) =>
  c.post('/token', { username, password }, { token: null })
const list = (token: string) => c.get('/config/node', { token })

async function byPage(person: string) {
  const { body: begun } = await post('/auth/oidc', {})
  const back = await provider.browse(begun.url, person)
  return { query: back.search.slice(1), secret: begun.secret as string }
}

// rules 5.10
t.test('users of the directory log in beside those of the ini, and their groups decide', async t => {
  const alice = await login('alice', 'wonderland')
  t.equal(alice.status, 201)
  t.equal((await c.post('/config/group/gpu', {}, { token: alice.body.token })).status, 201)
  const carol = await login('carol', 'choir')
  t.match(await c.post('/config/group/x', {}, { token: carol.body.token }), {
    status: 403,
    body: { code: 'role-not-permitted', message: /ldap:carol/ }
  })
  t.match(await login('carol', 'wrong'), { status: 401, body: { code: 'wrong-password' } })
  t.match(await login('dave', 'nobody'), { status: 401 })
  t.match(await login('root', 'correct horse'), { status: 201 })
})

// rules 5.11
t.test('the page logs in by the provider', async t => {
  t.strictSame((await c.get('/auth', { token: null })).body, { oidc: 'Example SSO' })
  const given = await byPage('alice')
  const { status, body } = await post('/auth/oidc/finish', given)
  t.equal(status, 201)
  t.equal((await list(body.token)).status, 200)
  t.match(await post('/auth/oidc/finish', given), { status: 401, body: { code: 'login-refused' } })
  t.match(await post('/auth/oidc/finish', await byPage('dave')), { status: 403, body: { code: 'no-role' } })
  t.notMatch(c.log.join('\n'), /code=|state=|secret/, 'no line of the log has what finishes a log-in')
})

// rules 5.11
t.test('a device that nobody has agreed to yet is asked again', async t => {
  const { device } = (await post('/auth/device', {})).body
  t.match(await post('/auth/device/finish', { device }), { status: 200, body: { slow: false } })
})

// rules 5.8, 5.11
t.test('a page of another site begins and finishes nothing', async t => {
  const evil = { ...ours, origin: 'https://evil.example' }
  const given = await byPage('alice')
  for (const [path, body] of [
    ['/auth/oidc', {}],
    ['/auth/oidc/finish', given],
    ['/auth/device', {}],
    ['/auth/device/finish', { device: 'x' }]
  ] as const) {
    t.match(await post(path, body, evil), { status: 403, body: { code: 'browser-refused' } })
    t.match(await post(path, body, { ...ours, 'sec-fetch-site': 'cross-site' }), { status: 403 })
  }
  t.match(await post('/auth/oidc', {}, { ...evil, host: 'evil.example' }), {
    status: 403,
    body: { message: /opened at https:\/\/evil\.example, and log-ins by Example SSO begin at http:/ }
  })
  t.match(await post('/auth/oidc', {}, { host: ours.host }), { status: 403 }, 'no browser')
  t.match(await post('/auth/oidc/finish', given), { status: 201 })
})

/** svcctl in this process, with a cache of its own; `told` gets what it says. */
const svcctl = (args: readonly string[], told: (text: string) => void = () => {}, input = '') =>
  clientHere(args, { SVCD_URL: page, XDG_CACHE_HOME: directory }, { told, input })

// rules 5.10, 5.11, 14.1
t.test('svcctl logs in by the directory, and by a browser on another machine', async t => {
  mkdirSync(join(directory, 'svcd'), { recursive: true, mode: 0o700 })
  t.match(await svcctl(['login', 'alice', '--stdin'], undefined, 'wonderland\n'), {
    code: 0,
    stderr: /logged in as alice/
  })
  t.match(await svcctl(['group', 'add', 'more']), { code: 0 })
  const agree = (text: string) => {
    const [, url] = /or open (\S+)/.exec(text) ?? []
    if (url !== undefined) void provider.browse(url, 'bob', { confirm: 'yes' })
  }
  t.match(await svcctl(['login', '--oidc'], agree), {
    code: 0,
    stderr: /^open http\S+\/device and type the code [A-Z]{4}-[A-Z]{4}\nor open \S+\nlogged in as bob at http/
  })
  t.match(await svcctl(['group', 'add', 'other']), { code: 1, stderr: /oidc:bob/ })
  t.match(await svcctl(['login', 'bob', '--oidc']), { code: 2, stderr: /takes no USER/ })
  c.clockMs += 3_700_000
  t.match(await svcctl(['node', 'list']), { code: 1, stderr: /has ended; type: svcctl login --oidc/ })
  c.clockMs = 0
})

// rules 5.10, 5.11
t.test('neither of them answers: others log in, and tokens go on', async t => {
  const { body: ldap } = await login('alice', 'wonderland')
  const { body: oidc } = await post('/auth/oidc/finish', await byPage('alice'))
  await slapd.child.kill()
  provider.instead = (_, response) => response.destroy()
  const given = { query: 'state=x', secret: 'x' }
  // A right login is remembered for a minute, and bob has made none here.
  t.match(await login('bob', 'builder'), {
    status: 503,
    body: { code: 'directory-unavailable', message: /users of the ini can log in/ }
  })
  t.match(await post('/auth/device', {}), {
    status: 503,
    body: { code: 'directory-unavailable', message: /others can log in/ }
  })
  t.match(await post('/auth/oidc/finish', given), { status: 401 })
  t.match(await login('root', 'correct horse'), { status: 201 })
  for (const { token } of [ldap, oidc]) t.equal((await list(token)).status, 200)
  // Without them in the ini, nobody has vouched for these users.
  const [bare] = [c.overrides as string[]]
  const kept = [...bare]
  bare.splice(0, bare.length, ...kept.filter(one => !/^auth\./.test(one)))
  await c.restart()
  for (const { token } of [ldap, oidc]) t.match(await list(token), { status: 401 })
  t.strictSame((await c.get('/auth', { token: null })).body, { oidc: null })
  t.match(await post('/auth/oidc', {}), { status: 404, body: { code: 'no-provider' } })
})
