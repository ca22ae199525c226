import t from 'tap'
import { type Facts, factsOf, type Inventory } from '../../lib/inventory/facts.js'
import { differenceText, OddNodes } from '../../lib/inventory/odd.js'
import { longestTurn } from '../support/turns.js'
import { dimms, machine } from './machines.js'

/** Groups with machines of these kinds; undefined: no inventory. */
async function compared(groups: Readonly<Record<string, readonly (Inventory | undefined)[]>>) {
  const all = new Map<string, { group: string; facts: Facts | undefined }>(
    Object.entries(groups).flatMap(([group, list]) =>
      list.map((one, i) => [`${group}${i}`, { group, facts: one && factsOf(one) }] as const)
    )
  )
  const odd = new OddNodes({
    groups: () => Object.keys(groups),
    nodesOf: group => [...all].flatMap(([node, one]) => (one.group === group ? node : [])),
    groupOf: node => all.get(node)?.group,
    factsOf: node => all.get(node)?.facts
  })
  const changed: string[] = []
  odd.onChange = node => changed.push(node)
  await odd.current()
  return { all, odd, changed, of: (node: string) => odd.of(node).map(differenceText) }
}

const gib = 2 ** 30

// rules 6.17
t.test('a node is compared with more than half of its group', async t => {
  const few = machine({ memory: { total: 218 * gib, slots: dimms(7) }, pci: [] })
  const { of, odd, changed } = await compared({
    a: [machine(), machine({ memory: { total: 251 * gib, slots: dimms(8) }, kernel: '7' }), few, undefined],
    pair: [machine(), few],
    // No kind is that of more than half.
    half: [machine(), machine(), few, few],
    none: []
  })
  t.strictSame(of('a2'), [
    'memory: 218 GiB; 2 of 3 nodes of group a have 250 GiB',
    'dimms: 7 x 32 GiB; 2 of 3 nodes of group a have 8 x 32 GiB',
    'gpus: none; 2 of 3 nodes of group a have 4 x 10de:20b5'
  ])
  for (const node of ['a0', 'a1', 'a3', 'pair0', 'pair1', 'half0', 'half3', 'unknown'])
    t.strictSame(of(node), [], node)
  t.strictSame(
    [...odd.counts()],
    [
      ['a', 1],
      ['half', 0]
    ]
  )
  t.strictSame(changed, ['a2'])
  await odd.close()
})

t.test('each fact is compared', async t => {
  const { disks = [], interfaces = [] } = machine()
  const others: readonly (readonly [fact: string, Inventory])[] = [
    ['model', { system: { product: 'R750' } }],
    ['cpu', { cpu: { ...machine().cpu, model: 'Other' } }],
    ['sockets', { cpu: { ...machine().cpu, sockets: 1 } }],
    ['cores', { cpu: { ...machine().cpu, cores: 32 } }],
    ['threads', { cpu: { ...machine().cpu, threads: 64 } }],
    ['drives', { disks: disks.slice(1) }],
    ['nics', { interfaces: interfaces.map(one => ({ ...one, speed: 10_000 })) }],
    ['infiniband', { pci: [...(machine().pci ?? []), { class: '0207', vendor: '15b3', device: '101b' }] }],
    ['cards', { pci: [...(machine().pci ?? []), { class: '0107', vendor: '1000', device: '00e6' }] }],
    ['firmware', { firmware: { ...machine().firmware, version: '0.9' } }],
    ['boot', { firmware: { ...machine().firmware, mode: 'bios' } }],
    ['secureboot', { firmware: { ...machine().firmware, secure_boot: true } }],
    ['tpm', { tpm: { version: '1' } }]
  ]
  for (const [fact, more] of others) {
    const { odd } = await compared({ a: [machine(), machine(), machine(more)] })
    t.strictSame(
      odd.of('a2').map(one => one.fact),
      [fact]
    )
    await odd.close()
  }
})

t.test('nodes that come, go or change are compared anew', async t => {
  const { all, odd, of, changed } = await compared({
    a: [machine(), machine(), machine({ tpm: {} }), machine({ pci: [] })]
  })
  t.equal(of('a3').length, 1)
  all.set('a3', { group: 'a', facts: factsOf(machine()) })
  odd.changed('a3')
  await odd.current()
  t.strictSame(of('a3'), [])
  t.strictSame(changed, ['a3', 'a3'])
  all.set('a3', { group: 'b', facts: factsOf(machine()) })
  for (const node of ['a0', 'a1']) all.delete(node)
  odd.follow([{ type: 'node', name: 'a0', before: { name: 'a0', group: 'a' }, after: undefined }])
  await odd.current()
  t.strictSame([...odd.counts()], [])
  await odd.close()
})

t.test('10,000 nodes hold the event loop under 50 ms of the processor', async t => {
  const list = Array.from({ length: 10_000 }, (_, i) =>
    machine(i % 3 === 0 ? { kernel: String(i), pci: [] } : {})
  )
  const facts = list.map(factsOf)
  const odd = new OddNodes({
    groups: () => ['a'],
    nodesOf: () => facts.map((_, i) => String(i)),
    groupOf: () => 'a',
    factsOf: node => facts[Number(node)]
  })
  const longest = await longestTurn(() => odd.current())
  t.equal([...odd.counts()][0]?.[1], 3334)
  t.comment(`${Math.round(longest)} ms`)
  t.ok(longest < 50, `${longest} ms`)
  await odd.close()
})
