// Records that controllers share, over a map in the place of etcd.
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { runSync } from '../../lib/base/concurrency.js'
import type { JsonObject } from '../../lib/base/json.js'
import { StoreError } from '../../lib/store/errors.js'
import { TooLargeError } from '../../lib/store/etcd/client.js'
import { keysBelow } from '../../lib/store/etcd/keys.js'
import type { Outcome } from '../../lib/store/etcd/kv.js'
import { EtcdRecords, type RecordsMedium } from '../../lib/store/etcd/records.js'
import type { FirstRecords, Records } from '../../lib/store/records.js'
import { until } from '../support/until.js'
import { testRecords } from './records-suite.js'

type Event =
  | { readonly name: string; readonly value: string }
  | { readonly name: string; readonly renamed: string }
  | { readonly name: string; readonly dropped: true }

const text = (base64: unknown) => Buffer.from(String(base64), 'base64').toString()

/** The key of the head; those of names are below it. */
const HEAD = '/r/records/kind'

type What = 'made' | 'failed' | 'lost' | 'large'

/** Keys in memory, and controllers on them. */
class Place {
  readonly keys = new Map<string, string>()
  writer = 'one'
  transactions = 0
  /** Is asked before a transaction: `lost` carries it out, and tells a failure all the same. */
  before: () => What | Promise<What> = () => 'made'
  readonly warnings: string[] = []

  carryOut(
    revision: string,
    conditions: readonly JsonObject[],
    operations: readonly JsonObject[]
  ): Omit<Outcome, 'revision'> {
    const [{ key, target, value } = {} as JsonObject] = conditions
    const at = text(key)
    const holds = target === 'VALUE' ? this.keys.get(at) === text(value) : !this.keys.has(at)
    const there = this.keys.get(at)
    const found = there === undefined ? undefined : pair(at, there)
    if (revision !== this.writer || !holds) return { succeeded: false, found: [found] }
    for (const { request_put, request_delete_range } of operations as Record<string, JsonObject>[])
      if (request_put) this.keys.set(text(request_put.key), text(request_put.value))
      else if (request_delete_range) this.keys.delete(text(request_delete_range.key))
    return { succeeded: true, found: [] }
  }

  /** The records of a controller, with what is stored. Its transactions can be sent again, by `late`. */
  store(who: string, late: (() => Omit<Outcome, 'revision'>)[] = []): EtcdRecords {
    const place = this
    const keeper: RecordsMedium = {
      get isReadOnly() {
        return place.writer !== who
      },
      get fencingToken() {
        if (place.writer !== who) throw new Error('another controller writes')
        return who
      },
      write: async (...parts) => {
        const [revision, conditions, operations] = parts
        place.transactions++
        const carryOut = () => place.carryOut(revision, conditions, operations)
        late.push(carryOut)
        const what = await place.before()
        if (what === 'made') return carryOut()
        if (what === 'lost') carryOut()
        if (what === 'large') throw new TooLargeError('it has more bytes than etcd takes')
        throw new Error('no answer')
      },
      leadershipLost: () => {
        throw new Error('the right to write was lost')
      }
    }
    const log = (level: string, message: string) => this.warnings.push(`${level} ${message}`)
    const store = new EtcdRecords({ keys: keysBelow('/r/'), keeper, log })
    runSync(store.loading(this.stored()))
    return store
  }

  /** A controller; its last transactions can be sent again, as a network does that was slow. */
  controller(who: string) {
    const late: (() => Omit<Outcome, 'revision'>)[] = []
    const values = new Map<string, string[]>()
    const store = this.store(who, late)
    let records: Records<Event>
    const apply = (event: Event) => {
      const { name } = event
      if ('value' in event) values.set(name, [...(values.get(name) ?? []), event.value])
      else {
        const was = values.get(name)
        values.delete(name)
        if ('renamed' in event && was) values.set(event.renamed, was)
      }
    }
    const eventsOf = (name: string) => (values.get(name) ?? []).map(value => ({ name, value }))
    const open = async (before?: FirstRecords) => {
      records = await store.open<Event>(
        'kind',
        {
          namesIn: event => ('renamed' in event ? [event.name, event.renamed] : [event.name]),
          appliesOnceStored: event => 'value' in event,
          names: () => values.keys(),
          recordsOf: eventsOf,
          replaceRecords: (name, events) => {
            values.delete(name)
            for (const event of events) apply(event)
          },
          reset: () => values.clear()
        },
        before
      )
    }
    /** Adds a value, as a report: it is in memory once it is stored. */
    const add = async (name: string, value: string) => {
      await records.append({ name, value })
      apply({ name, value })
    }
    /** Renames or drops, as a change of an object: memory has it at once. */
    const change = (event: Event) => {
      apply(event)
      return records.append(event)
    }
    const close = () => records.close()
    return { store, values, open, close, add, change, late }
  }

