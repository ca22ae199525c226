import t from 'tap'
import { nameWarnings } from '../../lib/model/warnings.js'
import { populated } from '../support/routes.js'

/** Characters in a row. */
const x = (count: number, letter = 'x') => letter.repeat(count)

const cluster = async (t: Parameters<typeof populated>[0]) => {
  const c = await populated(t)
  const said = async (path: string, body: object) => {
    const { status, text } = await c.post(`/config/${path}`, body)
    return `${status} ${text.replaceAll('\\"', '"')}`
  }
  return { c, said }
}

// rules 3.18
t.test('a host name that Linux would cut is refused, whichever change makes it', async t => {
  const { c, said } = await cluster(t)
  const domain = `${x(40)}.example.org`
  t.match(
    await said(`node/${x(11, 'a')}`, { group: 'compute', domain }),
    /^20[01]/,
    '64 characters are taken'
  )
  const name = x(12, 'a')
  const refusal = /^400 .*node a+: its host name a+\.x+\.example\.org has 65 characters, and Linux takes 64/
  t.match(await said(`node/${name}`, { group: 'compute', domain }), refusal, 'a new node')
  t.match(await said(`node/${name}`, { group: 'compute' }), /^201/)
  t.match(await said(`node/${name}`, { domain }), refusal, 'a domain of its own')
  t.match(
    await said('group/compute', { domain }),
    /^400 .*group compute: node a+: its host name .* has 65 characters/
  )
  t.match((await c.get('/config/group/compute')).text, /"domain":null/, 'and nothing is changed')
  t.match(await said('group/other', { domain }), /^201/)
  t.match(await said(`node/${name}`, { group: 'other' }), refusal, 'a move to another group')
  t.match(
    await said('network/cluster', { newnetname: x(53) }),
    /^400 .*has 66 characters/,
    'the name of the network'
  )
  t.match(
    await said(`node/${name}/_clone`, { newhostname: x(60, 'b') }),
    /^400 .*has 68 characters/,
    'a clone'
  )
  t.match(await said('node/n1', { newhostname: x(60, 'b') }), /^400 .*has 68 characters/, 'a rename')
  t.match(await said('group/compute', { domain: 'example.org' }), /^20/, 'what fits is taken')
})

// rules 3.18, 3.11
t.test('what was stored before is left as it is; an import takes it, and the check tells of it', async t => {
  const { c, said } = await cluster(t)
  const { body } = await c.get('/config/cluster/export')
  const all = body as { config: { group: Record<string, object>; node: Record<string, object> } }
  all.config.group.compute = { ...all.config.group.compute, domain: x(61) }
  const text = JSON.stringify(all).replaceAll('"n1"', '"007"')
  const imported = await c.post('/config/cluster/import', JSON.parse(text))
  t.equal(imported.status, 201, imported.text)
  t.match(await said('node/007', { comment: 'as before' }), /^20/)
  t.match(await said('node/007', { domain: x(62) }), /^20/, 'it was too long before')
  const { view, cluster: settings } = c.daemon.model
  t.match(nameWarnings(view, settings).join(), /node 007: its host name 007\.x+ has 66 characters/)
  t.match(await said('node/007', { newhostname: 'node007', domain: 'hpc' }), /^20/)
})

// rules 3.18
t.test('names that are no host', async t => {
  const { said } = await cluster(t)
  for (const name of ['localhost', 'localhost6', 'ip6-loopback'])
    t.match(await said(`node/${name}`, {}), /^400 .*each system gives this name to itself/, name)
  for (const name of ['7', '007', '192168001001', '0x7f000001'])
    t.match(
      await said(`node/${name}`, {}),
      new RegExp(`^400 .*an address: take one such as node${name}`),
      name
    )
  t.match(await said('node/n1', { newhostname: '12' }), /^400 .*take one such as node12/)
  t.match(await said('node/n1/_clone', { newhostname: 'localhost' }), /^400/)
  for (const name of ['0a', '7-1', 'localhost1', 'dead0'])
    t.match(await said(`node/${name}`, { group: 'compute' }), /^201/, name)
})

