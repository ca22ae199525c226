import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { inParallel, runFairly, Semaphore, yieldTurn } from '../base/concurrency.js'
import { tryLater, unavailable } from '../base/errors.js'
import { clip, firstOf, type Log } from '../base/log.js'
import { SlidingWindow } from '../base/rate-limit.js'
import type { Config } from '../config/types.js'
import { type JobContext, type Jobs, RESULTS_KEPT, type SubmittedJob } from '../jobs/jobs.js'
import { type Command, isReading, type Part, switchesOn } from '../model/bmc-commands.js'
import type { Actor, Model } from '../model/model.js'
import { foldSliced } from '../node-set/hostlist.js'
import { Programs } from '../program/programs.js'
import { type Bmc, bmcOf, shortenTo } from './bmc.js'
import { ipmi } from './ipmi.js'
import { redfish } from './redfish/redfish.js'

interface ControlOptions {
  readonly model: Model
  readonly jobs: Pick<Jobs, 'submit'>
  readonly config: Config['control']
  readonly log: Log
  /** Called before a BMC is asked to change its machine. */
  readonly onAction: (actor: Actor, nodes: readonly string[], part: Part, action: string) => Promise<void>
  /** Monotonic clock, in milliseconds. */
  readonly ticks: () => number
  /** Milliseconds since 1970. */
  readonly now: () => number
}

/** A changing batch, and the promise of its end. */
interface ActiveBatch {
  readonly nodes: ReadonlySet<string>
  readonly ended: Promise<unknown>
}

/** Waiting requests for single nodes: a much delayed power change would surprise people. */
const MOST_WAITING = { all: 200, reading: 20, changing: 100 } as const

/** Interval of checks whether a machine has switched itself off. */
const SOFT_LOOK_MS = 2_000

/** Characters of a node set in a record or in the log. */
const LONGEST_SET = 200

/** Sends commands to the BMCs of nodes: directly for one node, as a job for many (rules 13.1, 13.2). */
export class Control {
  readonly #o: ControlOptions
  /** Separate, so that a long job does not delay requests for one node. */
  readonly #single: Slots
  readonly #many: Slots
  /** Machines that are switched on, in batches. */
  readonly #starts: SlidingWindow
  readonly #activeBatches = new Set<ActiveBatch>()
  readonly #closing = new AbortController()
  readonly #programs = new Programs()
  readonly #switchedOn = new Map<string, number>()

  constructor(options: ControlOptions) {
    const { parallel, delay } = options.config
    this.#o = options
    this.#single = slotsFor(parallel)
    this.#many = slotsFor(parallel)
    // Each running program adds a listener.
    setMaxListeners(0, this.#closing.signal)
    this.#starts = new SlidingWindow(parallel, delay, options.ticks)
  }

  /**
   * Sends a command to the BMC of one node. Returns the power state (`on`, `off`), the log, or ''. Throws 404
   * for a node without a usable BMC, and 503 with the reason if the BMC fails or too many requests wait.
   */
  async act(node: string, command: Command, actor: Actor): Promise<string> {
    const { who } = actor
    const bmc = bmcOf(this.#o.model, node)
    const places = this.#single[useOf(command)]
    const [mine, all] = [places.waiting(0, who), places.waiting(0)]
    if (mine >= MOST_WAITING[useOf(command)]) throw tooMany(`${mine} requests of ${who}`)
    if (all >= MOST_WAITING.all) throw tooMany(`${all} requests`)
    const told = (end: string) => {
      if (!isReading(command)) this.#o.log.info(`node ${node}: ${command}, by ${who}: ${end}`)
    }
    try {
      const { signal } = this.#closing
      // Nothing is awaited between the check and the queue, so that concurrent requests cannot exceed the
      // limit.
      const text = await places.run(who, async () => {
        await this.#recordAction(actor, [node], command)
        return this.#ask(bmc, command, signal)
      })
      if (command === 'power soft')
        await this.#untilOff(bmc, signal, work => this.#single.reading.run(who, work))
      told('done')
      return text
    } catch (error) {
      const { message } = error as Error
      told(`failed: ${message}`)
      throw unavailable(`node ${node}: BMC ${bmc.address}: ${message}`, 'bmc-failed', error)
    }
  }

  /** Sends a command to many BMCs in a job with NodeResults by node name. Throws 503 as Jobs.submit. */
  async submit(nodes: readonly string[], command: Command, actor: Actor): Promise<SubmittedJob> {
    return this.#o.jobs.submit({
      kind: command,
      object: await runFairly(describeNodes(nodes), { source: { address: actor.from } }),
      by: actor.who,
      lanes: [],
      remote: true,
      ...(isReading(command) ? { reads: true } : {}),
      run: job =>
        isReading(command) ? this.#all(job, nodes, command) : this.#runAfterOthers(job, nodes, command, actor)
    })
  }

