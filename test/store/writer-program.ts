// Changes objects and records of a store without end, and prints each change after it was acknowledged.
import { writeSync } from 'node:fs'
import { FileMedium } from '../../lib/store/files/medium.js'
import { Store } from '../../lib/store/store.js'
import { fastClock, optionsFor } from './fixtures.js'
import { openJobs, openLines, openValues } from './node-values.js'

const [directory = ''] = process.argv.slice(2)
// Files, tables and cuts come soon, so that kills hit them.
const medium = new FileMedium({
  directory,
  clock: fastClock(30),
  checkpointBytes: 2000,
  segmentBytes: 20_000
})
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

/** Two hundred objects at once. */
async function many(name: string): Promise<never> {
  for (;;) {
    const value = await store.change(tx => {
      const next = (tx.get('counter', name)?.value ?? 0) + 1
      for (let i = 0; i < 200; i++) tx.put('counter', `${name}-${i}`, { name: `${name}-${i}`, value: next })
      tx.put('counter', name, { name, value: next })
      return next
    })
    say(`${name} ${value}`)
    await new Promise(resolve => setTimeout(resolve, 10))
  }
}

/** Writes reports of nodes, their boots, and jobs. */
async function records(): Promise<never> {
  const { values, put } = await openValues(medium, false)
  const { lines, add } = await openLines(medium, 'node-boots')
  const jobs = await openJobs(medium)
  const report = async (name: string): Promise<never> => {
    for (;;) {
      const value = Number(values.get(name) ?? 0) + 1
      await put(name, value)
      say(`${name} ${value}`)
    }
  }
  const boot = async (name: string): Promise<never> => {
    for (;;) {
      const value = Number(lines.get(name)?.at(-1) ?? 0) + 1
      await add(name, `${value}`)
      say(`${name} ${value}`)
      const known = lines.get(name) ?? []
      known.splice(0, known.length - 20)
    }
  }
  const work = async (name: string): Promise<never> => {
    for (;;) {
      const value = (jobs.values.get(name) ?? 0) + 1
      await jobs.put(name, value)
      say(`${name} ${value}`)
    }
  }
  return Promise.race([report('r1'), report('r2'), boot('b1'), boot('b2'), work('w1')])
}

await Promise.all([single('s1'), single('s2'), several('m1'), several('m2'), many('many'), records()])
