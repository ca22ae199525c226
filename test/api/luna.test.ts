import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Remote } from '../../lib/helper/transfer/remote.js'
import { makeSystem, requireNode, startNode } from '../image/node.js'
import { makeTree } from '../image/small-tree.js'
import { Controller, type Reply } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { Gate } from '../support/jobs.js'
import { scratch } from '../support/scratch.js'
import { clientHere } from '../support/svcctl.js'
import { until } from '../support/until.js'
import { pretended } from './contract/services.js'

requireNode()

// One daemon that speaks the dialect of luna's client, and one that does not; both have a node with an ssh
// server.
const port = await freePort()
const directory = scratch(t)
const remote = new Remote({ state: directory, sshKey: '', sshPort: port })
await remote.prepare()
const root = join(directory, 'node')
await makeSystem(root, readFileSync(remote.publicKey, 'utf8'))
await startNode(t, root, [], port)
const open = async (...more: string[]) => {
  const ssh = [`ssh.port=${port}`, `ssh.key=${remote.publicKey.replace(/\.pub$/, '')}`]
  const c = await Controller.start(t, ...ssh, ...pretended(scratch(t)), ...more)
  makeTree(join(c.directory, 'images', 'compute'))
  return c
}
const on = await open('http.dialect=luna')
const off = await open()

const base64 = (text: string) => Buffer.from(text).toString('base64')
/** The same request to both. */
const post = async (path: string, body: unknown) => [await on.post(path, body), await off.post(path, body)]
const get = async (path: string) => [await on.get(path), await off.get(path)]
const codes = (replies: Reply[]) => replies.map(({ status }) => status)
/** Fields of an object, as both show it. */
const shown = async (type: string, name: string) =>
  (await get(`/config/${type}/${name}`)).map(({ body }) => body?.config?.[type][name])
/** Both have it then. */
const made = async (path: string, body: object = {}) => {
  for (const { status, text } of await post(path, body))
    if (status !== 201) throw new Error(`${path}: ${text}`)
}

await made('/config/network/loop', { network: '127.0.0.0/8' })
await made('/config/network/net', { network: '10.141.0.0/16' })
await made('/config/osimage/compute', { distribution: 'debian' })
await made('/config/group/compute', { osimage: 'compute' })
await made('/config/group/loop', {
  osimage: 'compute',
  interfaces: [{ interface: 'BOOTIF', network: 'loop' }]
})
await made('/config/node/l1', { group: 'loop' })
await made('/config/bmcsetup/boards', { userid: 3 })

// rules 2.17
t.test('what svcctl sends is taken as it is: it says that it does not speak the dialect', async t => {
  const env = { SVCD_URL: `http://127.0.0.1:${on.daemon.port}`, XDG_CACHE_HOME: scratch(t) }
  const svcctl = async (args: readonly string[], input = '') => {
    const { code, stdout, stderr } = await clientHere(args, env, { input })
    t.equal(code, 0, stdout + stderr)
  }
  await svcctl(['login', '--stdin'], readFileSync(join(on.directory, 'state', 'admin-password'), 'utf8'))
  await svcctl(['bmcsetup', 'set', 'boards', 'comment=VUVGSQ=='])
  t.equal((await on.get('/config/bmcsetup/boards')).body.config.bmcsetup.boards.comment, 'VUVGSQ==')
  await svcctl(['node', 'set', 'l1', 'comment=ends'])
  t.equal((await on.get('/config/node/l1')).body.config.node.l1.comment, 'ends')
  await post('/config/bmcsetup/boards', { comment: '' })
  await post('/config/node/l1', { comment: '' })
})

// rules 2.17
t.test(
  'in an answer no object comes before the first list: the client never ends on such a list',
  async t => {
    await made('/config/node/v1', { group: 'compute', variables: { rack: '7' } })
    for (const type of ['node', 'group']) {
      const { body } = await on.get(`/config/${type}`)
      for (const [name, fields] of Object.entries<Record<string, unknown>>(body.config[type])) {
        const nested = Object.values(fields).filter(value => typeof value === 'object' && value !== null)
        t.ok(nested.length >= 3 && Array.isArray(nested[0]), `${type} ${name}`)
      }
    }
    await post('/config/node/v1/_delete', {})
  }
)

