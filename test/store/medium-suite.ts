// What a store promises, whatever medium it is kept in. A test file for each medium runs this suite on a
// place of its own.
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { problemText } from '../../lib/base/errors.js'
import { LoadError, StoreError } from '../../lib/store/errors.js'
import type { Medium } from '../../lib/store/medium.js'
import type { StoreOptions } from '../../lib/store/start.js'
import { Store } from '../../lib/store/store.js'
import type { Change } from '../../lib/store/types.js'
import { start } from '../support/child.js'
import { until } from '../support/until.js'
import { kinds, MacIndex, node, type TestTypes } from './fixtures.js'
import { layoutOf } from './layout.js'

/** A place where one store is kept. */
export interface Place {
  /** A medium on it, not opened yet. */
  medium(): Medium
  /** A medium whose holder was killed: it stops as it is, and takes no more part. */
  abandon(medium: Medium): Promise<void>
  /** Stores a text by hand, while no store is open. */
  put(type: string, name: string, text: string): Promise<void>
  /**
   * So many writes succeed from now on, and all after them fail: before they are done, or after it where
   * `late` and the medium has such a moment.
   */
  failAfter(writes: number, late: boolean): void
  /** How many writes failed since. */
  readonly failures: number
  heal(): void
  /** What makes test/store/medium-writer.ts write to it. */
  readonly words: readonly string[]
}

/** Under test: how a place is made, and how many rounds of kill -9 it gets. */
export interface MediumTest {
  place(t: Test): Promise<Place>
  readonly kills: number
  /** Whether the medium has a moment for what `failAfter` calls late; absent, it has. */
  readonly hasLate?: boolean
  /** Makes a place with what is stored in another one, which no store has open; absent, it is filled anew. */
  copy?(t: Test, place: Place): Place
}

type Options = Partial<StoreOptions<TestTypes, MacIndex>>
type TestStore = Store<TestTypes, MacIndex>

const open = (medium: Medium, more: Options = {}): Promise<TestStore> =>
  Store.open<TestTypes, MacIndex>({ medium, kinds, createIndex: () => new MacIndex(), ...more })

/** All that is stored, as the next start finds it. */
async function found(place: Place): Promise<Record<string, unknown>> {
  const store = await open(place.medium())
  const all = allOf(store)
  await store.close()
  return all
}

const allOf = ({ current }: TestStore): Record<string, unknown> =>
  Object.fromEntries(
    (['node', 'counter'] as const).flatMap(type =>
      current.names(type).map(name => [`${type}/${name}`, current.get(type, name)])
    )
  )

const count = (store: TestStore, by = 1) =>
  store.change(tx => {
    const value = (tx.get('counter', 'c')?.value ?? 0) + by
    tx.put('counter', 'c', { name: 'c', value })
    return value
  })

/** Enough objects, and bytes, that no medium takes them as one write. */
const large = (character: string) =>
  Array.from({ length: 300 }, (_, i) => ({ ...node(`n${i}`), tags: [character.repeat(10_000)] }))

const putAll = (store: TestStore, nodes: ReturnType<typeof large>) =>
  store.change(tx => {
    for (const one of nodes) tx.put('node', one.name, one)
  })

/**
 * The changes that may be broken off: of one object, of several, of very many. Each makes all objects that it
 * names its own.
 */
const changes: Readonly<Record<string, (store: TestStore) => Promise<unknown>>> = {
  'one object': store => count(store, 100),
  'one that is removed': store => store.change(tx => tx.remove('node', 'n1')),
  several: store =>
    store.change(tx => {
      tx.put('counter', 'c', { name: 'c', value: -1 })
      tx.put('node', 'n1', node('n1', 'cc'))
      tx.put('node', 'n2', node('n2', 'aa'))
      tx.remove('node', 'n0')
    }),
  'very many': store => putAll(store, large('y'))
}

