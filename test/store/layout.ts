import type { Layout } from '../../lib/store/start.js'
import type { Index } from '../../lib/store/types.js'
import { Store, type StoreOptions } from './file-store.js'
import { type Counter, kinds } from './fixtures.js'

/** A layout in which a counter was `count` first, then `value`, and is ten times as much since. */
export const layoutOf = (release: string): Layout => ({
  release,
  steps: [
    state => {
      for (const name of state.names('counter')) {
        const { count, ...rest } = state.get('counter', name) ?? {}
        state.put('counter', name, { ...rest, ...(count === undefined ? {} : { value: count }) })
      }
    },
    // Done twice, it would show.
    state => {
      for (const name of state.names('counter')) {
        const doc = state.get('counter', name)
        if (typeof doc?.value === 'number') state.put('counter', name, { ...doc, value: doc.value * 10 })
      }
    }
  ]
})

class NoIndex implements Index {
  update(): void {}
}

type Counters = { counter: Counter }

/** A store of counters in that layout. */
export const openCounters = (
  directory: string,
  more: Partial<StoreOptions<Counters, NoIndex>> = {}
): Promise<Store<Counters, NoIndex>> =>
  Store.open({
    directory,
    kinds: { counter: kinds.counter },
    createIndex: () => new NoIndex(),
    layout: layoutOf('0.2.0'),
    ...more
  })

export const counter = (name: string, value: number): Counter => ({ name, value })