// rules 2.17
t.test('changes and deletes of networks and BMC set-ups answer 204', async t => {
  const changed = await post('/config/network/net', { config: { network: { net: { comment: 'ours' } } } })
  t.same(codes(changed), [204, 200])
  t.equal(changed[0]?.text, '')
  t.same(
    (await shown('network', 'net')).map(net => net.comment),
    ['ours', 'ours']
  )
  t.same(codes(await post('/config/network/net', { newnetname: 'other' })), [204, 200], 'renamed')
  t.same(codes(await post('/config/network/other/_clone', { newnetname: 'copy' })), [204, 204])
  t.same(codes(await get('/config/network/copy/_delete')), [204, 201])
  await post('/config/network/other/_clone', { newnetname: 'copy' })
  t.same(codes(await post('/config/network/copy/_delete', {})), [204, 201])
  t.same(await shown('network', 'copy'), [undefined, undefined])
  t.same(codes(await post('/config/bmcsetup/boards', { userid: 4 })), [204, 200])
  t.same(
    (await shown('bmcsetup', 'boards')).map(boards => boards.userid),
    [4, 4]
  )
  t.same(codes(await post('/config/bmcsetup/boards/_clone', { newbmcname: 'copy' })), [201, 201])
  t.same(codes(await get('/config/bmcsetup/copy/_delete')), [204, 204])
  t.same(codes(await get('/config/network/other')), [200, 200], 'one that is read is')
  const refused = await post('/config/network/other', { network: 'none' })
  t.same(codes(refused), [400, 400])
  t.equal(refused[0]?.text, refused[1]?.text)
})

t.test('new interfaces of a group answer 204', async t => {
  const body = { config: { group: { compute: { interfaces: [{ interface: 'BOOTIF', network: 'loop' }] } } } }
  t.same(codes(await post('/config/group/compute/interfaces', body)), [204, 201])
  t.same(codes(await post('/config/group/compute/interfaces', body)), [204, 204], 'a change')
  t.match((await shown('group', 'compute'))[0], { interfaces: [{ interface: 'BOOTIF', network: 'loop' }] })
})

t.test('pack, kernel and the clone of an image answer at once, with a request to follow', async t => {
  const one = '/config/osimage/compute'
  const work = {
    pack: (c: Controller) => c.get(`${one}/_pack`),
    kernel: (c: Controller) => c.post(`${one}/kernel`, { kernelversion: '6.1.0-9' }),
    clone: (c: Controller) => c.post(`${one}/_clone`, { newosimage: 'copy' })
  }
  for (const [kind, ask] of Object.entries(work))
    for (const c of [on, off]) {
      // While the image is busy, only the dialect has an answer.
      const gate = new Gate('gate', ['osimage compute'])
      await c.daemon.jobs.submit(gate.spec)
      await gate.began
      let answered = false
      const asked = ask(c).finally(() => {
        answered = true
      })
      const job = () => c.daemon.jobs.records().find(job => job.kind === kind && job.state === 'queued')
      await until(() => job() !== undefined)
      const id = job()?.id
      if (c === on) t.match(await asked, { status: 200, body: { message: 'queued', request_id: id } }, kind)
      t.equal(answered, c === on, kind)
      // One is done, the others would take a while for nothing.
      const isDone = kind === 'pack' && c === on
      if (!isDone) await c.get(`/config/status/${id}/_cancel`)
      gate.end()
      const { status } = await asked
      if (c === off) t.equal(status, 503, kind)
      await c.idle()
      // Until 404, as the client asks.
      const path = `/config/status/${id}`
      t.match((await c.get(path)).body, { state: isDone ? 'done' : 'failed', message: /./ })
      t.equal((await c.get(path)).status, 404)
    }
  t.match((await shown('osimage', 'compute'))[0], { imagefile: /./ })
  t.equal((await on.get('/config/osimage/none/_pack')).status, 404, 'what is known at once is told at once')
})

