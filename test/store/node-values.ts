import type { FileMedium } from '../../lib/store/files/medium.js'
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

/** Opens the records of nodes: the last value of each, which is in memory once it is stored. */
export async function openValues(medium: FileMedium) {
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
  // Tables are written once all kinds are open.
  await medium.openRecords('node-boots', nothing)
  const put = async (node: string, value: number | string) => {
    await records.append({ node, value })
    values.set(node, value)
  }
  return { values, records, put }
}
