import { setTimeout as sleep } from 'node:timers/promises'
import { badRequest, ServiceError, unavailable } from '../../errors.js'
import { ABORTED_MS, type JobContext, JobStoppedError } from '../../jobs/jobs.js'
import { Transcript } from '../../jobs/record.js'
import { SHARED_LINES } from '../../jobs/records.js'
import { isObject, type JsonValue } from '../../json.js'
import type { Log } from '../../log.js'
import { isObjectName } from '../../model/names.js'
import type { KernelWish } from '../kernel.js'

/** Where the controller that writes asks for work on a directory that is on another one. */
export const ERRANDS = '/errands'

/** Work on the directory of an image, as the controller that has the directory is told of it. `check`: only whether it can begin. */
export type Task =
  | { readonly kind: 'pack'; readonly osimage: string; readonly wish: KernelWish; readonly check: boolean }
  | ({
      readonly kind: 'push'
      readonly osimage: string
      readonly dryrun: boolean
      readonly check: boolean
    } & To)
  /** Of the directory `tree` that svcd made for an image, which is deleted. */
  | { readonly kind: 'removal'; readonly osimage: string; readonly tree: string; readonly check: false }

/** To which nodes a push goes. */
export type To = { readonly node: string } | { readonly group: string }

/** What the controller that writes asks another one for. */
export interface Errand {
  /** The `[controller] name` of who is asked. */
  readonly to: string
  /** The URL of who asks. */
  readonly writer: string
  /** The number of the last change that who asks knows: who is asked has to know it too. */
  readonly revision: number
  readonly task: Task
}

/** How an errand ended: with what came of it, or with an error and its status, where it has one. */
type End =
  | { readonly done: JsonValue }
  | { readonly failed: { readonly message: string; readonly status?: number } }

/** What is said while an errand is done: at last its end. One without anything only says that it goes on. */
export interface Message {
  readonly line?: string
  readonly progress?: number
  readonly result?: readonly [key: string, value: JsonValue]
  readonly end?: End
}

/**
 * One line of the answer to an errand: a message as JSON, and the proof of these very characters. With its number: no line can be left
 * out, put in another place or told twice.
 */
interface Said {
  readonly said: string
  readonly proof: string
}

/** What is proved of the message with this number, the first one being 0. */
export const numbered = (number: number, said: string): string => `${number} ${said}`

/** Why work has failed, with the name of the controller where it was done: who reads it may be at another one. */
export const failedOn = (controller: string, reason: string) => `on controller ${controller}: ${reason}`

const isText = (value: unknown): value is string => typeof value === 'string'

/** Throws 400 for what is no errand of this release. */
export function errandIn(body: unknown): Errand {
  const { to, writer, revision, task } = isObject(body) ? body : {}
  if (isText(to) && isText(writer) && Number.isSafeInteger(revision)) {
    const known = taskIn(task)
    if (known) return { to, writer, revision: Number(revision), task: known }
  }
  throw badRequest('this is no work that this release knows: let all controllers have the same release')
}

function taskIn(task: unknown): Task | undefined {
  if (!isObject(task)) return undefined
  const { kind, osimage, wish, check, dryrun, node, group, tree } = task
  if (!isText(osimage) || typeof check !== 'boolean') return undefined
  if (kind === 'pack' && isWish(wish)) return { kind, osimage, wish, check }
  if (kind === 'push' && typeof dryrun === 'boolean') {
    if (isText(node)) return { kind, osimage, dryrun, check, node }
    if (isText(group)) return { kind, osimage, dryrun, check, group }
  }
  if (kind === 'removal' && isText(tree) && isObjectName(tree) && !check)
    return { kind, osimage, tree, check }
  return undefined
}

const isWish = (wish: unknown): wish is KernelWish =>
  isObject(wish) &&
  Object.entries(wish).every(
    ([key, value]) => ['kernelfile', 'initrdfile', 'kernelversion'].includes(key) && isText(value)
  )

/** What the work for other controllers uses. */
export interface ErrandsOptions {
  /** The name of this controller. */
  readonly own: string
  /** The number of the last change that is known here. */
  readonly revision: () => number
  /** The URL of who writes; '' where nobody is known to, undefined where this controller writes itself. */
  readonly writer: () => string | undefined
  /** Does the work; gives what came of it. */
  readonly perform: (task: Task, job: Omit<JobContext, 'id'>) => Promise<JsonValue>
  readonly log: Log
}

/** How long this controller may take to hear of what the one that writes knows. */
const BEHIND_MS = 10_000
const LOOK_MS = 100
/** So often who asked hears that the work goes on, and it is looked whether that one still writes. */
const BEAT_MS = 1000

/** The work that this controller does for the one that writes, on directories that are here. */
export class Errands {
  readonly #running = new Set<Running>()
  #isClosed = false

  constructor(private readonly o: ErrandsOptions) {}

