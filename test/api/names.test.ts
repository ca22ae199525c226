import t from 'tap'
import { objectTypes } from '../../lib/model/types.js'
import { isNodeSet } from '../../lib/node-set/evaluate.js'
import { complaints, existing, populated } from '../support/routes.js'
import { read, stored } from '../support/state.js'

const c = await populated(t)

/** No names of anything; those for which a blank is part of the matter stand below. */
const badNames = [
  ...'. .. ... .hidden -x --help _x _list ~x a:b a;b a,b a"b a`b a$b a|b a&b a?b a#b a%b a*b'.split(' '),
  ...String.raw`a\b <x> {x} [x] a@b a=b a'b $(id)`.split(' '),
  ...'\u00e9 na\u00efve \u4e2d\u6587 \u{1f642} e\u0301 \u202ex x\u200b \uff0e\uff0e \u0660 x\u0001 \u007f'.split(
    ' '
  ),
  ...[' ', ' x', 'x ', 'a b', 'a\tb', 'a\nb', 'x\n', 'x'.repeat(64), 'x'.repeat(5000)]
]
const badNodeNames = ['Node', 'NODE1', 'n_1', 'n.1', 'n1.example.org', 'n-', '1-', `n${'-'.repeat(62)}`]
const badNetworkNames = ['10.141.0.1', '0.0.0.0', '999.1.1.1']

// rules 3.1
t.test('bad names: 400 states the rule, in a path and in a body', async t => {
  const before = await stored(c)
  for (const { type, newName, nameRule } of Object.values(objectTypes)) {
    const extra = type === 'node' ? badNodeNames : type === 'network' ? badNetworkNames : []
    const wrong: string[] = []
    for (const name of [...badNames, ...extra]) {
      const encoded = encodeURIComponent(name).replaceAll('.', '%2e')
      const answers = [
        await c.post(`/config/${type}/${encoded}`, { network: '10.9.0.0/16' }),
        await c.post(`/config/${type}/${existing[type]}`, { [newName[0]]: name })
      ]
      // In the path of a node it may be a node set, of which some are none either (rules 12.3).
      const [inPath, inBody] = answers.map(({ status, body }) =>
        status === 400 && String(body?.message).includes(nameRule) ? '' : `${status} ${body?.message}`
      )
      const isRefusedSet = type === 'node' && isNodeSet(name) && answers[0]?.status === 400
      if ((inPath && !isRefusedSet) || inBody) wrong.push(`${name.slice(0, 70)}: ${inPath} ${inBody}`)
    }
    t.same(wrong, [], type)
  }
  t.same(await stored(c), before)
  t.same(complaints(c), [])
})

// rules 3.1
t.test('odd names that are names work like any other', async t => {
  const odd = [
    ...'constructor toString hasOwnProperty valueOf prototype config name null 0'.split(' '),
    ...'a.json x..y X- intents a__proto__'.split(' '),
    'z'.repeat(63)
  ]
  const ok = async (path: string, body?: unknown) => {
    const { status, text } = body === undefined ? await c.get(path) : await c.post(path, body)
    t.equal(status < 300, true, `${path}: ${status} ${text.slice(0, 200)}`)
  }
  for (const name of odd) {
    await ok(`/config/network/${name}`, { network: '10.200.0.0/16' })
    await ok(`/config/osimage/${name}`, { comment: name })
    await ok(`/config/bmcsetup/${name}`, {})
    await ok(`/config/group/${name}`, {
      config: { group: { [name]: { osimage: name, bmcsetupname: name } } }
    })
    await ok(`/config/group/${name}/interfaces`, { interfaces: [{ interface: name, network: name }] })
  }
  const nodes = ['constructor', 'valueof', 'config', '0-0', 'n'.repeat(63), 'x--y']
  for (const name of nodes) await ok(`/config/node/${name}`, { group: 'constructor' })
  const everything = async () => {
    const seen: unknown[] = []
    for (const name of odd) {
      seen.push(await read(c, 'group', name), await read(c, 'network', name), await read(c, 'osimage', name))
      seen.push((await c.get(`/config/group/${name}/_list`)).body.config.group[name].members)
      seen.push((await c.get(`/config/osimage/${name}/_list`)).body.config.osimage[name].members)
      seen.push((await c.get(`/config/group/${name}/interfaces/${name}`)).body.interfaces)
    }
    for (const type of ['group', 'network', 'osimage', 'bmcsetup', 'node'])
      seen.push(Object.keys((await c.get(`/config/${type}`)).body.config[type]))
    return seen
  }
  const seen = await everything()
  t.match(await read(c, 'group', 'constructor'), { name: 'constructor', osimage: 'constructor' })
  const { body } = await c.get('/config/group/constructor/_list')
  t.same(new Set(body.config.group.constructor.members), new Set(nodes))
  t.equal((await c.get('/boot', { token: null })).status, 200)
  await c.restart()
  t.same(await everything(), seen, 'after a restart too')
  for (const name of nodes) await ok(`/config/node/${name}/_delete`)
  for (const name of odd)
    for (const type of ['group', 'network', 'osimage', 'bmcsetup'])
      await ok(`/config/${type}/${name}/_delete`)
  t.equal((await c.get('/config/group/constructor')).status, 404)
  t.equal((await c.get('/config/node/tostring')).status, 404)
  t.same(complaints(c), [])
})
