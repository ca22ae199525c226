import t from 'tap'
import { cheapHash } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { difference, plainFiles, stored } from '../support/state.js'
import { hostile, hostileWord, richCluster } from './contract/rich.js'
import { base64 } from './contract/world.js'

const exported = async (c: Controller) => (await c.get('/config/cluster/export')).text
const post = (c: Controller, document: unknown) => c.post('/config/cluster/import', document)

/** Files of objects, byte for byte; those that are encrypted as they are in the clear. */
async function objects(c: Controller): Promise<Record<string, unknown>> {
  const plain = await plainFiles(c)
  const files = Object.entries(await stored(c)).filter(
    ([path]) => /^\w+\/.*\.json$/.test(path) && !path.startsWith('revoked/')
  )
  return Object.fromEntries(
    files.map(([path, bytes]) => [path, /^(secrets|bmcsetup|switch)\//.test(path) ? plain[path] : bytes])
  )
}

const c = await Controller.start(t)
await richCluster(c)
const document = await exported(c)
const reset = async () => t.equal((await post(c, document)).status, 201)

// rules 3.11
t.test('an export has each object on a line of its own', async t => {
  const { config } = JSON.parse(document)
  const lines = document.split('\n')
  const objects = ({ cluster: _, secrets, ...rest }: Record<string, object>) =>
    [...Object.values(rest), ...Object.values(secrets as object)].flatMap(section => Object.entries(section))
  const texts = objects(config).map(([name, object]) => `${JSON.stringify(name)}:${JSON.stringify(object)}`)
  t.ok(texts.length > 20)
  t.same(
    texts.filter(text => !lines.includes(text) && !lines.includes(`${text},`)),
    []
  )
  t.equal(lines.pop(), '', 'the last line is whole')
  const [node = ''] = Object.keys(config.node)
  t.equal((await c.post(`/config/node/${node}`, { comment: 'another' })).status, 204)
  const now = (await exported(c)).split('\n')
  t.equal(now.length, lines.length + 1)
  const other = now.filter(line => !lines.includes(line) && line !== '')
  t.equal(other.length, 1)
  t.ok(other[0]?.startsWith(`"${node}":{`) && other[0].includes('"comment":"another"'))
  await reset()
  t.equal(await exported(c), document)
})

// rules 3.11
t.test('an export has every section, and stored values', async t => {
  const { config } = JSON.parse(document)
  const sections =
    'cluster network osimage bmcsetup disklayout file group node switch otherdev osimagetag secrets'.split(
      ' '
    )
  t.same(Object.keys(config).sort(), sections.sort())
  t.same(config.cluster, {
    ntp_server: 'ntp1.example.org,10.0.0.1',
    debug: false,
    technical_contacts: hostile,
    provision_method: 'http',
    provision_fallback: 'http'
  })
  t.same(
    config.node.n9,
    {
      name: 'n9',
      group: 'g10',
      switch: 'no such switch',
      switchport: 7,
      service: true,
      vendor: hostile,
      assettag: '',
      tpm_pubkey: 'k',
      interfaces: [{ interface: 'BOOTIF', network: 'net-10', ipaddress: '10.10.0.2' }],
      removed: ['BMC']
    },
    'what the node has of its own, nothing that it inherits'
  )
  t.equal(config.node.n10.comment, hostile)
  t.equal(config.bmcsetup.boards.password, hostileWord, 'passwords in the clear')
  t.same(config.secrets.group.g10[0], { name: 'munge', path: '/etc/munge key', content: base64(hostile) })
  t.same(Object.keys(config.osimagetag).sort(), ['10:v1', '2024', 'toString', 'v1'])
  t.same(config.network['range-kept'].dhcp_range_begin, '10.3.0.1', 'what no GET shows is kept')
})

// rules 3.11
t.test('round trip: an empty controller has the same files then, and exports the same bytes', async t => {
  const empty = await Controller.start(t)
  const { status, body } = await post(empty, document)
  t.equal(status, 201)
  t.match(body, { message: /^imported: cluster: 1 created; network: \d+ created; .*secrets: \d+ created$/ })
  t.equal(await exported(empty), document, 'byte for byte')
  t.same(await objects(empty), await objects(c))
  await empty.restart()
  t.equal(await exported(empty), document, 'after a restart')
  const before = await stored(empty)
  t.equal((await post(empty, document)).status, 201)
  t.same(await stored(empty), before, 'a second time: no file is touched, no ciphertext either')
})

// rules 3.11
t.test('the sections that are present are replaced as a whole, the others are left', async t => {
  const before = await objects(c)
  const { config } = JSON.parse(document)
  const switches = { sw2: { name: 'sw2', comment: 'new' } }
  t.equal((await post(c, { config: { switch: switches } })).status, 201)
  t.same(difference(before, await objects(c)), {
    'switch/sw1.json': null,
    'switch/sw2.json': { name: 'sw2', comment: 'new' }
  })
  const rows: [object, object][] = [
    [{ otherdev: {} }, { 'otherdev/pdu.json': null }],
    [{ cluster: {} }, { 'cluster/cluster.json': null }],
    [
      { secrets: { group: config.secrets.group } },
      { 'secrets/node.n10.json': null, 'secrets/node.n9.json': null }
    ],
    [
      { secrets: {} },
      { 'secrets/group.g10.json': null, 'secrets/node.n10.json': null, 'secrets/node.n9.json': null }
    ]
  ]
  for (const [sections, changes] of rows) {
    await reset()
    t.equal((await post(c, sections)).status, 201, JSON.stringify(Object.keys(sections)))
    t.same(difference(before, await objects(c)), changes, JSON.stringify(Object.keys(sections)))
  }
  await reset()
  delete config.node.n9
  t.equal((await post(c, { node: config.node })).status, 201)
  t.same(
    Object.keys(difference(before, await objects(c))).sort(),
    ['node/n9.json', 'secrets/node.n9.json'],
    'secrets of a node that is gone go with it'
  )
  await reset()
  t.equal(await exported(c), document)
})

// rules 3.11
t.test('what the import takes away is gone for good: status and tokens too', async t => {
  await c.post('/monitor/node/n9', { state: 'installer.completed' })
  const source = '10.10.0.2'
  const { text } = await c.get('/boot/install/n9', { token: null, source })
  const token = /^SVC_TOKEN='([^']+)'$/m.exec(text)?.[1] as string
  t.equal((await c.get('/config/secrets/node/n9', { token })).status, 200)
  const { config } = JSON.parse(document)
  delete config.node.n9
  await post(c, { node: config.node })
  await reset()
  t.equal((await c.get('/monitor/node/n9')).body.monitor.status.n9.state, null)
  t.equal((await c.get('/config/secrets/node/n9', { token })).status, 401, 'a new node of that name')
})