  stored() {
    const texts = new Map<string, string>()
    for (const [key, value] of this.keys)
      if (key.startsWith(`${HEAD}/`)) texts.set(key.slice(HEAD.length + 1), value)
    return new Map([['kind', { head: this.keys.get(HEAD), texts }]])
  }

  /** The stored texts by name. */
  get texts() {
    return this.stored().get('kind')?.texts ?? new Map<string, string>()
  }

  /** Another controller is told of a key, or of its removal. */
  tell(store: EtcdRecords, key: string): void {
    const value = this.keys.get(key)
    store.applyRemote(key, value === undefined ? undefined : Buffer.from(value))
  }

  /** What a controller that starts now knows. */
  async read() {
    const { values, open } = this.controller('reader')
    await open()
    return values
  }
}

const pair = (key: string, value: string) => ({
  ...{ key, value: Buffer.from(value), created: '1', modified: '1', lease: '0' }
})

async function opened(place: Place, who = 'one') {
  const controller = place.controller(who)
  await controller.open()
  return controller
}

t.test('records that wait together are few transactions, a key for each name', async t => {
  const place = new Place()
  const { add, values } = await opened(place)
  await Promise.all(Array.from({ length: 1000 }, (_, i) => add(`n${i % 500}`, `${i}`)))
  t.ok(place.transactions <= 11, `${place.transactions}`)
  t.equal(place.keys.size, 501)
  t.same(await place.read(), values)
  await add('n1', 'again')
  t.strictSame((await place.read()).get('n1'), ['1', '501', 'again'])
})

t.test('long records are several transactions', async t => {
  const place = new Place()
  const { add } = await opened(place)
  let longest = 0
  place.before = () => {
    longest = Math.max(longest, place.transactions)
    return 'made'
  }
  await Promise.all(Array.from({ length: 100 }, (_, i) => add(`n${i}`, 'x'.repeat(20_000))))
  t.ok(longest >= 8, `${longest}`)
  t.equal((await place.read()).size, 100)
})

t.test('a report that waits while its node is renamed goes along; one that is deleted is gone', async t => {
  const place = new Place()
  const { add, change, values } = await opened(place)
  await add('n1', 'a')
  await add('n2', 'a')
  place.before = () => sleep(5, 'made' as const)
  const waits = add('n1', 'b').then(() => {
    // As the states of nodes do: what is kept moves along.
    values.set('to', [...(values.get('to') ?? []), ...(values.get('n1') ?? [])])
    values.delete('n1')
  })
  const renamed = change({ name: 'n1', renamed: 'to' })
  await Promise.all([waits, renamed, change({ name: 'n2', dropped: true })])
  t.strictSame(await place.read(), new Map([['to', ['a', 'b']]]))
})

t.test('what was told as failed and is there is put right; what etcd gets late does nothing', async t => {
  const place = new Place()
  const { add, values, late } = await opened(place)
  await add('n1', 'a')
  place.before = () => 'lost'
  await t.rejects(add('n1', 'lost'), new StoreError('no answer'))
  t.strictSame((await place.read()).get('n1'), ['a', 'lost'])
  place.before = () => 'failed'
  await t.rejects(add('n2', 'failed'), new StoreError('no answer'))
  place.before = () => 'made'
  await add('n3', 'a')
  t.same(await place.read(), values)
  t.strictSame([...values.keys()], ['n1', 'n3'])
  for (const again of late) t.equal(again().succeeded, false)
  t.same(await place.read(), values)
})

t.test('a failure is told to all that wait, and is not tried for each', async t => {
  const place = new Place()
  const { add } = await opened(place)
  place.before = () => 'failed'
  const all = await Promise.allSettled(Array.from({ length: 5000 }, (_, i) => add(`n${i}`, 'a')))
  t.ok(all.every(({ status }) => status === 'rejected'))
  t.ok(place.transactions < 5, `${place.transactions}`)
  place.before = () => 'made'
  await add('n1', 'b')
  t.strictSame((await place.read()).get('n1'), ['b'])
})

t.test('what is refused for its size fails alone, and is not tried again', async t => {
  const place = new Place()
  const { add } = await opened(place)
  place.before = () => (place.transactions === 1 ? 'large' : 'made')
  const large = add('n1', 'x'.repeat(300_000))
  const others = ['n2', 'n3'].map(name => add(name, 'a'))
  await t.rejects(large, new StoreError('it has more bytes than etcd takes'))
  await Promise.all(others)
  t.equal(place.transactions, 2)
  t.strictSame([...(await place.read()).keys()], ['n2', 'n3'])
})

