import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { checkAll } from '../../lib/cli/checks.js'
import { loadConfig } from '../../lib/config/load.js'
import { cheapHash } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { difference, plainFiles, stored } from '../support/state.js'
import { rawFiles } from '../support/stored-texts.js'
import { base64 } from './contract/world.js'

const shipped = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))
const munge = { name: 'munge', path: '/etc/munge/munge.key', content: base64('key of the whole group') }
const host = {
  name: 'host',
  path: '/etc/ssh/ssh_host_key',
  content: base64("host key of n1, 'quoted' $HOME\n")
}
const hidden = (secret: object) => ({ ...secret, content: '********' })

/** Nodes n1 and n2 of a group with a secret; n1 has one of its own. */
async function nodes(t: Test): Promise<Controller> {
  const c = await Controller.start(t)
  await c.cluster()
  for (const name of ['n1', 'n2']) await c.post(`/config/node/${name}`, { group: 'compute' })
  await c.post('/config/secrets/group/compute', [munge])
  await c.post('/config/secrets/node/n1', [host])
  return c
}

const secretsOf = async (c: Controller, owner: string) =>
  (await c.get(`/config/secrets/${owner}`)).body?.config.secrets

/** The install script that a node of the cluster fetches for itself, by its number. */
const script = (c: Controller, number: number) =>
  c.get(`/boot/install/n${number}`, { token: null, source: `10.141.0.${number}` })
async function tokenOf(c: Controller, number: number): Promise<string> {
  const { text } = await script(c, number)
  return /^SVC_TOKEN='([^']+)'$/m.exec(text)?.[1] as string
}

// rules 5.5
t.test('nothing of a secret stands anywhere in the state directory', async t => {
  const c = await nodes(t)
  const plain = randomBytes(60)
  const content = plain.toString('base64')
  await c.post('/config/secrets/node/n2/random', { path: '/etc/random', content })
  await c.post('/config/secrets/node/n2/twin', { path: '/etc/twin', content })
  const state = join(c.directory, 'state')
  await c.written()
  const files = rawFiles(state)
  t.ok(files.has('secrets/node.n2.json') && files.has('audit.log'))
  t.ok(files.get('log/000000000001.wal')?.includes('node.n2'), 'the log is looked at too')
  for (const [name, bytes] of files)
    for (const form of [
      plain,
      content,
      plain.toString('hex'),
      content.slice(4, 40),
      'key of the whole group'
    ])
      t.notOk(bytes.includes(form), `${name} does not hold it`)
  for (const file of ['secrets/node.n2.json', 'secret.key'])
    t.equal(statSync(join(state, file)).mode & 0o777, 0o600, `${file} is its owner's alone`)
  const { secrets } = JSON.parse(readFileSync(join(state, 'secrets/node.n2.json'), 'utf8'))
  t.not(secrets[0].content, secrets[1].content, 'two equal ones do not look equal')
  t.notMatch(c.log.join('\n'), content.slice(4, 40), 'nor in the log')
  await c.restart()
  t.equal((await secretsOf(c, 'node/n2/random')).node.n2[0].content, content, 'it outlives a restart')
})

t.test('a content that was changed on disk is told, and nothing else fails', async t => {
  const c = await nodes(t)
  await c.daemon.close(1000)
  const file = join(c.directory, 'state', 'secrets', 'node.n1.json')
  const doc = JSON.parse(readFileSync(file, 'utf8'))
  const sealed = Buffer.from(doc.secrets[0].content, 'base64')
  sealed[30] = (sealed[30] ?? 0) ^ 1
  doc.secrets[0].content = sealed.toString('base64')
  writeFileSync(file, `${JSON.stringify(doc, null, 2)}\n`)
  await c.restart()
  const { status, body } = await c.get('/config/secrets/node/n1')
  t.equal(status, 503)
  t.match(body.message, /node n1: secret host cannot be decrypted/)
  t.equal((await script(c, 1)).status, 503, 'no install script without it')
  t.equal((await script(c, 2)).status, 200, 'another node installs')
  t.equal((await c.post('/config/secrets/node/n1/host', { content: host.content })).status, 204)
  t.same((await secretsOf(c, 'node/n1')).node.n1, [host], 'given again it is well')
})

