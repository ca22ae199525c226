import t from 'tap'
import { Controller } from '../support/controller.js'

// rules 3.17
const c = await Controller.start(t)
await c.cluster()
const warning = async (path: string, body: unknown) => {
  const { status, text, headers } = await c.post(path, body)
  if (status >= 300) throw new Error(`${path}: ${status} ${text}`)
  return String(headers['x-svcd-warning'] ?? '')
}
for (const i of [1, 2, 3]) await c.post(`/config/node/node00${i}`, { group: 'compute' })

t.test('a change of a set tells what may be a slip, each once', async t => {
  const eth = { interfaces: [{ interface: 'BOOTIF', options: 'mtv=9000' }] }
  const sentence = 'interface BOOTIF: its option "mtv=9000" is not known'
  const said = await warning('/config/node/node[001-003]', eth)
  t.ok(said.startsWith(`node001 and 2 more: ${sentence}`), said)
  t.equal(await warning('/config/node/node[001-003]', eth), '', 'it was told')
  const more = await warning('/config/node/_set', {
    nodes: 'node[001-002]',
    fields: { provision_interface: 'eth9', roles: 'none' }
  })
  t.match(more, /^node001 and 1 more: provision_interface is eth9/)
  t.match(more, /has the role none, and there is no file/)
  const dry = await c.post('/config/node/node[001-003]?dryrun=yes', { provision_interface: 'eth8' })
  t.equal(dry.status, 200)
})

t.test('a table does too', async t => {
  const table = 'name,group,provision_interface\nnode011,compute,eth7\nnode012,compute,eth7\n'
  t.match(await warning('/config/node?format=csv', table), /^node011 and 1 more: provision_interface is eth7/)
  t.equal(await warning('/config/node?format=csv', table), '')
})

t.test('a file that cannot be rendered is told when it is given, and not refused', async t => {
  const why = "file f cannot be rendered for node node001: f:1:14: the map has no item 'rack'"
  await c.post('/config/file/f', { path: '/etc/f', template: '{{ variables.rack }}' })
  t.ok((await warning('/config/group/compute', { files: ['f'] })).includes(why))
  t.equal(await warning('/config/group/compute', { variables: { rack: '7' } }), '')
  t.ok((await warning('/config/group/compute', { variables: { rack: null } })).includes(why))
  t.ok((await warning('/config/file/f', { template: '{{ variables.rack }}!' })).includes(why))
  t.equal(await warning('/config/file/f', { template: 'fixed' }), '')
  t.equal(await warning('/config/file/f', { comment: 'x' }), '')
  await warning('/config/node/node001', { variables: { rack: '9' } })
  t.equal(
    await warning('/config/file/f', { template: '{{ variables.rack }}' }),
    '',
    'for its first node it is well'
  )
})
