import t from 'tap'
import { importDocument } from '../../lib/model/transfer.js'
import { admin, checkRows, MemoryCluster } from '../support/memory-cluster.js'

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

const imports = [
  [{ bmcsetup: { b: { username: 'u'.repeat(17) } } }, /config\.bmcsetup\.b: .*"username" has 17 bytes/],
  [{ cluster: { ntp_server: '10.0.0.1\n10.0.0.2' } }, /config\.cluster\.ntp_server: .*line break/]
] as const

for (const [document, message] of imports)
  t.test(`an import is a change too: ${Object.keys(document)}`, async t => {
    const { model, objects } = new MemoryCluster()
    await t.rejects(async () => importDocument(model, document, admin), { status: 400, message })
    t.strictSame(objects, {})
  })

t.test('an import leaves what was there from a time without the limit', async t => {
  const { model, objects } = new MemoryCluster({ 'bmcsetup/b': old })
  t.same(await importDocument(model, { bmcsetup: { b: old } }, admin), {})
  t.strictSame(objects, { 'bmcsetup/b': old })
})
