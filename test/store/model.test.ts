// Random histories of the file medium against maps in memory: changes of objects and records, files behind
// the log, checkpoints, failures, crashes at any operation on the disk, restarts, edits by hand.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { FileMedium } from '../../lib/store/files/medium.js'
import { Store } from '../../lib/store/store.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import {
  fastClock,
  type MacIndex,
  node,
  optionsFor,
  systemError,
  TestFiles,
  type TestTypes
} from './fixtures.js'
import { openLines } from './node-values.js'

const isLong = process.env.SVCD_LONG !== undefined
const steps = Number(process.env.SVCD_MODEL_STEPS ?? (isLong ? 100_000 : 800))
/** Objects, and the most that one change has: each start reads them all, and each stop writes them. */
const [nodes, most] = isLong ? [400, 300] : [150, 100]
const seed = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31))

let state = seed
function random(below: number): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
  return Math.floor((state / 2 ** 32) * below)
}
const oneOf = <T>(items: readonly T[]): T => items[random(items.length)] as T

/** Files, tables and cuts come between any two steps. */
const clock = fastClock(100)

type Objects = Map<string, string>
type Change = ReadonlyMap<string, string | undefined>
type Lines = Map<string, readonly string[]>

/** A process with the state open. */
class Run {
  readonly files = new TestFiles()
  readonly logged: string[] = []
  isDead = false
  #left = Number.POSITIVE_INFINITY
  #failures = 0
  store!: Store<TestTypes, MacIndex>
  reports!: Awaited<ReturnType<typeof openLines>>