t.test('comments, interface options and kernel options come in base64', async t => {
  const text = 'Two lines:\n"ü" and 😀\t'
  const comment = base64(text)
  const kerneloptions = base64('quiet console=ttyS0')
  const both = { comment, kerneloptions, kernopts: kerneloptions }
  t.same(codes(await post('/config/osimage/compute', both)), [204, 204])
  t.match(await shown('osimage', 'compute'), [
    { comment: text, kerneloptions: 'quiet console=ttyS0' },
    { comment, kerneloptions }
  ])
  const given = base64('mtu=9000')
  for (const [type, name] of [
    ['group', 'loop'],
    ['node', 'l1']
  ] as const) {
    const clear = { interfaces: [{ interface: 'BOOTIF', options: '' }] }
    const set = { interfaces: [{ interface: 'BOOTIF', options: given }] }
    const there = [{ interfaces: [{ options: 'mtu=9000' }] }, { interfaces: [{ options: given }] }]
    const whole = {
      config: { [type]: { [name]: { name, comment, kerneloptions: base64('nosmt'), ...set } } }
    }
    t.same(codes(await post(`/config/${type}/${name}`, whole)), [204, 204], type)
    t.match(
      await shown(type, name),
      [
        { ...there[0], comment: text },
        { ...there[1], comment }
      ],
      type
    )
    await post(`/config/${type}/${name}`, clear)
    const enveloped = { config: { [type]: { [name]: set } } }
    t.same(codes(await post(`/config/${type}/${name}/interfaces`, enveloped)), [204, 204], type)
    t.match(await shown(type, name), there, type)
  }
  // Every type has a comment, and a copy may have one of its own.
  for (const [type, newName] of [
    ['otherdev', 'newotherdevname'],
    ['switch', 'newswitchname'],
    ['bmcsetup', 'newbmcname']
  ] as const) {
    const [first, second] = [base64('first'), base64('second')]
    await made(`/config/${type}/one`, { comment: first })
    await made(`/config/${type}/one/_clone`, { [newName]: 'two', comment: second })
    const comments = async (name: string) => (await shown(type, name)).map(one => one.comment)
    t.same(await comments('one'), ['first', first], type)
    t.same(await comments('two'), ['second', second], type)
  }
})

t.test('a text that is no base64 of a text stays as it is', async t => {
  const comment = async (given: string) => {
    t.equal((await on.post('/config/otherdev/one', { comment: given })).status, 204, given)
    return (await shown('otherdev', 'one'))[0].comment
  }
  // Words and numbers of four or eight characters, which any decoder takes; control characters; a short last
  // group with bits behind its end; half a character; a line break or a blank.
  const words = ['test rack node disk bmcsetup compute1 0640 AAAA /tmp Zm9= 4pg=', 'Zm9v\n', ' Zm9v']
  words.push(...(words.shift() ?? '').split(' '))
  for (const word of words) t.equal(await comment(word), word)
  t.equal(await comment('Zm9v'), 'foo', 'what looks like both is taken out')
  for (const text of ['test', 'disk', 'nin', 'ß', '2024', '1.5', '+-'])
    t.equal(await comment(base64(text)), text, base64(text))
  t.equal(await comment(base64('Zm9v')), 'Zm9v', 'once, not as often as it goes')
  t.equal(await comment('Zm9v'), 'Zm9v', 'the stored text, posted back as it was read')
  t.equal(await comment(''), '')
  // What a node shows of its group is posted back too.
  const options = [{ interface: 'BOOTIF', options: base64('Zm9v') }]
  await on.post('/config/group/loop/interfaces', { interfaces: options })
  await on.post('/config/node/l1', {
    interfaces: [{ interface: 'BOOTIF', options: '' }],
    comment: base64('Zm9v')
  })
  for (const path of ['/config/group/loop', '/config/node/l1']) {
    const before = on.state()
    const read = await on.get(path)
    t.match(read.text, /"options":"Zm9v"/)
    t.equal((await on.post(path, read.text)).status, 204)
    t.same(on.state(), before, path)
  }
})

t.test('what grabs leave out and what they take come as one text each', async t => {
  const lists = { grab_exclude: base64('/proc/*,/sys/*\n/tmp\r\n'), grab_filesystems: '/, /boot' }
  t.same(codes(await post('/config/osimage/lists', lists)), [201, 400])
  const on1 = (await shown('osimage', 'lists'))[0]
  t.match(on1, { grab_exclude: ['/proc/*', '/sys/*', '/tmp'], grab_filesystems: ['/', '/boot'] })
  const fewer = { grab_exclude_list: '/tmp', grab_filesystems: '' }
  t.same(codes(await post('/config/osimage/lists', fewer)), [204, 400])
  t.same((await shown('osimage', 'lists'))[0].grab_exclude, ['/tmp'])
  t.same((await shown('osimage', 'lists'))[0].grab_filesystems, [])
  await made('/config/osimage/arrays', { grab_exclude: ['/a', 'Zm9v'] })
  t.same(
    (await shown('osimage', 'arrays')).map(one => one.grab_exclude),
    [
      ['/a', 'Zm9v'],
      ['/a', 'Zm9v']
    ]
  )
})