// rules 2.4
t.test('a wrong shape is 400, all of it told with its path, and nothing changes', async t => {
  const before = await stored(c)
  const { status, body } = await post(c, {
    config: {
      nodes: {},
      switch: [],
      network: { ok: { network: '10.77.0.0/16' }, bad: { network: 'x', gateway: 5 }, '10.0.0.1': {} },
      node: {
        'Not-A-Name': {},
        n1: { name: 'n2' },
        n3: {
          color: 1,
          service: 'yes',
          interfaces: [{ interface: 'a' }, { interface: 'b', ipaddress: 'x' }]
        },
        n4: 5
      },
      group: { g: { interfaces: [{ interface: 'a' }] } },
      osimage: { i: { kernver: 'a', kernelversion: 'b' } },
      cluster: { controller: {} },
      osimagetag: { default: { name: 'default', osimage: 'i' }, v1: { name: 'v2', osimage: 'i' }, v3: {} },
      secrets: { node: { n1: [{ name: 's', path: '/s' }] }, user: {} }
    }
  })
  t.equal(status, 400)
  for (const said of [
    /config\.nodes: there is no such section/,
    /config\.switch: must be an object/,
    /config\.network\.bad\.network: .*CIDR/,
    /config\.network\.bad\.gateway: /,
    /config\.network\.10\.0\.0\.1: /,
    /config\.node\.Not-A-Name: .*host name/,
    /config\.node\.n1\.name: .*"n2"/,
    /config\.node\.n3\.color: /,
    /config\.node\.n3\.service: .*must be true or false/,
    /config\.node\.n3\.interfaces\.1\.ipaddress: .*IPv4/,
    /config\.node\.n4: .*object/,
    /config\.group\.g\.interfaces\.0: .*"network"/,
    /config\.osimage\.i: .*kernelversion.*twice/,
    /config\.cluster\.controller: .*controller/,
    /config\.osimagetag\.default: /,
    /config\.osimagetag\.v1: /,
    /config\.osimagetag\.v3: /,
    /config\.secrets\.node\.n1\.0: .*secret s/,
    /config\.secrets\.user: /
  ])
    t.match(body.message, said)
  t.notMatch(body.message, /config\.network\.ok/)
  for (const wrong of [[], 5, 'x', null, {}, { config: {} }, { config: 5 }, { config: {}, more: 1 }])
    t.equal((await post(c, JSON.stringify(wrong))).status, 400, JSON.stringify(wrong))
  t.same(await stored(c), before, 'nothing changed')
})