// rules 3.18
t.test('kernel arguments that would lose their end', async t => {
  const { c, said } = await cluster(t)
  const refusal = /its kernel arguments have \d+ bytes with those that svcd adds, and Linux reads 2047/
  for (const path of ['osimage/big', 'group/big', 'node/big'])
    t.match(await said(path, { kerneloptions: x(2040), path: '/images/big' }), /^400 /, path)
  t.match(await said('group/compute', { kerneloptions: x(900, 'g') }), /^20/)
  t.match(await said('node/n1', { kerneloptions: x(800, 'n') }), /^20/)
  const { body } = await c.get('/config/node/n1')
  const { osimage = '' } =
    (body as { config: { node: Record<string, { osimage?: string }> } }).config.node.n1 ?? {}
  t.ok(osimage)
  t.match(
    await said(`osimage/${osimage}`, { kerneloptions: x(400, 'i') }),
    new RegExp(`^400 .*OS image ${osimage}: node n1: ${refusal.source}`)
  )
  t.match(await said(`osimage/${osimage}`, { kerneloptions: x(20, 'i') }), /^20/)
  t.match(
    await said('group/compute', { kerneloptions: x(1200, 'g') }),
    new RegExp(`^400 .*group compute: node n1: ${refusal.source}`)
  )
  t.match(
    await said('node/n1', { kerneloptions: x(1100, 'n') }),
    new RegExp(`^400 .*node n1: ${refusal.source}`)
  )
  // What is told is what the boot script would hold.
  const line = async () => {
    const script = await c.get('/config/node/n1/_render/boot')
    return /imgargs kernel (.*?) \|\| goto/.exec(script.text)?.[1] ?? ''
  }
  const now = (await line()).length
  t.ok(now > 1700, `${now} bytes`)
  t.match(await said('node/n1', { kerneloptions: x(800 + 2047 - now, 'n') }), /^20/, '2,047 bytes are taken')
  t.equal((await line()).length, 2047)
  t.match(await said('node/n1', { kerneloptions: x(801 + 2047 - now, 'n') }), /^400 .*have 2048 bytes/)
})

// rules 3.18
t.test('a VLAN, a bond or a bridge with a name that Linux does not take', async t => {
  const { said } = await cluster(t)
  const post = (path: string, name: string, options: string) =>
    said(path, { interfaces: [{ interface: name, network: 'cluster', options }] })
  const cases: readonly (readonly [string, string, RegExp])[] = [
    ['enp129s0f0np0.100', 'vlan=100', /17: call it vlan100, with link=enp129s0f0np0 in its options/],
    ['storage-of-rack-7', 'vlan=7 link=eth1', /17: call it vlan7(?!, with)/],
    ['bond-of-the-rack', 'bond=eth1,eth2 mode=802.3ad', /this bond has 16: call it bond0/],
    ['bridge-for-guests', 'mtu=9000 bridge=eth1', /this bridge has 17: call it br0/],
    ['vlan7', 'vlan=7 link=enp129s0f0np0abc', /enp129s0f0np0abc in its options has 16/],
    ['bond1', 'bond=eth1,enp129s0f0np0abc', /enp129s0f0np0abc in its options has 16/]
  ]
  for (const [name, options, why] of cases)
    for (const path of ['group/compute', 'node/n1', 'group/fresh', 'node/fresh'])
      t.match(
        await post(path, name, options),
        new RegExp(`^400 .*interface ${name}: .*${why.source}`),
        `${path} ${name}`
      )
  t.match(await post('group/compute', 'enp129s0f0.1000', 'vlan=1000'), /^20/, '15 characters')
  t.match(await post('node/n1', 'a-card-that-is-found-by-its-mac', 'mtu=9000'), /^20/, 'a card')
  t.match(await post('node/n1', 'BMC', 'vlan=12'), /^20/)
})

// rules 3.18
t.test('what was too long before can be renamed, with what it is named by', async t => {
  const { c, said } = await cluster(t)
  const domain = `${x(40)}.example.org`
  const name = x(12, 'b')
  await said('group/wide', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  await said(`node/${name}`, { group: 'wide' })
  // As an svcd of before has stored it.
  const document = (await c.get('/config/cluster/export')).body
  const { node, group } = document.config
  const of = (objects: Record<string, unknown>[] | Record<string, Record<string, unknown>>, wanted: string) =>
    Object.values(objects).find(one => one.name === wanted) as Record<string, unknown>
  of(group, 'wide').domain = domain
  of(group, 'wide').kerneloptions = `x=${x(2100)}`
  t.equal((await c.post('/config/cluster/import', document)).status, 201)
  t.ok(of(node, name))
  t.match(await said('group/wide', { newgroupname: 'wider' }), /^20[04]/, 'its group')
  t.match(await said(`node/${name}`, { newhostname: x(12, 'c') }), /^20[04]/, 'the node')
  t.match(await said('group/wider', { kerneloptions: `y=${x(2100)}` }), /^400 /, 'and nothing new')
})