t.test('a grab or a push without a word is a dry run; bare is dropped', async t => {
  const ask = async (c: Controller, path: string, fields: object) => {
    const [, , type = '', name = ''] = path.split('/')
    const { status, body } = await c.post(path, { config: { [type]: { [name]: { name, ...fields } } } })
    if (status !== 200) return { status, changed: false }
    const { request_id: id } = body
    await until(async () => (await c.get(`/monitor/request/${id}`)).body.monitor.request[id].ended !== null)
    const { results, state } = (await c.get(`/monitor/request/${id}`)).body.monitor.request[id]
    const motd = readFileSync(join(root, 'etc/motd'), 'utf8')
    writeFileSync(join(root, 'etc/motd'), 'of the node\n')
    return { status, state, changed: motd !== 'of the node\n', told: results['l1.changes'].length > 0 }
  }
  writeFileSync(join(root, 'etc/motd'), 'of the node\n')
  const osimage = 'pushed'
  for (const c of [on, off]) {
    const etc = readdirSync(join(root, 'etc')).filter(name => name !== 'motd')
    const others = readdirSync(root).filter(name => name !== 'etc')
    const grab_exclude = [...etc.map(name => `/etc/${name}`), ...others.map(name => `/${name}`)]
    await c.post(`/config/osimage/${osimage}`, { grab_exclude })
    makeTree(join(c.directory, 'images', osimage), { 'etc/motd': 'of the image\n', 'usr/it': '' })
    await c.post('/config/group/loop', { osimage })
    for (const name of ['r-vmlinuz', 'r-initrd', 'r.tar.gz']) c.file(name)
    const packed = { kernelfile: 'r-vmlinuz', initrdfile: 'r-initrd', imagefile: 'r.tar.gz' }
    await c.post('/config/osimage/tools', packed)
    // Its next boot is for a rescue: what it runs now, and is copied, is of its own image.
    t.equal((await c.post('/config/node/l1', { rescue: 'tools' })).status, 204)
  }
  const [push, group, grab] = [
    '/config/node/l1/_ospush',
    '/config/group/loop/_ospush',
    '/config/node/l1/_osgrab'
  ]
  const dry = { status: 200, state: 'done', changed: false, told: true }
  t.match(await ask(on, push, {}), dry, 'of the image in force')
  t.match(await ask(on, group, {}), dry, 'of the image in force')
  t.match(await ask(on, push, { osimage, nodry: true }), { ...dry, changed: true })
  t.match(await ask(off, push, { osimage }), { ...dry, changed: true })
  t.match(await ask(off, push, {}), { status: 400 })

  const taken = (c: Controller) => readFileSync(join(c.directory, 'images', osimage, 'etc/motd'), 'utf8')
  t.match(await ask(on, grab, { osimage, bare: true }), dry)
  t.equal(taken(on), 'of the image\n', 'nothing is taken')
  t.match(await ask(off, grab, { osimage, bare: true }), { status: 400 })
})

t.test('the content of a secret that is false, and a path that is null, count as absent', async t => {
  const secret = { name: 'key', path: '/etc/key', content: base64('secret') }
  await made('/config/secrets/node/l1', { config: { secrets: { node: { l1: [secret] } } } })
  const without = { name: 'key', path: '/etc/other', content: false }
  t.same(codes(await post('/config/secrets/node/l1', [without])), [204, 400])
  const enveloped = { config: { secrets: { node: { l1: [{ ...without, path: null }] } } } }
  t.same(codes(await post('/config/secrets/node/l1/key', enveloped)), [204, 400])
  const copy = { ...without, path: null, newsecretname: 'copy' }
  t.same(codes(await post('/config/secrets/node/l1/key/_clone', copy)), [201, 400])
  const { body } = await on.get('/config/secrets/node/l1')
  t.match(body.config.secrets.node.l1, [
    { name: 'key', path: '/etc/other', content: base64('secret') },
    { name: 'copy', path: '/etc/other', content: base64('secret') }
  ])
})