// rules 5.5
t.test('no start without the key of the secrets that there are', async t => {
  const c = await nodes(t)
  const before = c.state()
  await c.daemon.close(1000)
  const state = join(c.directory, 'state')
  const key = join(state, 'secret.key')
  renameSync(key, `${key}.away`)
  const refused = /secret\.key is missing, .*secrets of group compute, .*restore it.*remove .*state\/secrets$/
  await t.rejects(c.restart(), { message: refused })
  t.notOk(existsSync(key), 'no new key is made')
  t.same(c.state(), before)
  const { problems } = await checkAll(loadConfig(shipped, [...c.overrides]))
  const told = problems.filter(({ file }) => file === key).map(({ file, message }) => `${file} ${message}`)
  t.match(told, [refused])

  renameSync(`${key}.away`, key)
  await c.restart()
  t.same((await secretsOf(c, 'node/n1')).node.n1, [host], 'the key was restored')

  await c.daemon.close(1000)
  rmSync(key)
  rmSync(join(state, 'secrets'), { recursive: true })
  await c.restart()
  t.same(
    (await c.get('/config/secrets')).body.config.secrets,
    { node: {}, group: {} },
    'the secrets were given up'
  )
  t.equal((await c.post('/config/secrets/node/n1/host', host)).status, 201, 'and others can be given')
})

// rules 5.1
t.test('the key of the tokens is made anew when it is lost: users log in again', async t => {
  const c = await nodes(t)
  await c.daemon.close(1000)
  rmSync(join(c.directory, 'state', 'token.key'))
  await c.restart()
  t.match(c.log.join(''), /info token\.key is new: tokens issued before are void/)
  t.equal((await c.get('/config/node')).status, 401)
  t.equal((await c.get('/config/node', { token: await c.login() })).status, 200)
})

// rules 5.5
t.test('who reads what', async t => {
  const c = await nodes(t)
  const root = cheapHash('a')
  Object.assign(c, { overrides: [...c.overrides, `users.root=admin ${root}`, `users.eve=viewer ${root}`] })
  await c.restart()
  c.token = await c.login('root', 'a')
  const viewer = { token: await c.login('eve', 'a') }
  const node = { token: await tokenOf(c, 1) }
  const own = { node: { n1: [host] }, group: { compute: [munge] } }
  const masked = { node: { n1: [hidden(host)] }, group: { compute: [hidden(munge)] } }
  const rows: [string, object, number, unknown][] = [
    ['', {}, 200, own],
    ['/node/n1', {}, 200, own],
    ['/node/n2', {}, 200, { node: { n2: [] }, group: { compute: [munge] } }],
    ['/node/n1/host', {}, 200, { node: { n1: [host] } }],
    ['/group/compute', {}, 200, { group: { compute: [munge] } }],
    ['', viewer, 200, masked],
    ['/node/n1', viewer, 200, masked],
    ['/node/n1/host', viewer, 200, { node: { n1: [hidden(host)] } }],
    ['/group/compute', viewer, 200, { group: { compute: [hidden(munge)] } }],
    ['/node/n1', node, 200, own],
    ['/node/n1/host', node, 200, { node: { n1: [host] } }],
    ['', node, 403, undefined],
    ['/node/n2', node, 403, undefined],
    ['/node/n2/host', node, 403, undefined],
    ['/group/compute', node, 403, undefined],
    ['/group/compute/munge', node, 403, undefined],
    ['', { token: null }, 401, undefined],
    ['/node/n1', { token: null }, 401, undefined]
  ]
  for (const [path, ask, status, secrets] of rows) {
    const reply = await c.get(`/config/secrets${path}`, ask)
    t.equal(reply.status, status, `${path} ${reply.text}`)
    if (status === 200) t.same(reply.body, { config: { secrets } }, path)
  }
  for (const ask of [viewer, node]) {
    t.equal((await c.post('/config/secrets/node/n1', [host], ask)).status, 403)
    t.equal((await c.get('/config/secrets/node/n1/host/_delete', ask)).status, 403)
  }
  const shown = await c.get('/config/node/n1/_render/install')
  t.notMatch(shown.text, host.content, 'the preview is masked')
})

t.test('GET, then POST of the same: not a byte changes', async t => {
  const c = await nodes(t)
  await c.post('/config/secrets/node/n2', [{ ...host, content: '' }])
  const before = await stored(c)
  for (const path of ['group/compute', 'node/n1', 'node/n2', 'group/compute/munge', 'node/n1/host']) {
    const { text } = await c.get(`/config/secrets/${path}`)
    const { status, text: answer } = await c.post(`/config/secrets/${path}`, text)
    t.equal(status, 204, `${path}: ${answer}`)
  }
  t.same(await stored(c), before, 'not even the ciphertext')
  const { body } = await c.get('/config/secrets/node/n1')
  body.config.secrets.group.compute[0].content = base64('other')
  const changed = await c.post('/config/secrets/node/n1', body)
  t.equal(changed.status, 400, "a group's secret is not changed through its node")
  t.same(await stored(c), before)
})

