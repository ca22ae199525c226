// The promises of records, whatever medium stores their texts. A test file for each medium runs this suite.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { StoreError } from '../../lib/store/errors.js'
import type { KeptRecords, RecordedState } from '../../lib/store/records.js'
import { until } from '../support/until.js'

/** A medium, and the controller that has its records open. */
export interface RecordsPlace {
  /** Opens the records of nodes, as a controller that starts now. */
  open(memory: RecordedState<Event>): Promise<KeptRecords<Event>>
  /** Ends that controller: as a stop does, or at once. */
  end(how: 'stop' | 'kill'): Promise<void>
  /** From now on writes succeed, fail, or are carried out and reported as failed if the medium can do so. */
  answer: 'stored' | 'failed' | 'lost'
}

type Event =
  | { readonly node: string; readonly report: string }
  | { readonly node: string; readonly note: string }
  | { readonly node: string; readonly reports: readonly string[]; readonly note: string }
  | { readonly node: string; readonly renamed: string }
  | { readonly node: string; readonly dropped: true }
  | { readonly probe: true }

interface Known {
  readonly reports: string[]
  note: string
}

/** Reports of nodes, which are in memory once they are stored, and notes of them, which are there before. */
class Controller {
  readonly known = new Map<string, Known>()
  readonly #soon = new Set<string>()
  #records!: KeptRecords<Event>

  static async start(place: RecordsPlace): Promise<Controller> {
    const controller = new Controller()
    controller.#records = await place.open(controller.#memory)
    return controller
  }

  async report(node: string, report: string): Promise<void> {
    await this.#records.append({ node, report })
    this.#of(node).reports.push(report)
  }

  note(node: string, note: string): Promise<void> {
    this.#of(node).note = note
    return this.#records.append({ node, note })
  }

  /** Reports that are being stored move along. */
  rename(node: string, renamed: string): Promise<void> {
    const known = this.known.get(node)
    this.known.delete(node)
    if (known) this.known.set(renamed, known)
    return this.#records.append({ node, renamed })
  }

  drop(node: string): Promise<void> {
    this.known.delete(node)
    return this.#records.append({ node, dropped: true })
  }

  /** A note that is stored soon. */
  noteSoon(node: string, note: string): void {
    this.#of(node).note = note
    this.#records.soon(node)
    this.#soon.add(node)
  }

  /** As `rename`, and stored again until it succeeds. */
  move(node: string, renamed: string): Promise<void> {
    const known = this.known.get(node)
    this.known.delete(node)
    if (known) this.known.set(renamed, known)
    return this.#records.rewrite(node, renamed)
  }

  /** Stores what may not be stored yet. */
  async probe(): Promise<void> {
    await this.#records.rewrite(...this.#soon)
    await this.#records.append({ probe: true })
  }

  get health() {
    return this.#records.health
  }

  close(): Promise<void> {
    return this.#records.close()
  }

  get all() {
    return [...this.known].sort(([a], [b]) => (a < b ? -1 : 1))
  }

  #of(node: string): Known {
    const known = this.known.get(node) ?? { reports: [], note: '' }
    this.known.set(node, known)
    return known
  }

  get #memory(): RecordedState<Event> {
    return {
      namesIn: event =>
        'probe' in event ? [] : 'renamed' in event ? [event.node, event.renamed] : [event.node],
      appliesOnceStored: event => 'report' in event,
      isAddition: event => 'report' in event || ('note' in event && !('reports' in event)),
      latest: node => ({ node, note: this.known.get(node)?.note ?? '' }),
      names: () => this.known.keys(),
      recordsOf: node => {
        const known = this.known.get(node)
        return known ? [{ node, ...known }] : []
      },
      replaceRecords: (node, events) => {
        this.known.delete(node)
        for (const event of events) {
          const known = this.#of(node)
          if ('reports' in event) known.reports.push(...event.reports)
          if ('report' in event) known.reports.push(event.report)
          if ('note' in event) known.note = event.note
        }
      },
      reset: () => this.known.clear()
    }
  }
}

