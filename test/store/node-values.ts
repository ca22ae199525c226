import type { FileMedium } from '../../lib/store/files/medium.js'
import { TABLES } from '../../lib/store/record-kinds.js'
import type { RecordedState } from '../../lib/store/records.js'

interface Value {
  readonly node: string
  readonly value: number | string
}

/** A kind without records. */
export const nothing: RecordedState<never> = {
  namesIn: () => [],
  appliesOnceStored: () => false,
  names: () => [],
  recordsOf: () => [],
  replaceRecords: () => {},
  reset: () => {}
}

/** Opens all tables but these: tables are written once all are open. */
export async function openOthers(medium: FileMedium, ...kinds: readonly string[]) {
  for (const kind of TABLES) if (!kinds.includes(kind)) await medium.openRecords(kind, nothing)
}

/** Opens the records of nodes: the last value of each, which is in memory once it is stored. */
export async function openValues(medium: FileMedium, withBoots = true) {
  const values = new Map<string, number | string>()
  const records = await medium.openRecords<Value>('node-status', {
    namesIn: ({ node }) => [node],
    appliesOnceStored: () => true,
    isAddition: () => true,
    names: () => values.keys(),
    recordsOf: node => [{ node, value: values.get(node) ?? '' }],
    replaceRecords: (node, all) => {
      const { value } = all.at(-1) ?? {}
      if (value === undefined) throw new Error('no value')
      values.set(node, value)
    },
    reset: () => values.clear()
  })
  await openOthers(medium, 'node-status', ...(withBoots ? [] : ['node-boots']))
  const put = async (node: string, value: number | string) => {
    await records.append({ node, value })
    values.set(node, value)
  }
  return { values, records, put }
}

interface Line {
  readonly node: string
  readonly line?: string
  readonly kept?: 'memory first' | 'stored first'
  readonly to?: string
}

/** Opens records that are lines of each node: each is added, moved, or removed with its node. */
export async function openLines(medium: FileMedium, kind = 'node-status') {
  const lines = new Map<string, string[]>()
  const of = (node: string) => {
    const known = lines.get(node) ?? []
    lines.set(node, known)
    return known
  }
  const records = await medium.openRecords<Line>(kind, {
    namesIn: ({ node, to }) => (to === undefined ? [node] : [node, to]),
    appliesOnceStored: ({ kept }) => kept === 'stored first',
    isAddition: ({ line }) => line !== undefined,
    names: () => lines.keys(),
    recordsOf: node => (lines.get(node) ?? []).map(line => ({ node, line })),
    replaceRecords: (node, all) => {
      if (all.length === 0) lines.delete(node)
      else
        lines.set(
          node,
          all.map(({ line = '' }) => line)
        )
    },
    reset: () => lines.clear()
  })
  if (kind === 'node-status') await openOthers(medium, kind)
  return {
    lines,
    records,
    async add(node: string, line: string, kept: Line['kept'] = 'memory first') {
      if (kept === 'memory first') of(node).push(line)
      await records.append({ node, line, kept })
      if (kept === 'stored first') of(node).push(line)
    },
    move(node: string, to: string) {
      const known = lines.get(node)
      lines.delete(node)
      if (known) lines.set(to, known)
      return records.append({ node, to })
    },
    remove(node: string) {
      lines.delete(node)
      return records.append({ node })
    }
  }
}

interface Job {
  readonly id: string
  readonly value: number
}

/** Opens records that are a file each: the last value of a job, in memory first. */
export async function openJobs(medium: FileMedium) {
  const values = new Map<string, number>()
  const records = await medium.openRecords<Job>('jobs', {
    namesIn: ({ id }) => [id],
    appliesOnceStored: () => false,
    names: () => values.keys(),
    recordsOf: id => [{ id, value: values.get(id) ?? 0 }],
    replaceRecords: (id, all) => {
      for (const { value } of all) values.set(id, value)
    },
    reset: () => values.clear()
  })
  const put = (id: string, value: number) => {
    values.set(id, value)
    return records.append({ id, value })
  }
  return { values, put }
}
