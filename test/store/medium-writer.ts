// Changes a store without end, in the medium that its words name, and prints each change after it was
// acknowledged.
import { writeSync } from 'node:fs'
import { EtcdMedium } from '../../lib/store/etcd/medium.js'
import { FileMedium } from '../../lib/store/files/medium.js'
import type { Medium } from '../../lib/store/medium.js'
import { Store } from '../../lib/store/store.js'
import { kinds, MacIndex, type TestTypes } from './fixtures.js'

const media: Readonly<Record<string, (...words: string[]) => Medium>> = {
  files: (directory = '') => new FileMedium({ directory }),
  etcd: (url = '', prefix = '', ttl = '1') =>
    new EtcdMedium({ endpoints: [url], prefix, ttlSeconds: Number(ttl) })
}

const [word = '', ...words] = process.argv.slice(2)
const medium = media[word]?.(...words)
if (!medium) throw new Error(`no medium ${word}`)
const store = await Store.open<TestTypes, MacIndex>({ medium, kinds, createIndex: () => new MacIndex() })
const say = (line: string) => writeSync(1, `${line}\n`)
say('open')

/** The named counter, and others with the same value, in one change. */
async function together(name: string, others: readonly string[], restMs: number): Promise<never> {
  for (;;) {
    const value = await store.change(tx => {
      const next = (tx.get('counter', name)?.value ?? 0) + 1
      for (const each of [name, ...others]) tx.put('counter', each, { name: each, value: next })
      return next
    })
    say(`${name} ${value}`)
    await new Promise(resolve => setTimeout(resolve, restMs))
  }
}

const many = Array.from({ length: 200 }, (_, i) => `many-${i}`)
await Promise.all([
  together('single', [], 0),
  together('several', ['several-a', 'several-b', 'several-c'], 2),
  together('many', many, 20)
])