t.test('who follows appends nothing, and takes what is stored', async t => {
  const place = new Place()
  const one = await opened(place)
  const two = await opened(place, 'two')
  await one.add('n1', 'a')
  for (const key of place.keys.keys()) place.tell(two.store, key)
  t.strictSame(two.values, one.values)
  await t.rejects(two.add('n1', 'b'), new StoreError('another controller writes'))
  t.equal(two.store.isReadOnly, true)
  place.keys.delete(`${HEAD}/n1`)
  place.tell(two.store, `${HEAD}/n1`)
  t.equal(two.values.size, 0)
})

t.test('who takes over finishes what the one before left', async t => {
  const place = new Place()
  const one = await opened(place)
  await Promise.all(['gone', 'old', 'stays'].map(name => one.add(name, 'a')))
  const two = await opened(place, 'two')
  // The change of the nodes is heard; what follows from it was not written any more.
  two.values.delete('gone')
  two.values.set('new', two.values.get('old') ?? [])
  two.values.delete('old')
  place.writer = 'two'
  two.store.becameLeader()
  await until(() => place.keys.has(`${HEAD}/new`))
  t.same(await place.read(), two.values)
  t.strictSame([...two.values.keys()].sort(), ['new', 'stays'])
  await t.rejects(one.add('n9', 'a'), StoreError)
})

t.test('who takes over where nothing is left to do goes on', async t => {
  const place = new Place()
  const { store, add } = await opened(place)
  await add('n1', 'a')
  store.becameLeader()
  await sleep(10)
  await add('n1', 'b')
  t.strictSame((await place.read()).get('n1'), ['a', 'b'])
})

t.test('all is taken anew, in slices', async t => {
  const place = new Place()
  const one = await opened(place)
  const two = await opened(place, 'two')
  two.values.set('strange', ['x'])
  await Promise.all(Array.from({ length: 10 }, (_, i) => one.add(`n${i}`, 'a')))
  t.equal([...two.store.loading(place.stored())].length, 10)
  t.same(two.values, one.values)
  place.writer = 'two'
  await two.add('n1', 'b')
  t.strictSame((await place.read()).get('n1'), ['a', 'b'])
})

/** Of 250 names. */
const first = new Map(
  Array.from({ length: 250 }, (_, i) => [`n${i}`, `{"name":"n${i}","value":"a"}\n`] as const)
)

t.test('it begins with the records of a file, also after a crash, and once', async t => {
  const place = new Place()
  let opens = 0
  const before = async () => {
    opens++
    return first
  }
  place.before = () => (place.transactions > 1 ? 'failed' : 'made')
  await t.rejects(place.controller('one').open(before), /no answer/)
  t.equal(place.texts.size, 100)
  place.before = () => 'made'
  const again = place.controller('one')
  await again.open(before)
  t.equal(place.texts.size, 250)
  await again.add('n1', 'b')
  await again.change({ name: 'n2', dropped: true })
  const last = place.controller('one')
  await last.open(before)
  t.equal(opens, 2)
  t.same(last.values, again.values)
  const standby = new Place()
  standby.writer = 'two'
  await standby.controller('one').open(before)
  t.equal(opens, 2, 'who follows brings nothing')
})

t.test('what was not brought to its end is not taken for the whole', async t => {
  const place = new Place()
  const before = async () => first
  place.before = () => (place.transactions > 1 ? 'failed' : 'made')
  await t.rejects(place.controller('one').open(before), /no answer/)
  place.before = () => 'made'
  place.writer = 'two'
  const two = await opened(place, 'two')
  await two.add('n0', 'b')
  place.writer = 'one'
  await place.controller('one').open(before)
  t.equal(place.texts.size, 250)
  t.strictSame((await place.read()).get('n0'), ['a', 'b'])
})

t.test('what is no record is named, and left out', async t => {
  const place = new Place()
  const { add } = await opened(place)
  await add('n1', 'a')
  place.keys.set(`${HEAD}/n2`, '{"name')
  place.keys.set(HEAD, 'strange')
  t.strictSame(await place.read(), new Map([['n1', ['a']]]))
  t.match(place.warnings, [/^warn \/r\/records\/kind\/n2 in etcd is no record, and is left out: /])
  await add('n2', 'b')
  t.strictSame((await place.read()).get('n2'), ['b'])
})

t.test('a stop finishes what waits, and takes no more', async t => {
  const place = new Place()
  const { add, close } = await opened(place)
  const waits = add('n1', 'a')
  await close()
  await waits
  await t.rejects(add('n2', 'a'), /shutting down/)
})

testRecords(t, async () => {
  const place = new Place()
  let starts = 0
  let end = () => Promise.resolve()
  return {
    open: async memory => {
      place.writer = `start${++starts}`
      const records = await place.store(place.writer).open('kind', memory)
      end = () => records.close()
      return records
    },
    end: how => (how === 'stop' ? end() : Promise.resolve()),
    set answer(what: 'stored' | 'failed' | 'lost') {
      place.before = () => (what === 'stored' ? 'made' : what)
    }
  }
})
