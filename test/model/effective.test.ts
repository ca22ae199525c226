import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { type EffectiveNode, effectiveNode, settingsOf, sourcesOf } from '../../lib/model/effective.js'
import type { Tx, View } from '../../lib/model/stored.js'
import { setTag } from '../../lib/model/tags.js'
import { admin, settings as cluster, MemoryCluster } from '../support/memory-cluster.js'

/** node001 in group compute, whose image is compute, on the networks cluster and other. */
const smallCluster = () =>
  new MemoryCluster({
    'network/cluster': { network: '10.141.0.0/16' },
    'network/other': { network: '10.142.0.0/24' },
    'osimage/compute': { kernelfile: 'k1', initrdfile: 'i1', imagefile: 'p1' },
    'osimage/login': { kernelfile: 'k2' },
    'group/compute': {
      osimage: 'compute',
      interfaces: [
        { interface: 'BOOTIF', network: 'cluster' },
        { interface: 'eth1', network: 'other', options: 'mtu=9000' }
      ]
    },
    'group/login': { osimage: 'login', domain: 'login.site' },
    'node/node001': {
      group: 'compute',
      interfaces: [
        { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1', options: 'own' },
        { interface: 'eth1', network: 'other', ipaddress: '10.142.0.1' }
      ]
    },
    'node/bare': {}
  }).model

/** Replaces some fields of an object, as a change does. */
function edit(tx: Tx, type: 'network' | 'group' | 'node' | 'osimage', name: string, fields: object) {
  tx.put(type, name, { ...tx.get(type, name), ...fields } as never)
}

const node001 = (view: View, settings = cluster): EffectiveNode =>
  effectiveNode(view, view.get('node', 'node001') ?? { name: 'gone' }, settings)

t.test('a node in force is made of its group, network, image and cluster (rules 3.3)', async t => {
  const model = smallCluster()
  const effective = node001(model.view)
  t.match(effective, {
    node: { name: 'node001' },
    group: { name: 'compute' },
    settings: { osimage: 'compute', osimagetag: 'default', netboot: true, provision_method: 'torrent' },
    provision: { interface: 'BOOTIF', ipaddress: '10.141.0.1' },
    network: { name: 'cluster' },
    prefix: { length: 16 },
    image: { kernelfile: 'k1', initrdfile: 'i1', imagefile: 'p1' },
    domain: 'cluster',
    hostname: 'node001.cluster'
  })
  t.equal(effective.settings.roles, null, 'what nobody sets')
  t.strictSame(
    effective.interfaces.map(({ interface: name, options }) => [name, options]),
    [
      ['BOOTIF', 'own'],
      ['eth1', 'mtu=9000']
    ],
    'options are its own, else its group’s (rules 3.4)'
  )
  const { node, group } = effective
  t.match(sourcesOf(node, group, cluster), {
    osimage: 'group',
    provision_method: 'cluster',
    netboot: 'default'
  })
  t.match(sourcesOf({ ...node, netboot: false, osimage: 'compute' }, group, cluster), {
    osimage: 'node',
    netboot: 'node',
    roles: 'default'
  })
})

t.test('a node without a group, an image or a network has the defaults', async t => {
  const model = smallCluster()
  const bare = effectiveNode(model.view, model.get('node', 'bare'), { ...cluster, provision_method: '' })
  t.match(bare, {
    settings: { osimage: null, provision_interface: 'BOOTIF', provision_method: 'torrent', postscript: '' },
    interfaces: [],
    domain: '',
    hostname: 'bare'
  })
  for (const key of ['group', 'provision', 'network', 'prefix', 'image'] as const)
    t.equal(bare[key], undefined, key)
})

/** Every kind of change that a node in force depends on, with what it shows after it. */
const changes: Record<
  string,
  [change: (tx: Tx) => void, shows: (effective: EffectiveNode) => unknown, unknown]
> = {
  'a value of its own': [
    tx => edit(tx, 'node', 'node001', { netboot: false }),
    ({ settings }) => settings.netboot,
    false
  ],
  'a value of its group': [
    tx => edit(tx, 'group', 'compute', { roles: 'a, b' }),
    ({ settings }) => settings.roles,
    'a, b'
  ],
  'another group': [
    tx => edit(tx, 'node', 'node001', { group: 'login' }),
    ({ image, hostname, group }) => [image?.name, hostname, group?.name],
    ['login', 'node001.login.site', 'login']
  ],
  'no group': [
    tx => {
      const { group: _, ...rest } = tx.get('node', 'node001') ?? { name: 'node001' }
      tx.put('node', 'node001', rest)
    },
    ({ image, group }) => [image, group],
    [undefined, undefined]
  ],
  'its group’s other name': [
    tx => {
      tx.put('group', 'renamed', { name: 'renamed', osimage: 'login' })
      edit(tx, 'node', 'node001', { group: 'renamed' })
    },
    ({ group, settings }) => [group?.name, settings.osimage],
    ['renamed', 'login']
  ],
  'options of its group': [
    tx =>
      edit(tx, 'group', 'compute', { interfaces: [{ interface: 'eth1', network: 'other', options: 'x' }] }),
    ({ interfaces }) => interfaces.map(({ options }) => options),
    ['own', 'x']
  ],
  'an interface of its own': [
    tx =>
      edit(tx, 'node', 'node001', {
        interfaces: [{ interface: 'BOOTIF', network: 'other' }],
        removed: ['eth1']
      }),
    ({ provision, network, interfaces }) => [provision?.ipaddress, network?.name, interfaces.length],
    [undefined, 'other', 1]
  ],
  'another provision interface': [
    tx => edit(tx, 'group', 'compute', { provision_interface: 'eth1' }),
    ({ provision, network, prefix, domain }) => [provision?.ipaddress, network?.name, prefix?.length, domain],
    ['10.142.0.1', 'other', 24, 'other']
  ],
  'the prefix of its network': [
    tx => edit(tx, 'network', 'cluster', { network: '10.128.0.0/9', gateway: '10.128.0.1' }),
    ({ prefix, network }) => [prefix?.length, network?.gateway],
    [9, '10.128.0.1']
  ],
  'the files of its image': [
    tx => edit(tx, 'osimage', 'compute', { imagefile: 'p9' }),
    ({ image }) => image?.imagefile,
    'p9'
  ],
  'a tag that pins them': [
    tx => {
      setTag(tx, tx.get('osimage', 'compute') ?? { name: 'compute' }, 'stable')
      edit(tx, 'osimage', 'compute', { imagefile: 'p9', comment: 'later' })
      edit(tx, 'group', 'compute', { osimagetag: 'stable' })
    },
    ({ image }) => [image?.imagefile, image?.comment],
    ['p1', 'later']
  ],
  'a tag that pins none': [
    tx => {
      setTag(tx, { name: 'compute' }, 'empty')
      edit(tx, 'node', 'node001', { osimagetag: 'empty' })
    },
    ({ image }) => [image?.name, image?.kernelfile, image?.initrdfile, image?.imagefile],
    ['compute', undefined, undefined, undefined]
  ]
}

for (const [what, [edits, shows, expected]] of Object.entries(changes))
  t.test(`it follows ${what}, in the transaction and after it`, async t => {
    const model = smallCluster()
    const before = shows(node001(model.view))
    t.notSame(before, expected)
    const refused = model.change(admin, tx => {
      edits(tx)
      t.same(shows(node001(tx)), expected, 'a transaction sees its own change')
      throw new Error('taken back')
    })
    await t.rejects(refused, { message: 'taken back' })
    t.same(shows(node001(model.view)), before, 'what was taken back is not seen')
    await model.change(admin, edits)
    t.same(shows(node001(model.view)), expected)
  })

t.test('it follows the cluster’s settings, and a moved tag', async t => {
  const model = smallCluster()
  t.equal(node001(model.view, { ...cluster, provision_method: 'http' }).settings.provision_method, 'http')
  t.equal(node001(model.view).settings.provision_method, 'torrent')
  await model.change(admin, tx => {
    setTag(tx, { name: 'compute', imagefile: 'p1' }, 'stable')
    edit(tx, 'node', 'node001', { osimagetag: 'stable' })
  })
  t.equal(node001(model.view).image?.imagefile, 'p1')
  await model.change(admin, tx => setTag(tx, { name: 'compute', imagefile: 'p2' }, 'stable'))
  t.equal(node001(model.view).image?.imagefile, 'p2')
})

t.test('what was worked out is kept for a group, not for each node, and goes with the group', async t => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const group = Object.freeze({ name: 'kept', osimage: 'compute' })
  const first = settingsOf({ name: 'a', group: 'kept' }, group, cluster)
  t.equal(settingsOf({ name: 'b', group: 'kept' }, group, cluster), first, 'worked out once')
  t.not(settingsOf({ name: 'b', group: 'kept' }, { ...group }, cluster), first)
  const forget = (): WeakRef<object> => {
    const gone = Object.freeze({ name: 'gone', osimage: 'compute' })
    settingsOf({ name: 'a', group: 'gone' }, gone, cluster)
    return new WeakRef(gone)
  }
  const gone = forget()
  for (let round = 0; round < 10 && gone.deref(); round++) {
    await new Promise(setImmediate)
    collect()
  }
  t.equal(gone.deref(), undefined, 'a group that was replaced is not held')
})