// rules 2.4
t.test('a broken rule is 404, all of them told with their paths, and nothing changes', async t => {
  const before = await stored(c)
  const { config } = JSON.parse(document)
  config.node.n10.group = 'nowhere'
  config.node.n10.osimage = 'nothing'
  config.node.n1.interfaces[0].ipaddress = '10.10.0.254'
  config.node.alone.interfaces = [
    { interface: 'a', network: 'net-10', ipaddress: '10.10.9.2' },
    { interface: 'b', network: 'net-2', ipaddress: '10.10.0.1' },
    { interface: 'c', macaddress: '52:54:00:00:00:01' }
  ]
  config.group.g9.bmcsetupname = 'none'
  config.network['net-10'].gateway = '10.2.0.1'
  config.osimagetag.v1.osimage = 'nothing'
  config.secrets.node.gone = [{ name: 's', path: '/s', content: '' }]
  const { status, body } = await post(c, { config })
  t.equal(status, 404)
  for (const said of [
    /config\.node\.n10: .*group nowhere does not exist/,
    /config\.node\.n10: .*OS image nothing does not exist/,
    /config\.node\.alone: .*interface a: 10\.10\.9\.2 belongs to other device pdu/,
    /config\.node\.alone: .*interface b: 10\.10\.0\.1 lies outside network net-2/,
    /config\.node\.alone: .*MAC 52:54:00:00:00:01 belongs to node n1/,
    /config\.group\.g9: .*none does not exist/,
    /config\.network\.net-10: .*"gateway"/,
    /config\.osimagetag\.v1: OS image nothing does not exist/,
    /config\.secrets\.node\.gone: node gone does not exist/
  ])
    t.match(body.message, said)
  const problems = body.message.split('; ')
  t.equal(new Set(problems).size, problems.length, 'each once')
  for (const problem of problems) t.match(problem, /config\.\w+\.[\w-]+/)
  t.same(await stored(c), before)
  for (const [sections, says] of [
    [{ group: {} }, /config\.node\.n10: .*group g10 does not exist/],
    [{ osimage: {} }, /config\.group\.g10: .*OS image 10 does not exist/],
    [
      { network: { 'net-10': { network: '10.10.0.0/29' } } },
      /config\.otherdev\.pdu: .*10\.10\.9\.2 lies outside/
    ],
    [
      { group: { ...config.group, g10: { interfaces: [{ interface: 'new', network: 'net-2' }] } } },
      /config\.node\.n9: .*interface new of its group g10 is missing/
    ],
    [{ osimagetag: {} }, /config\.group\.g10: .*10 has no tag v1/]
  ] as const) {
    const reply = await post(c, sections)
    t.equal(reply.status, 404, JSON.stringify(Object.keys(sections)))
    t.match(reply.body.message, says)
  }
  t.same(await stored(c), before)
})

// rules 3.11
t.test('of many problems 50 are told', async t => {
  const names = Array.from({ length: 80 }, (_, i) => `x${i}`)
  const all = (fields: object) => ({ node: Object.fromEntries(names.map(name => [name, fields])) })
  const before = await stored(c)
  for (const [fields, status] of [
    [{ color: 1 }, 400],
    [{ group: 'none' }, 404]
  ] as const) {
    const reply = await post(c, all(fields))
    t.equal(reply.status, status)
    t.equal(reply.body.message.match(/config\.node\.x\d+/g)?.length, 50)
  }
  t.same(await stored(c), before)
})

t.test('lists and single forms as they are read can be imported', async t => {
  const before = await objects(c)
  const sections: Record<string, unknown> = {}
  for (const type of ['network', 'osimage', 'bmcsetup', 'switch', 'otherdev', 'osimagetag'])
    sections[type] = (await c.get(`/config/${type}`)).body.config[type]
  sections.secrets = (await c.get('/config/secrets')).body.config.secrets
  const { network } = JSON.parse(document).config
  // A range that is kept while DHCP is off is not shown.
  Object.assign(sections.network as object, { 'range-kept': network['range-kept'] })
  const reply = await post(c, sections)
  t.equal(reply.status, 201, reply.text)
  const answers = await Promise.all(
    Object.keys(sections).map(async type => (await c.get(`/config/${type}`)).text)
  )
  await reset()
  t.same(
    answers,
    await Promise.all(Object.keys(sections).map(async type => (await c.get(`/config/${type}`)).text)),
    'every list as before'
  )
  t.same(await objects(c), before)
})

// rules 3.11
t.test('for a viewer secrets, passwords and communities are masked', async t => {
  const hash = cheapHash('x')
  const { overrides, token } = c
  Object.assign(c, { overrides: [...overrides, `users.root=admin ${hash}`, `users.eve=viewer ${hash}`] })
  await c.restart()
  c.token = await c.login('root', 'x')
  const { text, body } = await c.get('/config/cluster/export', { token: await c.login('eve', 'x') })
  const { config } = JSON.parse(document)
  const hidden = (list: object[]) => list.map(secret => ({ ...secret, content: '********' }))
  config.bmcsetup.boards.password = '********'
  Object.assign(config.switch.sw1, { read: '********', rw: '********' })
  config.secrets = {
    group: { g10: hidden(config.secrets.group.g10) },
    node: { n10: hidden(config.secrets.node.n10), n9: hidden(config.secrets.node.n9) }
  }
  t.same(body, { config }, 'and nothing else differs')
  t.notMatch(text, base64(hostile))
  t.equal(await exported(c), document, "an admin's is whole")
  Object.assign(c, { overrides, token })
  await c.restart()
})

t.test("a viewer's export is not imported: its secrets are masked", async t => {
  const c = await Controller.start(t)
  await c.post('/config/bmcsetup/boards', { username: 'root', password: 'calvin' })
  const document = JSON.parse((await c.get('/config/cluster/export')).text.replace('calvin', '********'))
  const before = c.state()
  const refused = await c.post('/config/cluster/import', document)
  t.equal(refused.status, 400)
  t.match(refused.body.message, /config\.bmcsetup\.boards.*"password" is masked/)
  t.same(c.state(), before)
})
