import t, { type Test } from 'tap'
import { brokenRules, objects } from '../support/broken-rules.js'
import { Client, type Read } from '../support/client.js'
import { Controller } from '../support/controller.js'

/** Clients with a connection each, of a controller with a network, an image and the group compute. */
async function start(test: Test, count: number): Promise<{ controller: Controller; clients: Client[] }> {
  const controller = await Controller.start(test)
  await controller.cluster()
  return { controller, clients: connect(test, controller, count) }
}

function connect(test: Test, { daemon, token }: Controller, count: number): Client[] {
  const clients = Array.from({ length: count }, () => new Client(daemon.address, daemon.port, token))
  test.teardown(() => {
    for (const client of clients) client.close()
  })
  return clients
}

const bootedNode = ({ text }: Read) => / svc\.node=(\S+) /.exec(text)?.[1]
const mac = (number: number) => `52:54:00:00:00:${number.toString(16).padStart(2, '0')}`
const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

const many = process.env.SVCD_LONG ? 1000 : 300

t.test(`64 clients create ${many} nodes at once`, async t => {
  const { controller, clients } = await start(t, 64)
  const answers = await Promise.all(
    numbers(1, many).map(i => clients[i % 64]?.post(`/config/node/n${i}`, { group: 'compute' }))
  )
  t.strictSame([...new Set(answers.map(answer => answer?.status))], [201], 'each is 201')
  const [client] = clients as [Client]
  const check = async (when: string, client: Client) => {
    const nodes = Object.values(await objects(client, 'node'))
    t.equal(nodes.length, many, `${when}: each node`)
    const addresses = nodes.map(({ interfaces }) => interfaces?.[0]?.ipaddress ?? 'none')
    const free = numbers(1, many).map(i => `10.141.${i >> 8}.${i & 255}`)
    t.strictSame(new Set(addresses), new Set(free), `${when}: the first addresses, each once`)
    return nodes
  }
  const before = await check('in memory', client)
  await controller.restart()
  const [again] = connect(t, controller, 1) as [Client]
  t.strictSame(await check('after a restart', again), before, 'each node has the address it had')
})

t.test('8 clients create the same name: one creates it, seven update it', async t => {
  const { clients } = await start(t, 8)
  const answers = await Promise.all(
    clients.map((client, i) => client.post('/config/node/same', { group: 'compute', comment: `client ${i}` }))
  )
  t.strictSame(answers.map(({ status }) => status).sort(), [201, 204, 204, 204, 204, 204, 204, 204])
  const [client] = clients as [Client]
  const { taken } = await client.read<{ taken: { device: string }[] }>('/config/network/cluster/_list')
  const devices = taken.map(({ device }) => device).filter(device => device !== 'controller')
  t.strictSame(devices, ['same'], 'one address is taken')
})

// rules 4.3
// rules 4.3
for (const [free, what] of [
  [8, 'eight free members'],
  [3, 'three free members'],
  [0, 'an empty group']
] as const)
  t.test(`8 machines ask a group with ${what} at once: 8 nodes`, async t => {
    const { clients } = await start(t, 8)
    const [client] = clients as [Client]
    for (const i of numbers(1, free)) await client.post(`/config/node/compute00${i}`, { group: 'compute' })
    const answers = await Promise.all(
      clients.map((client, i) => client.get(`/boot/manual/group/compute/${mac(i)}`))
    )
    t.strictSame(
      answers.map(({ status }) => status),
      Array(8).fill(200)
    )
    const expected = numbers(1, 8).map(i => `compute00${i}`)
    t.strictSame(answers.map(bootedNode).sort(), expected, 'each machine boots as a node of its own')
    const nodes = Object.values(await objects(client, 'node'))
    t.strictSame(
      nodes.map(({ name }) => name),
      expected,
      'no other node was made'
    )
    for (const [i, answer] of answers.entries()) {
      const node = nodes.find(({ name }) => name === bootedNode(answer))
      t.equal(node?.interfaces?.[0]?.macaddress, mac(i), `${node?.name} has the MAC of who boots as it`)
    }
    t.strictSame(await brokenRules(client), [])
  })

t.test('one machine asks a group 8 times at once: one node', async t => {
  const { clients } = await start(t, 8)
  const answers = await Promise.all(clients.map(client => client.get(`/boot/manual/group/compute/${mac(1)}`)))
  t.strictSame(answers.map(bootedNode), Array(8).fill('compute001'))
  t.strictSame(Object.keys(await objects(clients[0] as Client, 'node')), ['compute001'])
})

