// Changes a store and a journal without end, and prints each change after it was acknowledged.
import { writeSync } from 'node:fs'
import { join } from 'node:path'
import { Journal } from '../../lib/store/journal.js'
import { openStore } from './fixtures.js'

const [directory = ''] = process.argv.slice(2)
const store = await openStore(directory)
const say = (line: string) => writeSync(1, `${line}\n`)
say('open')

/** One object. */
async function single(name: string): Promise<never> {
  for (;;) {
    const value = await store.change(tx => {
      const next = (tx.get('counter', name)?.value ?? 0) + 1
      tx.put('counter', name, { name, value: next })
      return next
    })
    say(`${name} ${value}`)
  }
}

/** Four objects at once, three of which are removed at every third value. */
async function several(name: string): Promise<never> {
  for (;;) {
    const value = await store.change(tx => {
      const next = (tx.get('counter', name)?.value ?? 0) + 1
      for (const member of [`${name}-a`, `${name}-b`, `${name}-c`]) {
        if (next % 3 === 0) tx.remove('counter', member)
        else tx.put('counter', member, { name: member, value: next })
      }
      tx.put('counter', name, { name, value: next })
      return next
    })
    say(`${name} ${value}`)
    if (value % 5 === 0) await new Promise(resolve => setTimeout(resolve, 3))
  }
}

async function journal(): Promise<never> {
  const values = new Map<string, number>()
  const log = await Journal.open<{ name: string; value: number }>({
    file: join(directory, 'journal'),
    compactBytes: 2000,
    read: ({ name, value }) => values.set(name, value),
    snapshot: () => [...values].map(([name, value]) => ({ name, value }))
  })
  const append = async (name: string): Promise<never> => {
    for (;;) {
      const record = { name, value: (values.get(name) ?? 0) + 1 }
      await log.append(record)
      values.set(name, record.value)
      say(`${name} ${record.value}`)
    }
  }
  return Promise.race([append('j1'), append('j2')])
}

await Promise.all([single('s1'), single('s2'), several('m1'), several('m2'), journal()])