  async #recordAction(actor: Actor, nodes: readonly string[], command: Command): Promise<void> {
    const [part, action] = command.split(' ') as [Part, string]
    if (!isReading(command)) await this.#o.onAction(actor, nodes, part, action)
  }

  /** Cancels requests for single nodes; jobs are cancelled by their own signals. */
  close(): void {
    this.#closing.abort(new Error('the service is shutting down'))
    this.#programs.close()
  }

  /** Runs a batch after earlier batches that change one of its nodes. */
  async #runAfterOthers(job: JobContext, nodes: readonly string[], command: Command, actor: Actor) {
    const before = [...this.#activeBatches].filter(other => nodes.some(node => other.nodes.has(node)))
    const stopped = new Promise<never>((_, reject) => {
      job.signal.addEventListener('abort', () => reject(job.signal.reason))
    })
    const ended = Promise.race([stopped, Promise.all(before.map(other => other.ended))])
      .then(() => this.#recordAction(actor, nodes, command))
      .then(() => this.#all(job, nodes, command))
      .finally(() => this.#activeBatches.delete(mine))
    const mine = { nodes: new Set(nodes), ended: ended.catch(() => {}) }
    this.#activeBatches.add(mine)
    await ended
  }

  async #all(job: JobContext, nodes: readonly string[], command: Command): Promise<void> {
    const { model, config } = this.#o
    const { signal } = job
    const isSoft = command === 'power soft'
    // Systems take long to shut down, and must not wait for each other.
    await batch(job, nodes, isSoft ? nodes.length : config.parallel, async node => {
      if (switchesOn(command)) await this.#starts.turn(signal)
      const inPlace = <R>(use: Use, work: () => Promise<R>) =>
        this.#many[use].run(job.id, () => {
          signal.throwIfAborted()
          return work()
        })
      const bmc = bmcOf(model, node)
      try {
        const text = await inPlace(useOf(command), () => this.#ask(bmc, command, signal))
        if (isSoft) await this.#untilOff(bmc, signal, work => inPlace('reading', work))
        return text || command
      } catch (error) {
        throw new Error(`${bmc.address}: ${(error as Error).message}`)
      }
    })
  }

  /** Waits until a machine is off after a soft shutdown. Throws Error if it is on after `soft_limit`. */
  async #untilOff(bmc: Bmc, signal: AbortSignal, inPlace: (work: () => Promise<string>) => Promise<string>) {
    const { config, ticks } = this.#o
    const end = ticks() + config.soft_limit
    for (;;) {
      // A BMC may not answer while its machine goes down.
      const state = await inPlace(() => this.#ask(bmc, 'power status', signal)).catch(error => {
        if (signal.aborted || ticks() >= end) throw error
      })
      if (state === 'off') return
      if (ticks() >= end)
        throw new Error(
          `is still on ${config.soft_limit / 1000} s after its system was asked to end ([control] ` +
            'soft_limit): "off" switches it off'
        )
      await sleep(SOFT_LOOK_MS, undefined, { signal })
    }
  }

  /** Returns when this controller last switched a node on or reset it, milliseconds since 1970. */
  switchedOn(node: string): number | undefined {
    return this.#switchedOn.get(node)
  }

  async #ask(bmc: Bmc, command: Command, signal: AbortSignal): Promise<string> {
    const { time_limit, ipmi_port, redfish_port, ca_file } = this.#o.config
    const visit = { timeLimitMs: time_limit, signal }
    const text = await (bmc.protocol === 'ipmi'
      ? ipmi(this.#programs, bmc, command, { ...visit, port: bmc.port ?? ipmi_port })
      : redfish(bmc, command, { ...visit, port: bmc.port ?? redfish_port, caFile: ca_file }))
    if (switchesOn(command)) this.#switchedOn.set(bmc.node, this.#o.now())
    return text
  }
}

type Use = 'reading' | 'changing'
/** Reading has slots of its own, so that it never delays a power-off. */
type Slots = Readonly<Record<Use, Semaphore>>

const useOf = (command: Command): Use => (isReading(command) ? 'reading' : 'changing')

const slotsFor = (parallel: number): Slots => ({
  reading: new Semaphore(parallel),
  changing: new Semaphore(parallel)
})

const tooMany = (which: string) =>
  tryLater(`${which} to BMCs wait already: ask for many nodes in one request, or try again in 10 s`, 10)

/** Describes nodes for a record and the log: a name, or a node set, cut if it is long. */
function* describeNodes(nodes: readonly string[]): Generator<void, string> {
  if (nodes.length === 1) return `node ${nodes[0]}`
  return `${nodes.length} nodes (${clip(yield* foldSliced(nodes), LONGEST_SET)})`
}

/** Nodes in one request: each has its result in the record. */
export const MOST_NODES = 10_000

/** Characters of a result in the record, beside its text and its name. */
const AROUND_RESULT = 45
const NAMED_FAILURES = 10

/** Result of one node in the record. */
export interface NodeResult {
  readonly state: 'done' | 'failed'
  readonly message: string
}

/**
 * Runs `act` for each node, `parallel` at once, and records each result. A failed node stops no other. At the
 * end throws an Error that names the failed nodes; throws the abort reason when the job is stopped.
 */
export async function batch(
  job: JobContext,
  nodes: readonly string[],
  parallel: number,
  act: (node: string) => Promise<string>
): Promise<void> {
  const failed: string[] = []
  let ended = 0
  // Half of the room is for what JSON escaping adds.
  const room = Math.floor(RESULTS_KEPT / nodes.length)
  const note = (node: string, state: NodeResult['state'], text: string) => {
    const most = Math.max(20, room > 1000 ? room / 2 : room - node.length - AROUND_RESULT)
    const message = shortenTo(text, Math.floor(most))
    job.result(node, { state, message })
    const [first = ''] = message.split('\n', 1)
    job.line(`${node}: ${state === 'failed' ? `failed: ${first}` : first}`)
    job.progress(++ended / nodes.length)
  }
  await inParallel(nodes, parallel, async node => {
    // A node may fail without any wait, for example for lack of a BMC.
    await yieldTurn()
    job.signal.throwIfAborted()
    try {
      note(node, 'done', await act(node))
    } catch (error) {
      job.signal.throwIfAborted()
      failed.push(node)
      note(node, 'failed', (error as Error).message)
    }
  })
  if (failed.length === 0) return
  const names = firstOf(failed, NAMED_FAILURES)
  throw new Error(`${failed.length} of ${nodes.length} nodes failed: ${names}`)
}