/** Runs the suite in `t`, on places that `begin` makes. */
export function testRecords(t: Test, begin: (t: Test) => Promise<RecordsPlace>): void {
  /** Compares what a controller has in memory with what the next one reads. */
  async function againSame(t: Test, place: RecordsPlace, one: Controller, how: 'stop' | 'kill' = 'kill') {
    await place.end(how)
    const again = await Controller.start(place)
    t.strictSame(again.all, one.all)
    return again
  }

  t.test('records: what was stored is there after a stop, and after a kill', async t => {
    const place = await begin(t)
    const one = await Controller.start(place)
    await Promise.all(Array.from({ length: 1000 }, (_, i) => one.report(`n${i % 300}`, `${i}`)))
    await Promise.all([one.note('n1', 'x'), one.note('n2', 'x'), one.drop('n3'), one.rename('n4', 'm4')])
    const two = await againSame(t, place, one)
    await Promise.all([two.report('n1', 'y'), two.note('n1', ''), two.note('m4', 'y')])
    const three = await againSame(t, place, two, 'stop')
    t.equal(three.known.size, 299)
    t.strictSame(three.known.get('n1')?.reports, ['1', '301', '601', '901', 'y'])
    await againSame(t, place, three, 'stop')
  })

  t.test('records: those of one name stay in order, whatever is changed at once', async t => {
    const place = await begin(t)
    const one = await Controller.start(place)
    const waits = one.report('n1', 'a')
    const changes = [one.note('n1', 'first'), one.report('n1', 'b'), one.note('n1', 'last')]
    await Promise.all([waits, ...changes])
    t.match(one.known.get('n1'), { reports: ['a', 'b'], note: 'last' })
    await Promise.all([one.rename('n1', 'n2'), one.report('n2', 'c'), one.drop('n3'), one.note('n2', 'new')])
    const again = await againSame(t, place, one)
    t.strictSame([...again.known.keys()], ['n2'])
  })

  t.test('records: many long ones are all stored', async t => {
    const place = await begin(t)
    const one = await Controller.start(place)
    await Promise.all(Array.from({ length: 100 }, (_, i) => one.report(`n${i}`, 'ä'.repeat(20_000))))
    await againSame(t, place, one)
  })

  t.test('records: a failed one is not there, and memory is stored with the next one', async t => {
    const place = await begin(t)
    const one = await Controller.start(place)
    await one.report('n1', 'a')
    for (const answer of ['failed', 'lost'] as const) {
      place.answer = answer
      const failures = [one.report('n1', 'b'), one.note('n1', answer), one.report('n2', 'a'), one.drop('n3')]
      for (const failure of failures) await t.rejects(failure, StoreError)
      place.answer = 'stored'
      await one.report('n4', answer)
      t.match(one.known.get('n1'), { reports: ['a'], note: answer })
    }
    await againSame(t, place, one)
  })

  t.test('records: a stop stores what waits, and takes no more', async t => {
    const place = await begin(t)
    const one = await Controller.start(place)
    const waits = one.report('n1', 'a')
    await one.close()
    await waits
    await t.rejects(one.report('n2', 'a'), /shutting down/)
    await againSame(t, place, one, 'stop')
  })

  t.test('records: what is stored soon is there a moment later, and after a stop', async t => {
    const place = await begin(t)
    const one = await Controller.start(place)
    one.noteSoon('n1', 'a')
    await sleep(500)
    const two = await againSame(t, place, one)
    await two.report('n2', 'b')
    two.noteSoon('n2', 'b')
    two.noteSoon('n3', 'b')
    await againSame(t, place, two, 'stop')
  })

  t.test('records: nothing of a name is there without what was to be stored soon before it', async t => {
    const place = await begin(t)
    const one = await Controller.start(place)
    await one.report('n1', 'a')
    one.noteSoon('n1', 'first')
    one.noteSoon('n2', 'first')
    await one.report('n1', 'b')
    one.noteSoon('n1', 'lost')
    one.noteSoon('n3', 'lost')
    await place.end('kill')
    const again = await Controller.start(place)
    t.strictSame(again.known.get('n1'), { reports: ['a', 'b'], note: 'first' })
    t.notOk(again.known.has('n3'), 'what was written soon is all that is lost')
  })

  t.test('records: what is stored soon, or follows from a change, is tried until it succeeds', async t => {
    const place = await begin(t)
    const one = await Controller.start(place)
    await one.report('n1', 'a')
    place.answer = 'failed'
    await one.move('n1', 'n2')
    t.equal(one.health.ok, false)
    one.noteSoon('n3', 'x')
    await t.rejects(one.report('n4', 'x'), StoreError)
    place.answer = 'stored'
    await until(() => one.health.ok)
    // The interval of what is stored soon.
    await sleep(2500)
    await againSame(t, place, one)
  })

  t.test('records: a random history is what a map says, over failures, stops and kills', async t => {
    const place = await begin(t)
    const seed = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31))
    t.comment(`FUZZ_SEED=${seed}`)
    let state = seed
    const random = (below: number) => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
      return Math.floor((state / 2 ** 32) * below)
    }
    const name = () => `n${random(8)}`
    let one = await Controller.start(place)
    for (let round = 0; round < 40; round++) {
      for (let step = 0; step < 10; step++) {
        if (random(4) === 0) place.answer = (['stored', 'failed', 'lost'] as const)[random(3)] ?? 'stored'
        const burst = Array.from({ length: 1 + random(6) }, (_, i) => {
          const word = `${round}-${step}-${i}`
          const [node, other] = [name(), name()]
          if (random(2) === 0) return one.report(node, word)
          if (random(4) === 0) return one.noteSoon(node, word)
          if (random(2) === 0) return one.note(node, word)
          if (random(4) === 0 && node !== other) return one.move(node, other)
          return random(2) === 0 && node !== other ? one.rename(node, other) : one.drop(node)
        })
        await Promise.allSettled(burst)
      }
      place.answer = 'stored'
      await one.probe()
      one = await againSame(t, place, one, random(2) === 0 ? 'stop' : 'kill')
    }
  })
}