async function filled(place: Place): Promise<Record<string, unknown>> {
  const store = await open(place.medium())
  await count(store)
  await store.change(tx => {
    for (const name of ['n0', 'n1', 'n2']) tx.put('node', name, node(name, name === 'n1' ? 'aa' : null))
  })
  const all = allOf(store)
  await store.close()
  return all
}

type Filled = { readonly place: Place; readonly before: Record<string, unknown> }

/** Returns what makes places that `filled` has filled. A copy spares each of them a start and a stop. */
function filling(medium: MediumTest): (t: Test) => Promise<Filled> {
  const make = async (t: Test) => {
    const place = await medium.place(t)
    return { place, before: await filled(place) }
  }
  let first: Promise<Filled> | undefined
  return async each => {
    if (!medium.copy) return make(each)
    first ??= make(t)
    const { place, before } = await first
    return { place: medium.copy(each, place), before }
  }
}

/** Runs the whole suite. */
export function testMedium(medium: MediumTest): void {
  const filledPlace = filling(medium)
  const moments = medium.hasLate === false ? [false] : [false, true]
  t.test('what is acknowledged is there at the next start, in order, the index too', async t => {
    const place = await medium.place(t)
    const store = await open(place.medium())
    const told: Change[] = []
    store.subscribe(changes => told.push(...changes))
    await store.change(tx => {
      for (const name of ['n10', 'n2', 'n1', 'gone']) tx.put('node', name, node(name))
      tx.put('node', 'n1', node('n1', 'aa'))
    })
    t.equal(told.length, 4)
    const values = await Promise.all(Array.from({ length: 200 }, () => count(store)))
    t.strictSame(
      values,
      [...values.keys()].map(i => i + 1),
      'one after the other, in the order they were asked for'
    )
    await store.change(tx => tx.remove('node', 'gone'))
    const odd = { ...node('é ü.x~'), tags: ['\u0000"\\\u{1f600}', ''] }
    await store.change(tx => tx.put('node', odd.name, odd))
    const all = allOf(store)
    await store.close()
    const again = await open(place.medium())
    t.strictSame(again.current.names('node'), ['n1', 'n2', 'n10', 'é ü.x~'])
    t.equal(again.current.index.owner.get('aa'), 'n1')
    t.strictSame(allOf(again), all)
    t.equal(again.current.get('counter', 'c')?.value, 200)
    await again.close()
  })

  t.test('a change of very many objects, at once and in steps, and what follows it at once', async t => {
    const place = await medium.place(t)
    const store = await open(place.medium())
    const waiting = [putAll(store, large('x')), count(store), store.change(tx => tx.remove('node', 'n7'))]
    await Promise.all(waiting)
    await store.changeInSteps(function* (tx) {
      for (let i = 0; i < 500; i++) yield tx.put('counter', `c${i}`, { name: `c${i}`, value: i })
    })
    await count(store)
    await store.close()
    const all = await found(place)
    t.equal(Object.keys(all).length, 299 + 501)
    t.strictSame(all['counter/c'], { name: 'c', value: 2 })
    t.strictSame(all['node/n8'], large('x')[8])
  })

  t.test('one writer at a time; who gave the right back has it no more', async t => {
    const place = await medium.place(t)
    const first = place.medium()
    const store = await open(first)
    await count(store)
    await t.rejects(open(place.medium()), Error)
    await count(store)
    t.strictSame(store.health, { ok: true, reason: '' })
    await store.close()
    const second = await open(place.medium())
    t.equal(await count(second), 3)
    await t.rejects(first.commit([]), Error)
    await t.rejects(count(store), StoreError)
    await second.close()
  })

  t.test('what fails is undone, in memory and in the medium; it comes back by itself', async t => {
    for (const late of moments) {
      const place = await medium.place(t)
      const before = await filled(place)
      const store = await open(place.medium())
      const told: unknown[] = []
      store.subscribe(changes => told.push(...changes))
      for (const [name, change] of Object.entries(changes)) {
        place.failAfter(0, late)
        const both = [change(store), count(store)]
        for (const result of await Promise.allSettled(both))
          t.match(result, { status: 'rejected', reason: StoreError }, `${name}: and what builds on it`)
        t.strictSame(allOf(store), before, name)
        t.equal(store.current.index.owner.get('aa'), 'n1', name)
        t.notOk(store.health.ok)
        t.not(store.health.reason, '')
        place.heal()
        await until(() => store.health.ok, name)
        t.strictSame(await store.change(tx => tx.get('counter', 'c')?.value), 1)
      }
      t.strictSame(told, [])
      t.equal(await count(store), 2, 'no restart is needed')
      await store.close()
      t.strictSame(await found(place), { ...before, 'counter/c': { name: 'c', value: 2 } })
    }
  })

  for (const [name, change] of Object.entries(changes))
    t.test(`all or none, whichever write fails: ${name}`, async t => {
      for (const late of moments)
        for (let writes = 0, isOver = false; !isOver; writes = further(writes)) {
          const moment = `${writes} writes done, ${late ? 'then answers' : 'then writes'} lost`
          const { place, before } = await filledPlace(t)
          const store = await open(place.medium())
          place.failAfter(writes, late)
          const done = await change(store).then(
            () => true,
            () => false
          )
          const after = allOf(store)
          if (!done) t.strictSame(after, before, moment)
          // What goes on in the background, and is not needed for the answer, may fail too.
          isOver = place.failures === 0 && done
          place.heal()
          await until(() => store.health.ok, moment)
          await store.change(tx => tx.put('counter', 'later', { name: 'later', value: writes }))
          await store.close()
          const later = { 'counter/later': { name: 'later', value: writes } }
          t.strictSame(await found(place), { ...after, ...later }, moment)
        }
    })

  for (const [name, change] of Object.entries(changes))
    t.test(`a writer that stops half-way: ${name}`, async t => {
      const seen = new Set<boolean>()
      for (let writes = 0, isOver = false; !isOver; writes = further(writes)) {
        const { place, before } = await filledPlace(t)
        const held = place.medium()
        const store = await open(held)
        place.failAfter(writes, false)
        const done = await change(store).then(
          () => true,
          () => false
        )
        isOver = done && (await quiet(place))
        await place.abandon(held)
        await store.close()
        place.heal()
        const all = await found(place)
        const isThere = JSON.stringify(all) !== JSON.stringify(before)
        if (done) t.ok(isThere, `acknowledged, and there: ${writes} writes done`)
        seen.add(isThere)
        if (isThere && name === 'very many')
          t.equal(Object.values(all).filter(one => JSON.stringify(one).includes('yyy')).length, 300)
        if (isThere && name === 'several') {
          t.strictSame(all, {
            'counter/c': { name: 'c', value: -1 },
            'node/n1': node('n1', 'cc'),
            'node/n2': node('n2', 'aa')
          })
        }
        t.strictSame(await found(place), all, 'the next start finds the same')
      }
      t.same([...seen].sort(), [false, true], 'it was stopped before and after its commit')
    })

  t.test('what is damaged stops the start and is named; nothing is changed', async t => {
    const place = await medium.place(t)
    await filled(place)
    await place.put('node', 'broken', '{\n  "name": "broken",\n')
    await place.put('counter', 'other', '{\n  "name": "c"\n}\n')
    const error = await open(place.medium()).catch((error: unknown) => error)
    t.ok(error instanceof LoadError, String(error))
    const told = error instanceof LoadError ? error.problems.map(problemText) : []
    const expected = [/node\/broken.*not JSON/, /counter\/other.*name is "c", not "other"/]
    t.match(told, expected)
    const inspected = await Store.inspect({
      medium: place.medium(),
      kinds,
      createIndex: () => new MacIndex()
    })
    t.match(inspected.map(problemText), expected, 'a look without the right to write tells the same')
    t.equal(inspected.length, told.length)
    await place.put('node', 'broken', `${JSON.stringify(node('broken'))}\n`)
    await place.put('counter', 'other', '{"name":"other","value":7}')
    t.equal(Object.keys(await found(place)).length, 6, 'put right by hand')
  })

  t.test('a state of an older layout is brought to today’s as a whole', async t => {
    for (let writes = 0, isOver = false; !isOver; writes = further(writes)) {
      const place = await medium.place(t)
      await found(place)
      const names = Array.from({ length: 150 }, (_, i) => `c${i}`)
      for (const name of names.slice(0, 5)) await place.put('counter', name, `{"name":"${name}","count":3}\n`)
      const layout = layoutOf('0.2.0')
      const held = place.medium()
      place.failAfter(writes, false)
      const store = await open(held, { layout }).catch(() => undefined)
      isOver = store !== undefined && (await quiet(place))
      await place.abandon(held)
      await store?.close()
      place.heal()
      const again = await open(place.medium(), { layout })
      for (const name of names.slice(0, 5)) t.equal(again.current.get('counter', name)?.value, 30)
      await again.close()
      const { steps } = layout
      const newer = { ...layout, steps: steps.slice(1) }
      await t.rejects(open(place.medium(), { layout: newer }), /layout version 2, written by svcd 0.2.0/)
    }
  })

  t.test(
    `kill -9 at ${medium.kills} random moments`,
    { timeout: 300_000 + medium.kills * 10_000 },
    async t => {
      const place = await medium.place(t)
      const acknowledged = new Map<string, number>()
      // Further rounds where the machine is so busy that a change was never acknowledged.
      const isSeen = () => acknowledged.size === 3
      for (let round = 1; round <= medium.kills || (!isSeen() && round < 20 * medium.kills); round++) {
        const program = start(process.execPath, [
          join(import.meta.dirname, 'medium-writer.js'),
          ...place.words
        ])
        t.teardown(() => program.kill())
        t.equal(await program.says(/^open$/m), 'open', `round ${round}: starts without a hand`)
        // A busy machine may take longer than the pause for the first change: some kills come after it.
        if (round % 2 === 0)
          for (const name of ['single', 'several', 'many']) await program.says(new RegExp(`^${name} `, 'm'))
        await sleep(Math.random() * 150)
        await program.kill()
        for (const line of (await program.ended).stdout.split('\n').slice(0, -1)) {
          const [name = '', value] = line.split(' ')
          if (value !== undefined) acknowledged.set(name, Number(value))
        }
        const all = await found(place)
        const stored = (name: string) => (all[`counter/${name}`] as { value: number } | undefined)?.value ?? 0
        for (const [name, value] of acknowledged)
          t.ok(stored(name) >= value, `round ${round}: ${name} was acknowledged with ${value}`)
        const odd = ['a', 'b', 'c'].filter(member => stored(`several-${member}`) !== stored('several'))
        t.strictSame(odd, [], `round ${round}: no half change`)
        const many = new Set(Array.from({ length: 200 }, (_, i) => stored(`many-${i}`)))
        t.strictSame([...many], [stored('many')], `round ${round}: no half change of many`)
      }
      t.comment(`acknowledged: ${[...acknowledged].join(' ')}`)
      t.ok(isSeen(), 'all three kinds of change were acknowledged')
    }
  )
}

/**
 * The next number of writes to try: every one of the first, then ever fewer of what goes on in the
 * background.
 */
const further = (writes: number) =>
  writes < 8 ? writes + 1 : Math.ceil(writes * (process.env.SVCD_LONG === undefined ? 2 : 1.5))

/** Whether nothing more fails: what goes on in the background has ended well. */
async function quiet(place: Place): Promise<boolean> {
  await sleep(50)
  return place.failures === 0
}
