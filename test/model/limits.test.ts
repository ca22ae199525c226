import t from 'tap'
import type { JsonValue } from '../../lib/base/json.js'
import { readSettings } from '../../lib/model/settings.js'
import { importDocument } from '../../lib/model/transfer.js'
import { limitWarnings, stateWarnings } from '../../lib/model/warnings.js'
import { admin, checkRows, MemoryCluster, type Objects } from '../support/memory-cluster.js'

function cluster(before: Objects) {
  const memory = new MemoryCluster(before)
  const request = (path: string, body: JsonValue) => memory.request('post', path, body)
  return { model: memory.model, request, objects: () => memory.objects }
}

const old = { username: 'a name from old times', password: 'a password from old times' }

t.test('what a BMC and a configuration file can take (rules 6.5)', async t =>
  checkRows(t, {}, [
    {
      is: '16 and 20 bytes',
      request: ['post', 'bmcsetup/b', { username: 'u'.repeat(16), password: 'ü'.repeat(10) }],
      after: { 'bmcsetup/b': { username: 'u'.repeat(16), password: 'ü'.repeat(10) } }
    },
    {
      is: 'a longer user name',
      request: ['post', 'bmcsetup/b', { username: 'u'.repeat(17) }],
      refused: [400, 'BMC set-up b: field "username" has 17 bytes, and a BMC takes 16 at most']
    },
    {
      is: 'a longer password, which the message does not tell',
      request: ['post', 'bmcsetup/b', { password: 'ü'.repeat(11) }],
      refused: [400, 'BMC set-up b: field "password" has 22 bytes, and a BMC takes 20 at most']
    },
    {
      is: 'one from a time without the limit loads, and its other fields can be changed',
      before: { 'bmcsetup/b': old },
      request: ['post', 'bmcsetup/b', { username: old.username, password: '********', comment: 'new' }],
      after: { 'bmcsetup/b': { ...old, comment: 'new' } }
    },
    {
      is: 'one from a time without the limit is cloned',
      before: { 'bmcsetup/b': old },
      request: ['clone', 'bmcsetup/b', { newbmcname: 'c' }],
      after: { 'bmcsetup/c': old }
    },
    {
      is: 'a line break in the time servers of a network',
      request: ['post', 'network/n', { network: '10.0.0.0/8', ntp_server: '10.0.0.1\n10.0.0.2' }],
      refused: [400, 'network n: field "ntp_server" holds a line break or another control character']
    },
    {
      is: 'blanks and commas between the time servers of a network',
      request: ['post', 'network/n', { network: '10.0.0.0/8', ntp_server: '10.0.0.1, ntp.example.org' }],
      after: { 'network/n': { network: '10.0.0.0/8', ntp_server: '10.0.0.1, ntp.example.org' } }
    }
  ])
)

// rules 6.5
for (const [blank, why] of [
  ['\n', 'a line break or another control character'],
  ['\r', 'a line break or another control character'],
  ['\u2028', 'a line break or another control character'],
  ['\u2029', 'a line break or another control character'],
  ['\u00a0', 'a blank that is neither a space nor a tab'],
  ['\ufeff', 'a blank that is neither a space nor a tab'],
  ['\u3000', 'a blank that is neither a space nor a tab']
] as const)
  t.test(`between time servers, for a network and the cluster: character ${blank.charCodeAt(0)}`, async t => {
    const { model, request, objects } = cluster({})
    const ntp_server = `10.0.0.1${blank}10.0.0.2`
    const error = { status: 400, message: `field "ntp_server" holds ${why}` }
    await t.rejects(request('network/n', { network: '10.0.0.0/8', ntp_server }), {
      ...error,
      message: `network n: ${error.message}`
    })
    t.throws(() => readSettings({ ntp_server }, model.cluster), { message: `cluster: ${error.message}` })
    t.strictSame(objects(), {})
  })

t.test('a next-line character is no blank between time servers', async t => {
  const { request } = cluster({})
  const body = { network: '10.0.0.0/8', ntp_server: '10.0.0.1\u008510.0.0.2' }
  await t.rejects(request('network/n', body), { status: 400, message: /"ntp_server" must be addresses/ })
})

t.test('tabs and commas between time servers', async t => {
  const { model, request, objects } = cluster({})
  const fields = { network: '10.0.0.0/8', ntp_server: '10.0.0.1\t10.0.0.2, 10.0.0.3' }
  await request('network/n', fields)
  t.strictSame(objects(), { 'network/n': fields })
  t.same([...readSettings({ ntp_server: fields.ntp_server }, model.cluster)].length, 1)
})

const servers = '10.0.0.1\n10.0.0.2'
const backup = {
  bmcsetup: { b: old, short: { username: 'root' } },
  network: { n: { network: '10.0.0.0/8', ntp_server: servers } },
  cluster: { ntp_server: servers }
}
const restored = {
  'bmcsetup/b': old,
  'bmcsetup/short': { username: 'root' },
  'network/n': { network: '10.0.0.0/8', ntp_server: servers },
  'cluster/cluster': { settings: { ntp_server: { value: servers, ini: '' } } }
}
const warnings = [
  'network n: field "ntp_server" holds a line break or another control character',
  'BMC set-up b: field "username" has 21 bytes, and a BMC takes 16 at most; ' +
    'field "password" has 25 bytes, and a BMC takes 20 at most',
  'cluster: field "ntp_server" holds a line break or another control character'
]

t.test('an import takes what an export gives, with a warning for each object (rules 3.11)', async t => {
  const empty = new MemoryCluster()
  await importDocument(empty.model, backup, admin)
  t.strictSame(empty.objects, restored)
  t.same(limitWarnings(empty.audited[0]?.changes ?? []).sort(), warnings.toSorted())
  t.same(stateWarnings(empty.model.view), warnings, 'svcd check warns of them as well')
})

t.test('an import leaves what was there from a time without the limit, and warns of nothing', async t => {
  const { model, objects, audited } = new MemoryCluster({ 'bmcsetup/b': old })
  t.same(await importDocument(model, { bmcsetup: { b: old } }, admin), {})
  t.strictSame(objects, { 'bmcsetup/b': old })
  t.same(audited, [])
})

t.test('a setting that was beyond a limit before can be posted as it is read', async t => {
  const { model } = new MemoryCluster({ 'cluster/cluster': restored['cluster/cluster'] })
  t.same([...readSettings({ ntp_server: servers }, model.cluster)], [['ntp_server', servers]])
})
