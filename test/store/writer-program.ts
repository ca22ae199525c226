// Changes objects and records of a store without end, and prints each change after it was acknowledged.
import { writeSync } from 'node:fs'
import { FileMedium } from '../../lib/store/files/medium.js'
import { Store } from '../../lib/store/store.js'
import { optionsFor } from './fixtures.js'
import { openValues } from './node-values.js'

const [directory = ''] = process.argv.slice(2)
const medium = new FileMedium({ directory, checkpointBytes: 2000 })
const store = await Store.open({ ...optionsFor(directory), medium })
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

/** What nodes report. */
async function reports(): Promise<never> {
  const { values, put } = await openValues(medium)
  const report = async (name: string): Promise<never> => {
    for (;;) {
      const value = Number(values.get(name) ?? 0) + 1
      await put(name, value)
      say(`${name} ${value}`)
    }
  }
  return Promise.race([report('j1'), report('j2')])
}

await Promise.all([single('s1'), single('s2'), several('m1'), several('m2'), reports()])