// rules 5.5
t.test('one POST changes some and adds some, all or none', async t => {
  const c = await nodes(t)
  const before = await plainFiles(c)
  const extra = { name: 'extra', path: '/etc/extra', content: base64('x') }
  const wrong: [unknown, RegExp][] = [
    [[extra, { ...munge, path: 'relative' }], /munge.*"path"/],
    [[extra, { ...munge, path: '/etc/../../x' }], /munge.*"path"/],
    [[extra, extra], /extra is given twice/],
    [[extra, { name: 'none', newsecretname: 'x' }], /none does not exist/],
    [[{ ...extra, newsecretname: 'munge' }], /extra/],
    [[{ ...munge, newsecretname: 'm/x' }], /newsecretname/],
    [[{ path: '/x', content: '' }], /"name" is missing/],
    [[5], /must be an object/],
    [[{ ...extra, content: 'not base64!' }], /"content".*base64/]
  ]
  for (const [body, says] of wrong) {
    const reply = await c.post('/config/secrets/group/compute', body)
    t.ok([400, 404].includes(reply.status), JSON.stringify(body))
    t.match(reply.body.message, says)
    t.notMatch(reply.text, munge.content, 'a content is never repeated')
  }
  t.same(difference(before, await plainFiles(c)), {}, 'nothing changed')
  const body = [{ name: 'munge', content: base64('new'), newsecretname: 'm2' }, extra]
  const reply = await c.post('/config/secrets/group/compute', body)
  t.equal(reply.status, 201)
  t.same((await secretsOf(c, 'group/compute')).group.compute, [
    { name: 'm2', path: munge.path, content: base64('new') },
    extra
  ])
})

t.test('a masked content is no content of a new secret (rules 1.11)', async t => {
  const c = await Controller.start(t)
  await c.post('/config/node/n1', {})
  const before = await stored(c)
  const { status, body } = await c.post('/config/secrets/node/n1/new', { path: '/new', content: '********' })
  t.equal(status, 400)
  t.equal(
    body.message,
    'node n1: secret new: field "content" is masked, and there is no such secret yet: give the content'
  )
  t.same(await stored(c), before)
})

// rules 3.2
t.test('secrets follow a rename of their owner, are copied with a clone, and go with a delete', async t => {
  const c = await nodes(t)
  const start = await stored(c)
  const secretFiles = async () => Object.keys(await stored(c)).filter(path => path.startsWith('secrets/'))
  await c.post('/config/node/n1', { newhostname: 'm1' })
  await c.post('/config/group/compute', { newgroupname: 'big' })
  t.same(await secretsOf(c, 'node/m1'), { node: { m1: [host] }, group: { big: [munge] } })
  t.same((await secretFiles()).sort(), ['secrets/group.big.json', 'secrets/node.m1.json'])
  await c.post('/config/node/m1', { newhostname: 'n1' })
  await c.post('/config/group/big', { newgroupname: 'compute' })
  const back = await stored(c)
  for (const path of ['secrets/node.n1.json', 'secrets/group.compute.json'])
    t.equal(
      JSON.stringify(JSON.parse(back[path] as string).secrets),
      JSON.stringify(JSON.parse(start[path] as string).secrets),
      `${path}: the same ciphertext`
    )

  await c.post('/config/node/n1/_clone', { newhostname: 'n3' })
  await c.post('/config/group/compute/_clone', { newgroupname: 'copy' })
  t.same((await secretsOf(c, 'node/n3')).node.n3, [host])
  t.same((await secretsOf(c, 'group/copy')).group.copy, [munge])
  await c.post('/config/secrets/node/n3/host', { content: base64('its own') })
  t.same((await secretsOf(c, 'node/n1')).node.n1, [host], 'the copy is a copy')

  await c.get('/config/node/n1/_delete')
  await c.get('/config/group/copy/_delete')
  t.same((await secretFiles()).sort(), ['secrets/group.compute.json', 'secrets/node.n3.json'])
  t.equal((await c.get('/config/secrets/node/n1')).status, 404)
  await c.post('/config/node/n1', {})
  t.same(await secretsOf(c, 'node/n1'), { node: { n1: [] } }, 'a later node of that name has none of them')
})

// rules 5.5
t.test('the install script places them, for the node itself alone', async t => {
  const c = await nodes(t)
  const first = await script(c, 1)
  t.equal(first.status, 200)
  for (const { path, content } of [munge, host])
    t.match(first.text, `place_secret '${path}' '${content}'`, 'its own, and its group’s')
  const second = await script(c, 2)
  t.match(second.text, munge.content)
  t.notMatch(second.text, host.content, 'not those of another node')
  const stranger = await c.get('/boot/install/n1', { token: null, source: '10.141.0.9' })
  t.equal(stranger.status, 401)
  t.notMatch(stranger.text, host.content)
  const mine = { ...munge, content: base64('of n2 alone') }
  await c.post('/config/secrets/node/n2', [mine])
  const own = await script(c, 2)
  t.match(own.text, mine.content, 'its own wins')
  t.notMatch(own.text, munge.content, "over its group's of the same name")
  const kickstart = (source: string) => c.get('/kickstart/install/n1', { token: null, source })
  t.match((await kickstart('10.141.0.1')).text, base64(host.content), 'the kickstart too')
  t.notMatch((await kickstart('10.141.0.2')).text, base64(host.content))
})
