import t from 'tap'
import { admin, MemoryCluster } from '../support/memory-cluster.js'

const nic = { interface: 'BOOTIF', network: 'net' }
const nameOf = (i: number) => `n${i + 1}`

/** A group with so many members; network `ib` has room for `free` of them. */
function clusterOf(members: number, free = 65_534) {
  const nodes = Array.from({ length: members }, (_, i) => [
    `node/${nameOf(i)}`,
    { group: 'g', interfaces: [{ ...nic, ipaddress: `10.0.${1 + (i >> 8)}.${i & 255}` }] }
  ])
  return new MemoryCluster({
    'network/net': { network: '10.0.0.0/8' },
    'network/ib': { network: free < 65_534 ? '10.255.0.0/25' : '172.16.0.0/16' },
    'group/g': { interfaces: [nic] },
    ...Object.fromEntries(nodes)
  })
}

const interfacesOf = (cluster: MemoryCluster, i: number) =>
  (cluster.objects[`node/${nameOf(i)}`] as { interfaces: { interface: string; ipaddress?: string }[] })
    .interfaces
const more = [{ interface: 'ib0', network: 'ib', force: false }]

// rules 3.5, 12.3
for (const [members, inSteps] of [
  [3, 0],
  [300, 1]
] as const)
  t.test(
    `a change of a group with ${members} members: ${inSteps} in steps, one transaction either way`,
    async t => {
      const cluster = clusterOf(members)
      const { model } = cluster
      const before = cluster.objects
      t.equal(await model.saveInterfaces('group', 'g', more, admin), true)
      t.equal(cluster.inSteps, inSteps)
      const addresses = Array.from({ length: members }, (_, i) => interfacesOf(cluster, i)[1]?.ipaddress)
      t.equal(addresses[0], '172.16.0.1')
      t.equal(new Set(addresses).size, members, 'each has an address of its own')
      t.equal(cluster.audited.at(-1)?.changes.length, members + 1)
      await model.removeInterface('group', 'g', 'ib0', admin)
      t.equal(cluster.inSteps, 2 * inSteps)
      t.strictSame(cluster.objects, before)
      await cluster.request('post', 'group/g', { newgroupname: 'h' })
      t.equal(cluster.inSteps, 3 * inSteps)
      t.equal(model.view.index.members('h')?.all.values.length, members)
      t.equal(model.view.index.members('g'), undefined)
      t.equal(cluster.audited.length, 3, 'each was made once')
    }
  )

t.test('a network without room for all members: 404 that names it, nothing is changed', async t => {
  const cluster = clusterOf(300, 126)
  const before = cluster.objects
  await t.rejects(cluster.model.saveInterfaces('group', 'g', more, admin), {
    status: 404,
    message: 'network ib has no free address'
  })
  t.equal(cluster.inSteps, 1)
  t.strictSame(cluster.objects, before)
  t.equal(
    cluster.model.view.index.usedAddresses.firstFree(10 * 2 ** 24 + 255 * 2 ** 16 + 1, 2 ** 32 - 1),
    0x0aff0001
  )
})