  /**
   * The answer to an errand, which says what is done while it is done. It begins when somebody follows it, and is stopped when nobody
   * does any more. `prove`: makes the proof of what is said. Throws 503 for an errand that is for another controller, and after `close`.
   */
  feed(errand: Errand, prove: (said: string) => string): Running {
    const { own } = this.o
    if (this.#isClosed) throw unavailable('the service is shutting down', 'shutting-down')
    if (errand.to !== own)
      throw unavailable(
        `this is controller ${own}, and not ${errand.to}: let [store] url of each controller lead to itself`,
        'image-elsewhere'
      )
    return new Running(errand, prove, this.o, this.#running)
  }

  /** Stops what is under way. Resolves when all has ended, or was given up 7 s later. */
  async close(): Promise<void> {
    this.#isClosed = true
    const running = [...this.#running]
    const ended = Promise.all(running.map(one => one.stop('the service is shutting down')))
    const late = new AbortController()
    // Whatever does not end, all else of the daemon is closed after this.
    await Promise.race([ended, sleep(ABORTED_MS, undefined, { signal: late.signal }).catch(() => undefined)])
    late.abort()
    for (const { what } of this.#running) this.o.log.warn(`${what} did not end when it was stopped`)
  }
}

/** An errand under way, as the answer to who asked for it. */
class Running {
  readonly #abort = new AbortController()
  /** What waits to be sent; no more than a record would keep. */
  #said = new Transcript(undefined, SHARED_LINES)
  #progress: number | undefined
  readonly #results = new Map<string, JsonValue>()
  #end: End | undefined
  #isBeatDue = false
  /** How many messages were said. */
  #number = 0
  #wake = () => {}
  #done: Promise<void> = Promise.resolve()

  constructor(
    private readonly errand: Errand,
    private readonly prove: (said: string) => string,
    private readonly options: ErrandsOptions,
    private readonly all: Set<Running>
  ) {}

  /** In words, for the log. */
  get what(): string {
    const { task, writer } = this.errand
    return `${task.kind} of OS image ${task.osimage} for the controller at ${writer}`
  }

  /** While nothing else is said. Each is another one. */
  get beat(): string {
    return this.#line({})
  }

  /** What was said since it was asked last, as lines of JSON. */
  next(): string {
    const messages: Message[] = this.#said.since(0).map(line => ({ line }))
    if (this.#progress !== undefined) messages.push({ progress: this.#progress })
    for (const result of this.#results) messages.push({ result })
    if (this.#end !== undefined) messages.push({ end: this.#end })
    this.#said = new Transcript(undefined, SHARED_LINES)
    this.#progress = undefined
    this.#results.clear()
    this.#end = undefined
    if (messages.length === 0 && this.#isBeatDue) messages.push({})
    this.#isBeatDue = false
    return messages.map(message => this.#line(message)).join('')
  }

  #line(message: Message): string {
    const said = JSON.stringify(message)
    const line: Said = { said, proof: this.prove(numbered(this.#number++, said)) }
    return `${JSON.stringify(line)}\n`
  }

  /** Begins the work. What it returns stops it. */
  follow(wake: () => void): () => void {
    this.#wake = wake
    this.all.add(this)
    const beating = setInterval(() => {
      if (!this.#isStillWriter) void this.stop('another controller writes now')
      this.#isBeatDue = true
      wake()
    }, BEAT_MS).unref()
    this.#done = this.#run().finally(() => {
      clearInterval(beating)
      this.all.delete(this)
    })
    return () => void this.stop('the controller that asked for it is gone')
  }

  /** Resolves when the work has ended. */
  stop(why: string): Promise<void> {
    this.#abort.abort(new JobStoppedError(why))
    return this.#done
  }

  async #run(): Promise<void> {
    const { task } = this.errand
    const { what } = this
    const { log } = this.options
    try {
      await this.#ready()
      const came = await this.options.perform(task, this.#job)
      if (!task.check) log.info(`${what}: done`)
      this.#ended({ done: came })
    } catch (error) {
      const { message } = error as Error
      if (!task.check) log.warn(`${what}: failed: ${message}`)
      this.#ended({
        failed: { message, ...(error instanceof ServiceError ? { status: error.status } : {}) }
      })
    }
  }

  #ended(end: End): void {
    this.#end = end
    this.#wake()
  }

  /** Waits until all is known here that was known to who asked. Throws 503 where that one does not write. */
  async #ready(): Promise<void> {
    const { revision, writer, own } = this.options
    const until = performance.now() + BEHIND_MS
    const { signal } = this.#abort
    while (revision() < this.errand.revision || writer() !== this.errand.writer) {
      if (performance.now() > until || writer() === undefined)
        throw unavailable(
          `controller ${own} does not know ${this.errand.writer} as the one that writes, or not all that it has written: ` +
            'ask again in a moment',
          'image-elsewhere'
        )
      await sleep(LOOK_MS, undefined, { signal })
    }
  }

  /** Who has lost the right to write may get it again by itself. */
  get #isStillWriter(): boolean {
    return ['', this.errand.writer].includes(this.options.writer() ?? '-')
  }

  get #job(): Omit<JobContext, 'id'> {
    return {
      signal: this.#abort.signal,
      line: text => {
        this.#said.add(text)
        this.#wake()
      },
      progress: fraction => {
        this.#progress = fraction
        this.#wake()
      },
      result: (key, value) => {
        this.#results.set(key, value)
        this.#wake()
      }
    }
  }
}
