import t from 'tap'
import type { JsonValue } from '../../lib/base/json.js'
import { importDocument, previewImport } from '../../lib/model/transfer.js'
import { admin, MemoryCluster, type Objects } from '../support/memory-cluster.js'

const before: Objects = {
  'network/cluster': { network: '10.141.0.0/16' },
  'osimage/compute': { path: '/images/compute' },
  'osimage/login': {},
  'osimagetag/login:v1': { osimage: 'login', tag: 'v1', order: 1 },
  'group/compute': { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] },
  'node/n2': {
    group: 'compute',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.2' }]
  },
  'node/n10': { comment: 'alone' },
  'switch/sw1': { vendor: 'ACME' }
}
const n2 = { ...before['node/n2'] }

const rows = [
  {
    is: 'nothing differs',
    document: { node: { n2, n10: { comment: 'alone' } }, switch: { sw1: { vendor: 'ACME' } } },
    result: {},
    changes: {}
  },
  {
    is: 'created, changed and deleted, in natural order; sections that are absent stay',
    document: { node: { n20: {}, n3: {}, n10: { comment: 'new' } }, switch: {} },
    result: {
      node: { created: ['n3', 'n20'], changed: ['n10'], deleted: ['n2'] },
      switch: { created: [], changed: [], deleted: ['sw1'] }
    },
    changes: {
      'node/n10': { comment: 'new' },
      'node/n2': undefined,
      'node/n20': {},
      'node/n3': {},
      'switch/sw1': undefined,
      'revoked/n2': { at: 1_000, generation: 1 }
    }
  },
  {
    is: 'the tags of an image that goes',
    document: { osimage: { compute: { path: '/images/compute' } } },
    result: {
      osimage: { created: [], changed: [], deleted: ['login'] },
      osimagetag: { created: [], changed: [], deleted: ['login:v1'] }
    },
    changes: { 'osimage/login': undefined, 'osimagetag/login:v1': undefined }
  },
  {
    is: 'a tag, with null and an empty text for the files that it does not pin',
    document: {
      osimagetag: { v1: { name: 'v1', osimage: 'login', kernelfile: 'k', initrdfile: null, imagefile: '' } }
    },
    result: { osimagetag: { created: [], changed: ['login:v1'], deleted: [] } },
    changes: { 'osimagetag/login:v1': { osimage: 'login', tag: 'v1', order: 1, kernelfile: 'k' } }
  },
  {
    is: 'a setting of the cluster',
    document: { cluster: { debug: true } },
    result: { cluster: { created: ['cluster'], changed: [], deleted: [] } },
    changes: { 'cluster/cluster': { settings: { debug: { value: true, ini: false } } } }
  }
]

const after = (changes: Readonly<Record<string, object | undefined>>) =>
  Object.fromEntries(Object.entries({ ...before, ...changes }).filter(([, doc]) => doc !== undefined))

for (const { is, document, result, changes } of rows)
  t.test(`an import tells what it did (rules 3.11): ${is}`, async t => {
    const cluster = new MemoryCluster(before)
    t.same((await previewImport(cluster.model, document)).changes, result, 'the preview tells the same')
    t.same(cluster.objects, before, 'and changes nothing')
    t.same(cluster.audited, [])
    t.same(await importDocument(cluster.model, document, admin), result)
    t.same(cluster.objects, after(changes))
    t.match(cluster.audited, Object.keys(changes).length > 0 ? [{ kind: 'import' }] : [])
  })

const refused: [is: string, document: JsonValue, status: number, message: string][] = [
  ['a wrong shape', { node: [] }, 400, 'import refused: config.node: must be an object'],
  [
    'a rule that the result breaks',
    { group: {} },
    404,
    'import refused: config.node.n2: node n2: group compute does not exist'
  ],
  [
    'a key that no tag has: the fields are those of an export',
    { osimagetag: { v1: { name: 'v1', osimage: 'login', order: 1 } } },
    400,
    'import refused: config.osimagetag.v1.order: OS image tag login:v1: there is no field "order" here, only ' +
      '"name", "osimage", "kernelfile", "initrdfile", "imagefile"'
  ],
  [
    'a masked secret',
    { secrets: { node: { n10: [{ name: 's', path: '/s', content: '********' }] } } },
    400,
    'import refused: config.secrets.node.n10.0: node n10: secret s: field "content" is masked: ' +
      "only an admin's export can be imported"
  ]
]

for (const [is, document, status, message] of refused)
  t.test(`refused, and nothing changes (rules 3.11): ${is}`, async t => {
    const cluster = new MemoryCluster(before)
    const error = { status, message }
    await t.rejects(async () => previewImport(cluster.model, document), error)
    await t.rejects(async () => importDocument(cluster.model, document, admin), error)
    t.same(cluster.objects, before)
    t.same(cluster.audited, [])
  })