  /** Opens it; with `dies`, it is killed before that operation on the disk. */
  static async open(directory: string, dies = Number.POSITIVE_INFINITY): Promise<Run> {
    const run = new Run()
    run.#left = dies
    run.files.before = () => {
      if (run.#left-- <= 0) run.isDead = true
      if (run.isDead || run.#failures-- > 0) throw systemError('EIO')
    }
    const medium = new FileMedium({
      ...{ directory, clock, files: run.files, checkpointBytes: 2000, segmentBytes: 3000 },
      log: (_, message) => run.logged.push(message)
    })
    run.store = await Store.open<TestTypes, MacIndex>({ ...optionsFor(directory), medium })
    run.reports = await openLines(medium)
    return run
  }

  dieAfter(operations: number): void {
    this.#left = operations
    this.files.isShort = random(2) === 0
  }

  fail(operations: number): void {
    this.#failures = operations
    this.files.isShort = random(2) === 0
  }

  heal(): void {
    this.#failures = 0
  }

  async kill(): Promise<void> {
    this.#left = 0
    await this.stop()
  }

  async stop(): Promise<void> {
    await this.reports.records.close()
    await this.store.close()
  }

  change(change: Change): Promise<void> {
    return this.store.change(tx => {
      for (const [name, mac] of change)
        if (mac === undefined) tx.remove('node', name)
        else tx.put('node', name, node(name, mac))
    })
  }

  get objects(): Objects {
    const { current } = this.store
    return new Map(current.names('node').map(name => [name, current.get('node', name)?.mac ?? '']))
  }

  get lines(): Lines {
    return new Map(Array.from(this.reports.lines, ([name, lines]) => [name, [...lines]]))
  }
}

const applied = (objects: Objects, changes: readonly Change[]): Objects => {
  const all = new Map(objects)
  for (const change of changes)
    for (const [name, mac] of change)
      if (mac === undefined) all.delete(name)
      else all.set(name, mac)
  return all
}
const textOf = (map: ReadonlyMap<string, unknown>) =>
  JSON.stringify([...map].sort(([a], [b]) => (a < b ? -1 : 1)))

let count = 0
function randomChange(objects: Objects): Change {
  const change = new Map<string, string | undefined>()
  const size = oneOf([1, 1, 1, 2, 5, 40, most])
  for (let i = 0; i < size; i++) {
    const name = `n${random(nodes)}`
    if (random(4) > 0) change.set(name, `m${count++}`)
    else if (objects.has(name)) change.set(name, undefined)
  }
  return change
}

/** Begins a random change of records; returns the names in it. */
function randomReport(run: Run): { names: string[]; done: Promise<void> } {
  const [name, other] = [`r${random(12)}`, `r${random(12)}`]
  const kind = random(10)
  if (kind === 0) return { names: [name], done: run.reports.remove(name) }
  if (kind === 1 && name !== other) return { names: [name, other], done: run.reports.move(name, other) }
  return { names: [name], done: run.reports.add(name, `l${count++}`) }
}

t.test(`${steps} random steps; FUZZ_SEED=${seed}`, { timeout: 500_000 + steps * 200 }, async t => {
  t.comment(`FUZZ_SEED=${seed}`)
  const directory = scratch(t)
  let run = await Run.open(directory)
  let objects: Objects = new Map()
  let lines: Lines = new Map()
  const seen = { acknowledged: 0, refused: 0, crashes: 0, starts: 0, stops: 0, edits: 0, unknown: 0 }
  const failed: string[] = []

  /** Makes some changes at once; takes their outcome into the maps. Returns what is unknown after a crash. */
  async function burst() {
    const changes = Array.from({ length: random(4) }, () => randomChange(objects))
    const work = changes.map(change => run.change(change))
    const reports = Array.from({ length: random(4) }, () => {
      const report = randomReport(run)
      return { ...report, after: run.lines }
    })
    const outcomes = await Promise.allSettled(work)
    const stored = await Promise.allSettled(reports.map(({ done }) => done))
    const isDone = (outcome: PromiseSettledResult<void>) => outcome.status === 'fulfilled'
    seen.acknowledged += [...outcomes, ...stored].filter(isDone).length
    seen.refused += [...outcomes, ...stored].length - [...outcomes, ...stored].filter(isDone).length
    const before = lines
    const isKnown = outcomes.map(isDone)
    return { changes, isKnown, reports, stored: stored.map(isDone), before }
  }

  /** All subsets of the changes that were not acknowledged, with those that were. */
  function* outcomes(changes: readonly Change[], isKnown: readonly boolean[]): Generator<Change[]> {
    const open = changes.flatMap((_, i) => (isKnown[i] ? [] : [i]))
    for (let bits = 0; bits < 2 ** open.length; bits++)
      yield changes.filter((_, i) => isKnown[i] || (bits >> open.indexOf(i)) & 1)
  }

  /** Starts again, after a kill maybe in several tries. */
  async function restart(): Promise<void> {
    for (let tries = random(3); tries > 0; tries--) {
      const killed = await Run.open(directory, random(30)).catch(() => undefined)
      await killed?.kill()
    }
    run = await Run.open(directory)
    seen.starts++
    const alarms = run.logged.filter(line => line.includes('edited') || line.includes('damaged'))
    if (alarms.length > 0) failed.push(`alarm: ${alarms[0]}`)
  }

  /** Returns files that are missing, too many, or without the content of their object. */
  function wrongFiles(): string[] {
    const files = new Set(readdirSync(join(directory, 'node')))
    const wrong = [...objects].filter(([name, mac]) => {
      const file = `${name}.json`
      return !files.delete(file) || !readFileSync(join(directory, 'node', file), 'utf8').includes(`"${mac}"`)
    })
    return [...files, ...wrong.map(([name]) => name)]
  }

  /** Stops. After a stop that took more than its 5 s the next start writes the rest, and is stopped too. */
  async function stopWhole(): Promise<void> {
    await run.stop()
    while (run.logged.some(line => line.includes('shutting down'))) {
      run = await Run.open(directory)
      await until(() => wrongFiles().length === 0)
      await run.stop()
    }
  }

  const isSeen = () => seen.crashes > 0 && seen.unknown > 0 && seen.refused > 0 && seen.edits > 0
  // Further steps until all of it was seen: with luck none of the first ones leaves a change unknown.
  for (let step = 0; failed.length === 0 && (step < steps || (!isSeen() && step < 20 * steps)); step++) {
    const how = random(20)
    if (how === 0) {
      run.dieAfter(random(oneOf([3, 10, 200])))
      const { changes, isKnown, reports, stored, before } = await burst()
      if (random(2) === 0) await new Promise(resolve => setTimeout(resolve, random(30)))
      const last = run.lines
      await run.kill()
      seen.crashes++
      await restart()
      const found = textOf(run.objects)
      const possible = [...outcomes(changes, isKnown)].map(done => textOf(applied(objects, done)))
      if (!possible.includes(found)) failed.push(`step ${step}: objects after a crash`)
      if (possible[0] !== found) seen.unknown++
      const names = new Set([...before.keys(), ...last.keys(), ...run.lines.keys()])
      for (const name of names) {
        // From the last acknowledged change of the name on, each state is possible.
        const from = reports.findLastIndex((report, i) => stored[i] && report.names.includes(name))
        const states = [
          ...(from < 0 ? [before] : []),
          ...reports.slice(Math.max(from, 0)).map(({ after }) => after)
        ]
        const text = JSON.stringify(run.lines.get(name))
        if (!states.some(state => JSON.stringify(state.get(name)) === text))
          failed.push(
            `step ${step}: ${name} is ${text}, not ${states.map(one => JSON.stringify(one.get(name))).join(' or ')}`
          )
      }
      objects = run.objects
    } else if (how === 1) {
      await stopWhole()
      seen.stops++
      const [name = ''] = [...objects.keys()].slice(random(objects.size))
      const left = [...readdirSync(join(directory, 'log')), ...wrongFiles()]
      if (left.length > 0) failed.push(`step ${step}: a clean stop left ${left}`)
      if (name !== '') {
        seen.edits++
        objects.set(name, 'by hand')
        writeFileSync(join(directory, 'node', `${name}.json`), JSON.stringify(node(name, 'by hand')))
      }
      await restart()
      if (textOf(run.objects) !== textOf(objects)) failed.push(`step ${step}: objects after a stop`)
      if (textOf(run.lines) !== textOf(lines)) failed.push(`step ${step}: records after a stop`)
    } else {
      if (how < 4) run.fail(1 + random(6))
      const { changes, isKnown } = await burst()
      run.heal()
      objects = applied(
        objects,
        changes.filter((_, i) => isKnown[i])
      )
      // A record that was in memory first is stored with the next one.
      if (how < 4) await run.reports.add('probe', `l${count++}`)
      if (textOf(run.objects) !== textOf(objects)) failed.push(`step ${step}: objects in memory`)
    }
    lines = run.lines
  }
  await run.stop()
  const last = await Run.open(directory)
  t.equal(textOf(last.objects), textOf(objects))
  t.equal(textOf(last.lines), textOf(lines))
  await last.stop()
  t.same(failed, [])
  t.comment(JSON.stringify(seen))
  t.ok(isSeen())
})
