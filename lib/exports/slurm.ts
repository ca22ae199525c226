import { asPauses } from '../base/concurrency.js'
import { addTo } from '../base/lists.js'
import { foldSliced } from '../node-set/hostlist.js'
import { asWord, distinct, type ExportNode, inventoryOf } from './nodes.js'

/** Inventories tell memory to 2 %, and slurmd drains a node that has less than its line says. */
const sureMemory = 0.98
/** Slurm counts in 16 bits; slurmctld ends at a line with more, and a node may report anything. */
const mostThreads = 65_000
/** The reason of nodes that no line is made for. */
const notSized = 'no hardware reported yet, or more than Slurm can count'
/** PCI classes of displays and accelerators, of the makers whose cards compute. */
const isGpu = /^(?:03|12)/
const gpuMakers = ['10de', '1002']

/** More parameters of a node: words like `Weight=10`, and none that is another line or another node. */
const options = /^(?!.*\bNodeName=)[A-Za-z]+=[\w.,:()*/-]+(?: [A-Za-z]+=[\w.,:()*/-]+)*$/i

/** Returns what Slurm is told of a node's hardware; undefined if it has reported none, or too much. */
function hardwareOf(node: ExportNode): Record<string, string | number> | undefined {
  const { cpu, memory, pci } = inventoryOf(node)
  const { sockets = 0, cores = 0, threads = 0 } = cpu ?? {}
  const total = memory?.total
  if (threads === 0 || threads > mostThreads || total === undefined) return undefined
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

/** Returns the words of a node's line, with `slurm_options`; undefined if its hardware is not known. */
function wordsOf(node: ExportNode): string | undefined {
  const given = node.variables.slurm_options ?? ''
  const own = options.test(given) ? given.split(' ') : []
  const isOwn = (key: string) => own.some(word => word.toLowerCase().startsWith(`${key.toLowerCase()}=`))
  const hardware = hardwareOf(node)
  if (!hardware && !isOwn('CPUs')) return undefined
  const found = Object.entries(hardware ?? {}).filter(([key]) => !isOwn(key))
  return [...found.map(([key, value]) => `${key}=${value}`), ...own].join(' ')
}

/** Yields a NodeName line for each kind of hardware. The variable `slurm_options` adds and replaces words. */
export function* slurm(nodes: readonly ExportNode[]): Generator<string> {
  const kinds = new Map<string, string[]>()
  const [unknown, unfit]: [string[], string[]] = [[], []]
  for (const node of nodes) {
    yield ''
    const given = node.variables.slurm_options ?? ''
    if (given !== '' && !options.test(given)) unfit.push(node.name)
    const line = wordsOf(node)
    if (line === undefined) unknown.push(node.name)
    else addTo(kinds, line, node.name)
  }
  for (const [line, names] of kinds)
    yield `\nNodeName=${yield* asPauses(foldSliced(names))} ${line} State=UNKNOWN`
  yield* leftOut(notSized, unknown)
  yield* leftOut('variable "slurm_options" is no list of Word=value', unfit)
}

function* leftOut(why: string, names: readonly string[]): Generator<string> {
  if (names.length > 0) yield `\n# ${why}, left out: ${yield* asPauses(foldSliced(names))}`
}

const topSwitch = 'svcd-top'

/** Yields a topology.conf of the nodes of `slurm`: a leaf per switch, or rack without one, and a top. */
export function* slurmTopology(nodes: readonly ExportNode[]): Generator<string> {
  const leaves = new Map<string, string[]>()
  const proposed = new Map<string, string>()
  const [alone, unknown]: [string[], string[]] = [[], []]
  for (const of of nodes) {
    yield ''
    const { node, name, variables } = of
    const place = node.switch || variables.rack
    // slurmctld complains of nodes that `slurm` leaves out.
    if (wordsOf(of) === undefined) unknown.push(name)
    else if (!place) alone.push(name)
    else {
      const leaf = `${node.switch ? 'switch' : 'rack'} ${place}`
      proposed.set(leaf, `${node.switch ? '' : 'rack_'}${asWord(place)}`)
      addTo(leaves, leaf, name)
    }
  }
  const named = distinct(proposed, name => name === topSwitch)
  for (const [leaf, names] of leaves)
    yield `\nSwitchName=${named.get(leaf)} Nodes=${yield* asPauses(foldSliced(names))}`
  yield* leftOut('neither switch nor rack', alone)
  yield* leftOut(notSized, unknown)
  if (leaves.size > 1) yield `\nSwitchName=${topSwitch} Switches=${[...named.values()].join(',')}`
}