t.test('the status of a service is one text', async t => {
  for (const name of ['dhcp', 'dns']) {
    const [one, other] = await get(`/service/${name}/status`)
    t.equal(one?.status, 200)
    t.same(Object.keys(one?.body.monitor), ['Service'])
    t.match(one?.body.monitor.Service[name], new RegExp(`^${name}: running\nstatus .*: as you like$`))
    t.match(other?.body, { monitor: { service: { [name]: { state: 'running' } } } })
  }
  t.match((await on.get('/service/dhcp/restart')).body, { message: 'queued', request_id: /./ })
})

t.test('a dry run that a route does not have is refused, not done', async t => {
  for (const path of ['/config/node/l1/_release', '/control/action/power/l1/_off'])
    t.match(await on.get(`${path}?dryrun=yes`), { status: 400, body: { message: /"dryrun" is not known/ } })
  const kernel = await on.post('/config/osimage/compute/kernel?dryrun=yes', { kernelfile: 'k' })
  t.equal(kernel.status, 400)
})

t.test('query keys that a route does not know are ignored', async t => {
  for (const path of [
    '/config/node',
    '/config/node/l1',
    '/monitor/node/l1',
    '/monitor/status',
    '/service/dns/status'
  ])
    t.same(codes(await get(`${path}?anything=x&other=none`)), [200, 400], path)
  const import_ = '/config/cluster/import?anything=x&dryrun=yes'
  t.equal((await on.post(import_, { config: { otherdev: {} } })).status, 200, 'those that it knows are not')
})

t.test('the client has messages and a queue to list', async t => {
  const gate = new Gate('held')
  const { id } = await on.daemon.jobs.submit(gate.spec)
  const { body } = await on.get('/monitor/status')
  t.match(body.monitor, { service: { svcd: { status: 'ok' } } })
  const about = { username_initiator: 'user admin', request_id: id }
  t.match(body.monitor.status[0], { ...about, message: 'pack OS image held: running', created: /Z$/ })
  t.match((await on.get('/monitor/queue')).body, {
    monitor: { queue: [{ ...about, status: 'in progress', task: 'pack OS image held', subsystem: 'OS' }] }
  })
  t.same((await on.get('/monitor/status', { token: null })).body.monitor.status, [], 'without a token none')
  t.equal((await on.get('/monitor/queue', { token: null })).status, 401)
  gate.end()
  await on.idle()
  t.same((await on.get('/monitor/queue')).body.monitor.queue, [])
  t.equal((await off.get('/monitor/status')).body.monitor.status, undefined)
  t.equal((await off.get('/monitor/queue')).status, 404)
})

t.test('nothing else differs', async t => {
  const [one, other] = (await get('/openapi.json')).map(({ body }) => body.paths)
  const differing = Object.keys(one).flatMap(path =>
    Object.keys(one[path])
      .filter(method => JSON.stringify(one[path][method]) !== JSON.stringify(other[path]?.[method]))
      .map(method => `${method} ${path}`)
  )
  t.same(differing.sort(), [
    'get /config/network/{network}/_delete',
    'get /monitor/queue',
    'post /config/bmcsetup/{bmcsetup}',
    'post /config/dns/{network}',
    'post /config/group/{group}/interfaces',
    'post /config/network/{network}',
    'post /config/network/{network}/_delete'
  ])
  const answers = [
    '/config/cluster',
    '/config/network',
    '/config/node/l1',
    '/config/osimagetag',
    '/version',
    '/boot'
  ]
  for (const path of answers) {
    const [a, b] = await get(path)
    t.equal(a?.status, b?.status, path)
    // What the tests above left under one name differs by their texts alone.
    if (path.startsWith('/config/')) t.same(Object.keys(a?.body.config), Object.keys(b?.body.config), path)
  }
  for (const [path, body] of [
    ['/config/network/other', { colour: 'red' }],
    ['/config/network/other', { config: { network: { another: {} } } }],
    ['/config/osimage/compute', { comment: 7, grab_exclude: 7, interfaces: 7 }],
    ['/config/node/l1', { interfaces: [7, { interface: 'BOOTIF', options: 7 }] }],
    ['/config/node/l1/_ospush', [7]],
    ['/config/secrets/node/l1', 7],
    ['/config/node/none/_ospush', { osimage: 'pushed' }]
  ] as const) {
    const [a, b] = await post(path, body)
    t.equal(a?.text, b?.text, path)
    t.equal(a?.status, b?.status)
  }
})
