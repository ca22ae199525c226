import { asPauses } from '../base/concurrency.js'
import { foldSliced } from '../node-set/fold.js'
import { asWord, distinct, pushTo } from './names.js'
import { type ExportNode, inventoryOf } from './nodes.js'

/** An inventory keeps a size of memory that differs by 2 %: slurmd drains a node that has less than its line. */
const sureMemory = 0.98
/** PCI classes of displays and accelerators, of the makers whose cards compute. */
const isGpu = /^(?:03|12)/
const gpuMakers = ['10de', '1002']

/** More parameters of a node: words like `Weight=10`, and none that is another line or another node. */
const options = /^(?!.*\bNodeName=)[A-Za-z]+=[\w.,:()*/-]+(?: [A-Za-z]+=[\w.,:()*/-]+)*$/i

/** Returns what Slurm is told of a node's hardware; undefined if it has reported none. */
function hardwareOf(node: ExportNode): Record<string, string | number> | undefined {
  const { cpu, memory, pci } = inventoryOf(node)
  const { sockets = 0, cores = 0, threads = 0 } = cpu ?? {}
  const total = memory?.total
  if (threads === 0 || total === undefined) return undefined
  const [perSocket, perCore] = [cores / sockets, threads / cores]
  // Cores of two kinds have no number of threads for each.
  const isEven = Number.isInteger(perSocket) && Number.isInteger(perCore)
  const shape = { Boards: 1, SocketsPerBoard: sockets, CoresPerSocket: perSocket, ThreadsPerCore: perCore }
  const gpus = (pci ?? []).filter(
    ({ class: kind = '', vendor = '' }) => isGpu.test(kind) && gpuMakers.includes(vendor)
  ).length
  return {
    ...{ CPUs: threads, ...(isEven ? shape : {}), RealMemory: Math.floor((total * sureMemory) / 2 ** 20) },
    ...(gpus > 0 ? { Gres: `gpu:${gpus}` } : {})
  }
}

/** Yields a NodeName line for each kind of hardware. The variable `slurm_options` adds and replaces words. */
export function* slurm(nodes: readonly ExportNode[]): Generator<string> {
  const kinds = new Map<string, string[]>()
  const [unknown, unfit]: [string[], string[]] = [[], []]
  for (const node of nodes) {
    yield ''
    const given = node.variables.slurm_options ?? ''
    if (given !== '' && !options.test(given)) unfit.push(node.name)
    const own = options.test(given) ? given.split(' ') : []
    const isOwn = (key: string) => own.some(word => word.toLowerCase().startsWith(`${key.toLowerCase()}=`))
    const hardware = hardwareOf(node)
    if (!hardware && !isOwn('CPUs')) {
      unknown.push(node.name)
      continue
    }
    const found = Object.entries(hardware ?? {}).filter(([key]) => !isOwn(key))
    const line = [...found.map(([key, value]) => `${key}=${value}`), ...own].join(' ')
    pushTo(kinds, line, node.name)
  }
  for (const [line, names] of kinds)
    yield `\nNodeName=${yield* asPauses(foldSliced(names))} ${line} State=UNKNOWN`
  for (const [why, names] of [
    ['no hardware reported yet', unknown],
    ['variable "slurm_options" is no list of Word=value', unfit]
  ] as const)
    if (names.length > 0) yield `\n# ${why}, left out: ${yield* asPauses(foldSliced(names))}`
}

const topSwitch = 'svcd-top'

/** Yields a topology.conf: a leaf for each switch, or for each rack of nodes without one, and one above them. */
export function* slurmTopology(nodes: readonly ExportNode[]): Generator<string> {
  const leaves = new Map<string, string[]>()
  const proposed = new Map<string, string>()
  const alone: string[] = []
  for (const { node, name, variables } of nodes) {
    yield ''
    const place = node.switch || variables.rack
    if (!place) alone.push(name)
    else {
      const leaf = `${node.switch ? 'switch' : 'rack'} ${place}`
      proposed.set(leaf, `${node.switch ? '' : 'rack_'}${asWord(place)}`)
      pushTo(leaves, leaf, name)
    }
  }
  const named = distinct(proposed, name => name === topSwitch)
  for (const [leaf, names] of leaves)
    yield `\nSwitchName=${named.get(leaf)} Nodes=${yield* asPauses(foldSliced(names))}`
  if (alone.length > 0) yield `\n# neither switch nor rack, left out: ${yield* asPauses(foldSliced(alone))}`
  if (leaves.size > 1) yield `\nSwitchName=${topSwitch} Switches=${[...named.values()].join(',')}`
}
