import { addTo } from '../base/lists.js'
import type { InventoryDisk } from '../inventory/facts.js'
import { layoutOf } from '../model/effective.js'
import type { Model } from '../model/model.js'
import { type DiskDoc, type DisklayoutDoc, mebibytes } from '../model/types/disklayout.js'
import { fold } from '../node-set/hostlist.js'
import { layoutSecrets, leastDisks, leastMib } from './data.js'

/** Returns the disks of a node; undefined where no inventory is known. */
type DisksOf = (node: string) => readonly InventoryDisk[] | undefined

/** Whether a name matches a pattern of a shell with * and ?. In time that grows with the pattern alone. */
function matches(pattern: string, name: string): boolean {
  let [at, back, from] = [0, -1, 0]
  let i = 0
  while (i < name.length)
    if (pattern[at] === '*') [back, from] = [at++, i]
    else if (pattern[at] === '?' || (at < pattern.length && pattern[at] === name[i]))
      [at, i] = [at + 1, i + 1]
    else if (back >= 0) [at, i] = [back + 1, ++from]
    else return false
  return /^\**$/.test(pattern.slice(at))
}

const mib = ({ size = 0 }: InventoryDisk) => Math.floor(size / 1_048_576)
const kindOf = ({ name = '', rotational }: InventoryDisk) =>
  name.startsWith('nvme') ? 'nvme' : rotational === false ? 'ssd' : 'hdd'

function fits(disk: InventoryDisk, wanted: DiskDoc, least: number): boolean {
  const { type, max, by_id: pattern } = wanted
  const most = mebibytes(max) ?? Number.POSITIVE_INFINITY
  const named = pattern === undefined || disk.by_id?.some(name => matches(pattern, name)) === true
  return mib(disk) >= least && mib(disk) <= most && (type === undefined || kindOf(disk) === type) && named
}

/** The orders of choice, as `disks` has them by name. */
const orders: Readonly<Record<string, (disks: InventoryDisk[]) => InventoryDisk[]>> = {
  last: disks => disks.reverse(),
  smallest: disks => disks.sort((a, b) => mib(a) - mib(b)),
  largest: disks => disks.sort((a, b) => mib(b) - mib(a))
}

/**
 * Returns why the disks of a node do not suffice for a layout, in the words of the node's script after its
 * name; undefined if they do. Labels of kept file systems are not known here.
 */
export function layoutProblem(layout: DisklayoutDoc, disks: readonly InventoryDisk[]): string | undefined {
  const nameOf = ({ name = '' }: InventoryDisk) => name
  const byName = disks
    .filter(disk => nameOf(disk) !== '' && disk.transport !== 'usb')
    .sort((a, b) => nameOf(a).length - nameOf(b).length || (nameOf(a) < nameOf(b) ? -1 : 1))
  const taken = new Map<InventoryDisk, string>()
  const all = layout.disks ?? []
  const isFirst = ({ keep, partitions = [] }: DiskDoc) => keep === true && partitions.length === 0
  for (const wanted of [...all.filter(isFirst), ...all.filter(one => !isFirst(one))]) {
    const { name, count = 1, order = 'first', type, by_id: pattern } = wanted
    const least = leastMib(wanted, layout)
    const free = byName.filter(disk => !taken.has(disk) && fits(disk, wanted, least))
    const ordered = orders[order]?.(free) ?? free
    for (const disk of ordered.slice(0, count === 'all' ? free.length : count)) taken.set(disk, name)
    if (free.length >= leastDisks(wanted)) continue
    const rule = [type ?? [], pattern ?? [], `${least} MiB or more`].flat().join(', ')
    const has = byName.map(disk => `${disk.name} ${kindOf(disk)} ${mib(disk)} MiB`).join(', ')
    const others = [...taken].filter(([, by]) => by !== name)
    const gone = others.map(([disk, by]) => `; ${disk.name} is taken by "${by}"`).join('')
    return (
      `has ${free.length} fitting disk(s) for "${name}", the disk layout ${layout.name} needs ` +
      `${leastDisks(wanted)} (${rule})${gone}; its disks: ${has || 'none'}`
    )
  }
  return undefined
}

/** Returns why nodes cannot be installed by their disk layouts: a secret that they lack, or their disks. */
export function layoutWarnings(
  model: Pick<Model, 'view' | 'effective'>,
  nodes: Iterable<string>,
  disksOf: DisksOf
): string[] {
  const layouts = [...nodes].flatMap(name => {
    const node = model.view.get('node', name)
    const layout = node && layoutOf(model.view, model.effective(node))
    return layout ? [[name, layout] as const] : []
  })
  const secretsOf = (owner: string) => model.view.get('secrets', owner)?.secrets ?? []
  const lacking = layouts.flatMap(([name, layout]) => {
    const group = model.view.get('node', name)?.group
    const has = [...secretsOf(`node.${name}`), ...secretsOf(`group.${group}`)].map(secret => secret.name)
    return layoutSecrets(layout)
      .filter(secret => !has.includes(secret))
      .map(secret => [name, `lacks the secret "${secret}" of the disk layout ${layout.name}`] as const)
  })
  return [...folded(lacking), ...layoutProblems(layouts, disksOf)]
}

/** Returns why the disks of nodes do not suffice for these layouts. */
export function layoutProblems(
  layouts: Iterable<readonly [node: string, layout: DisklayoutDoc]>,
  disksOf: DisksOf
): string[] {
  return folded(
    [...layouts].flatMap(([name, layout]) => {
      const disks = disksOf(name)
      const why = disks && layoutProblem(layout, disks)
      return why === undefined ? [] : [[name, why] as const]
    })
  )
}

/** Returns one sentence for all nodes that have the same problem. */
function folded(problems: readonly (readonly [node: string, why: string])[]): string[] {
  const found = new Map<string, string[]>()
  for (const [name, why] of problems) addTo(found, why, name)
  return [...found].map(([why, names]) => `${fold(names)}${names.length > 1 ? ': each' : ''} ${why}`)
}
