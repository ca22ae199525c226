import type { ReloadKind, ServiceSettings } from './backend.js'
import { command, configReload, type Runner, type Running, runningState, type Verb } from './control.js'

/** A server as the control command knows it. Two services, and the API, share its lock. */
export class ManagedServer {
  #last: Promise<unknown> = Promise.resolve()
  readonly #preparing = new Set<Promise<unknown>>()
  #users = 0
  #restarts = 0
  #halted = false

  /** `run` runs the commands that change it. */
  constructor(
    private readonly o: Pick<ServiceSettings, 'control' | 'service'>,
    private readonly run: Runner = command
  ) {}

  /** Number of callers that hold the lock or wait for it. */
  get users(): number {
    return this.#users
  }

  /** Number of restarts by svcd. Each makes the server read all files in force. */
  get restarts(): number {
    return this.#restarts
  }

  /** Whether svcd stopped it on request, and has not seen it run since. */
  get halted(): boolean {
    return this.#halted
  }

  /** Runs `work`, which makes files for it. */
  async preparing<R>(work: () => Promise<R>): Promise<R> {
    const made = work()
    this.#preparing.add(made)
    return made.finally(() => this.#preparing.delete(made))
  }

  /** Resolves when no files for it are being made, so that a single restart serves all of them. */
  async prepared(signal: AbortSignal): Promise<void> {
    while (this.#preparing.size > 0) await unlessAborted(Promise.allSettled(this.#preparing), signal)
  }

  /** Runs `work` with the lock, in the order of calls. Throws the reason of an abort before that. */
  async withLock<R>(signal: AbortSignal, work: () => Promise<R>): Promise<R> {
    const before = this.#last
    let over = () => {}
    const mine = new Promise<void>(resolve => {
      over = resolve
    })
    this.#last = before.then(() => mine)
    this.#users++
    try {
      await unlessAborted(before, signal)
      return await work()
    } finally {
      this.#users--
      over()
    }
  }

  /** Asks whether it runs. */
  async state(signal: AbortSignal): Promise<Running> {
    const running = await runningState(this.o.control, this.o.service, signal)
    if (running.state === 'running') this.#halted = false
    return running
  }

  /** Runs the control command with a verb. Throws an Error with the end of its output. */
  async control(verb: Exclude<Verb, 'status'>, signal: AbortSignal): Promise<string> {
    const words = await this.run([...this.o.control, verb, this.o.service], signal)
    if (verb === 'restart') this.#restarts++
    if (verb !== 'reload') this.#halted = verb === 'stop'
    return words
  }

  /** Makes it take new files: by the ini's command, else the control socket, else the control command. */
  async reload(settings: ServiceSettings, needs: ReloadKind, signal: AbortSignal): Promise<void> {
    if (settings.reload.length > 0) await this.run(settings.reload, signal)
    else if (settings.controlSocket !== '' && (await configReload(settings.controlSocket, signal))) return
    else await this.control(needs, signal)
  }
}

function unlessAborted(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason)
    if (signal.aborted) return stop()
    signal.addEventListener('abort', stop)
    void work.then(() => {
      signal.removeEventListener('abort', stop)
      resolve()
    })
  })
}
