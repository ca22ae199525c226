import t from 'tap'
import { Controller } from '../support/controller.js'
import { objectFiles } from '../support/snapshot.js'
import { beginning } from './properties/beginning.js'

const c = await Controller.start(t)
const restore = () => c.post('/config/cluster/import', beginning)

// rules 3.11
t.test('what an import says in the words of a request is stored as the request would', async t => {
  await restore()
  const { config } = beginning
  const posted = {
    node: {
      group: 'compute',
      bmcsetup: true,
      comment: '',
      roles: null,
      service: false,
      switchport: 7,
      interfaces: [
        { interface: 'BOOTIF', network: 'alpha', ipaddress: '10.1.0.9', macaddress: null, options: '' },
        { interface: 'BMC', network: 'beta', ipaddress: '10.2.0.9' }
      ]
    },
    network: { network: '10.7.0.0/24', dhcp_enable: false, nameserver_ip: '10.7.0.1', gateway: '' },
    osimage: { kernver: '6.1', tarball: 'a.tar.gz', torrent: 'a.torrent', grab_exclude_list: [], path: null },
    bmcsetup: { userid: 2, mgmtchannel: 1, netchannel: 5 }
  }
  for (const [type, body] of Object.entries(posted))
    t.equal((await c.post(`/config/${type}/new`, body)).status, 201, type)
  const made = objectFiles(c)

  await restore()
  const sections = Object.entries(posted).map(([type, body]) => [
    type,
    { ...config[type as keyof typeof posted], new: { ...body, _override: false } }
  ])
  const { status, text } = await c.post('/config/cluster/import', { config: Object.fromEntries(sections) })
  t.equal(status, 201, text)
  t.same(objectFiles(c), made)
})

// rules 1.6, 3.11
t.test('two spellings with different values are refused', async t => {
  await restore()
  const before = objectFiles(c)
  const image = { kernver: '6.1', kernelversion: '6.2' }
  const { status, body } = await c.post('/config/cluster/import', {
    osimage: { ...beginning.config.osimage, image }
  })
  t.equal(status, 400)
  t.match(body.message, /config\.osimage\.image: .*field "kernelversion" is given twice/)
  t.same(objectFiles(c), before)
})

// rules 1.2
t.test('when an import takes the first image of a tag away, the next one has the plain key', async t => {
  await restore()
  const plain = async () => {
    const { osimagetag } = (await c.get('/config/osimagetag')).body.config
    return Object.entries<{ osimage: string }>(osimagetag).map(([key, { osimage }]) => [key, osimage])
  }
  t.same(await plain(), [
    ['stable', 'compute'],
    ['constructor:stable', 'constructor'],
    ['tried', 'compute']
  ])
  const { n2: _, ...nodes } = beginning.config.node
  await c.post('/config/cluster/import', { node: nodes })
  await c.post('/config/group/compute', { osimage: 'constructor' })
  const { constructor: kept } = beginning.config.osimage
  const { status, text } = await c.post('/config/cluster/import', { osimage: { constructor: kept } })
  t.equal(status, 201, text)
  t.same(await plain(), [['stable', 'constructor']])
  const first = (await c.get('/config/cluster/export')).text
  await c.post('/config/cluster/import', first)
  t.equal((await c.get('/config/cluster/export')).text, first, 'export, import, export')
})

// rules 3.11
t.test('the secrets of what an import takes away go with it, those of what it keeps stay', async t => {
  await restore()
  const kept = (await c.get('/config/secrets/group/compute')).text
  const { n1: _, ...nodes } = beginning.config.node
  const { status, text } = await c.post('/config/cluster/import', { node: nodes })
  t.equal(status, 201, text)
  t.notOk('secrets/node.n1.json' in c.state())
  t.equal((await c.get('/config/secrets/group/compute')).text, kept)
  await c.post('/config/node/n1', {})
  t.same(
    (await c.get('/config/secrets/node/n1')).body.config.secrets.node.n1,
    [],
    'another n1 has none of them'
  )
})

t.test('a group read and posted back leaves its members alone, whatever an import made of them', async t => {
  await restore()
  await c.get('/config/group/compute/interfaces/BOOTIF/_delete')
  await c.post('/config/cluster/import', { node: beginning.config.node })
  const before = objectFiles(c)
  t.equal((await c.post('/config/group/compute', (await c.get('/config/group/compute')).text)).status, 204)
  t.same(objectFiles(c), before)
})

// rules 3.11
t.test(
  'an import says what it creates, changes and deletes; a dry run says it and changes nothing',
  async t => {
    await restore()
    const { n1: _, n2, ...others } = beginning.config.node
    const document = { node: { ...others, n2: { ...n2, comment: 'other' }, n9: {}, n10: {} } }
    const says = 'node: 2 created, 1 changed, 1 deleted; secrets: 1 deleted'
    const before = objectFiles(c)
    const dry = await c.post('/config/cluster/import?dryrun=yes', document)
    t.equal(dry.status, 200, dry.text)
    const { mark, ...told } = dry.body
    t.same(told, {
      message:
        'dry run, nothing was changed: 2 nodes would be created, 1 node would be changed, 1 node would be deleted, the secrets of 1 object would be deleted',
      changes: {
        node: { created: ['n9', 'n10'], changed: ['n2'], deleted: ['n1'] },
        secrets: { created: [], changed: [], deleted: ['node.n1'] }
      }
    })
    t.same(objectFiles(c), before)
    await c.post('/config/node/n2', { comment: 'meanwhile' })
    const late = await c.post(`/config/cluster/import?expect=${mark}`, document)
    t.same(
      [late.status, late.body.message],
      [400, 'import refused: something has changed since the dry run; make it again']
    )
    t.match((await c.get('/config/node/n2')).body, { config: { node: { n2: { comment: 'meanwhile' } } } })
    await c.post('/config/node/n2', { comment: n2.comment ?? null })
    const done = await c.post(`/config/cluster/import?dryrun=no&expect=${mark}`, document)
    t.same([done.status, done.body], [201, { message: `imported: ${says}` }])
    t.equal((await c.get('/config/node/n1')).status, 404)
    const again = await c.post('/config/cluster/import', document)
    t.same([again.status, again.body], [201, { message: 'imported: nothing differs' }])
  }
)

// rules 3.11
t.test(
  'a dry run that is not asked for in so many words is none, and nothing is imported by mistake',
  async t => {
    await restore()
    const before = objectFiles(c)
    for (const query of ['dryrun', 'dryrun=true', 'dryrun=yes&dryrun=no']) {
      const { status, body } = await c.post(`/config/cluster/import?${query}`, { node: {} })
      t.equal(status, 400, query)
      t.match(body.message, /dryrun.*yes or no/)
    }
    const refused = await c.post('/config/cluster/import?dryrun=yes', { group: {} })
    t.equal(refused.status, 404, 'a dry run tells the problems too')
    t.match(refused.body.message, /config\.node\.n1.*group compute/)
    t.same(objectFiles(c), before)
  }
)