t.test('one machine asks two groups at once: it is one node in the end', async t => {
  const { clients } = await start(t, 8)
  const [client] = clients as [Client]
  await client.post('/config/group/other', {
    osimage: 'compute',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  await Promise.all(
    clients.map((client, i) => client.get(`/boot/manual/group/${i % 2 ? 'other' : 'compute'}/${mac(1)}`))
  )
  const nodes = Object.values(await objects(client, 'node'))
  const owners = nodes.filter(({ interfaces }) => interfaces?.[0]?.macaddress === mac(1))
  t.equal(owners.length, 1, 'one node has the MAC')
  t.equal(bootedNode(await client.get(`/boot/search/mac/${mac(1)}`)), owners[0]?.name)
})

const groups = ['g1', 'g2', 'g3', 'g4', 'g5']
const networks = ['net1', 'net2', 'net3', 'net4']

/** A random choice of changes to a few objects that are in each other's way. */
function randomChange(client: Client): [string, Promise<Read>] {
  const one = <V>(...values: V[]) => values[Math.floor(Math.random() * values.length)] as V
  const [node, other] = [`n${one(...numbers(1, 12))}`, `n${one(...numbers(1, 12))}`]
  const [group, network] = [one(...groups), one(...networks)]
  const nic = one('BOOTIF', 'eth1', 'BMC')
  const address = `10.1.1.${one(...numbers(1, 12))}`
  const changes: Record<string, () => Promise<Read>> = {
    'node save': () => client.post(`/config/node/${node}`, { group }),
    'node rename': () => client.post(`/config/node/${node}`, { newhostname: other }),
    'node clone': () => client.post(`/config/node/${node}/_clone`, { newhostname: other }),
    'node delete': () => client.get(`/config/node/${node}/_delete`),
    'node mac': () => client.post(`/config/node/${node}`, { macaddr: mac(one(1, 2, 3, 4)) }),
    'node address': () =>
      client.post(`/config/node/${node}`, {
        interfaces: [{ interface: nic, ipaddress: address }]
      }),
    'node status': () => client.post(`/monitor/node/${node}`, { state: 'installer.started' }),
    'group save': () => client.post(`/config/group/${group}`, { interfaces: [{ interface: nic, network }] }),
    'group rename': () => client.post(`/config/group/${group}`, { newgroupname: one(...groups) }),
    'group clone': () => client.post(`/config/group/${group}/_clone`, { newgroupname: one(...groups) }),
    'group delete': () => client.get(`/config/group/${group}/_delete`),
    'group interface delete': () => client.get(`/config/group/${group}/interfaces/${nic}/_delete`),
    'network save': () =>
      client.post(`/config/network/${network}`, {
        network: one('10.1.1.0/24', '10.1.0.0/16'),
        gateway: null
      }),
    'network gateway': () => client.post(`/config/network/${network}`, { gateway: address }),
    'network rename': () => client.post(`/config/network/${network}`, { newnetname: one(...networks) }),
    'network delete': () => client.get(`/config/network/${network}/_delete`),
    'machine asks a group': () => client.get(`/boot/manual/group/${group}/${mac(one(1, 2, 3, 4, 5, 6))}`),
    'machine asks a node': () => client.get(`/boot/manual/hostname/${node}/${mac(one(1, 2, 3, 4, 5, 6))}`)
  }
  const name = one(...Object.keys(changes))
  return [name, (changes[name] as () => Promise<Read>)()]
}

t.test('renames, deletes and creates in each other’s way leave every rule whole', async t => {
  const { controller, clients } = await start(t, 16)
  const [client] = clients as [Client]
  const done = new Map<string, number>()
  const wrong = new Set<string>()
  const broken = new Set<string>()
  let running = true
  const writers = clients.slice(1).map(async client => {
    for (let i = 0; i < (process.env.SVCD_LONG ? 120 : 60); i++) {
      const [name, answer] = randomChange(client)
      const { status, text } = await answer
      if (status < 300) done.set(name, (done.get(name) ?? 0) + 1)
      else if (status !== 400 && status !== 404) wrong.add(`${name}: ${status} ${text}`)
    }
  })
  const reader = (async () => {
    // One list is read at a time; references across lists are judged at the end.
    while (running) {
      const nodes = Object.values(await objects(client, 'node'))
      const entries = nodes.flatMap(({ interfaces = [] }) => interfaces)
      for (const key of ['ipaddress', 'macaddress'] as const) {
        const values = entries.flatMap(entry => entry[key] ?? [])
        if (new Set(values).size < values.length) broken.add(`a reader saw two owners of one ${key}`)
      }
    }
  })()
  await Promise.all(writers)
  running = false
  await reader
  t.comment([...done].map(([name, count]) => `${name} ${count}`).join(', '))
  t.strictSame([...wrong], [], 'every answer is a success or a refusal')
  t.strictSame([...broken], [], 'no list shows an address or MAC twice')
  t.ok(done.size > 12, 'most kinds of change were made')
  t.strictSame(await brokenRules(client), [])
  const read = (client: Client) =>
    Promise.all(['node', 'group', 'network'].map(type => objects(client, type)))
  const before = await read(client)
  await controller.restart()
  const [again] = connect(t, controller, 1) as [Client]
  t.strictSame(await read(again), before, 'a restart finds the same')
  t.strictSame(
    controller.log.filter(line => line.includes(' error ')),
    [],
    'nothing is logged as an error'
  )
})

// rules 11.1, 1.12
t.test('a reader never sees half of a change', async t => {
  const { clients } = await start(t, 4)
  const [writer, ...readers] = clients as [Client, ...Client[]]
  // More nodes than a list is written of in one go; a change of the group touches those that sort last.
  await Promise.all(numbers(1, 420).map(i => clients[i % 4]?.post(`/config/node/n${i}`, {})))
  for (const i of numbers(1, 9)) await writer.post(`/config/node/y${i}`, { group: 'compute' })
  await writer.post('/config/node/a', { group: 'compute' })
  await writer.post('/monitor/node/a', { state: 'installer.download' })
  const seen: string[] = []
  let lists = 0
  let running = true
  const readList = async (reader: Client) => {
    const nodes = await objects(reader, 'node')
    const all = Object.values(nodes)
    const members = all.filter(({ name }) => !name.startsWith('n'))
    const both = [nodes.a, nodes.z].flatMap(node => node ?? [])
    if (all.length !== 430) seen.push(`${all.length} nodes`)
    if (both.length !== 1) seen.push(`a and z: ${both.length} of them`)
    if (both.some(({ status }) => status !== 'installer.download')) seen.push('the status is gone')
    if (members.some(({ osimage }) => osimage !== 'compute')) seen.push('a member without the group’s image')
    for (const [what, values] of Object.entries({
      groups: members.map(({ group }) => group),
      interfaces: members.map(({ interfaces = [] }) => interfaces.map(entry => entry.interface).join()),
      networks: members.flatMap(({ interfaces = [] }) => interfaces.map(entry => entry.network))
    }))
      if (new Set(values).size !== 1) seen.push(`${what} ${[...new Set(values)]}`)
    lists++
  }
  const readOne = async (reader: Client) => {
    const { status, text } = await reader.get('/config/node/a')
    if (status === 200 && JSON.parse(text).config.node.a.status !== 'installer.download')
      seen.push('node a without its status')
    for (const type of ['group', 'network']) {
      const names = Object.keys(await objects(reader, type))
      if (names.length !== 1) seen.push(`${type}s ${names}`)
    }
  }
  const reading = readers.map(async (reader, i) => {
    while (running) await (i === 0 ? readOne : readList)(reader)
  })
  const change = async (node: string[], group: string[], network: string[]) => {
    const answers = await Promise.all([
      writer.post(`/config/node/${node[0]}`, { newhostname: node[1] }),
      writer.post(`/config/group/${group[0]}`, { newgroupname: group[1] }),
      writer.post(`/config/network/${network[0]}`, { newnetname: network[1] }),
      writer.post(`/config/group/${group[1]}/interfaces`, {
        interfaces: [{ interface: 'eth1', network: network[1] }]
      }),
      writer.get(`/config/group/${group[1]}/interfaces/eth1/_delete`)
    ])
    t.strictSame(
      answers.map(({ status }) => status),
      [204, 204, 200, 201, 204]
    )
  }
  for (let round = 0; round < 5; round++) {
    await change(['a', 'z'], ['compute', 'crowd'], ['cluster', 'internal'])
    await change(['z', 'a'], ['crowd', 'compute'], ['internal', 'cluster'])
  }
  running = false
  await Promise.all(reading)
  t.comment(`${lists} lists were read during 50 changes`)
  t.ok(lists > 10, 'lists were read meanwhile')
  t.strictSame([...new Set(seen)], [], 'every answer is from before or after a change')
})
