import type { Needs, ServiceSettings } from './backend.js'
import { command, configReload, type Running, runningState, type Verb } from './control.js'

/**
 * A server as the control command knows it. One piece of work at a time has to do with it: DHCP and DNS may be one
 * server, and the API stops and starts it too.
 */
export class Unit {
  readonly #control: readonly string[]
  readonly #service: string
  #last: Promise<unknown> = Promise.resolve()
  readonly #preparing = new Set<Promise<void>>()
  #takers = 0
  #restarts = 0
  #halted = false

  constructor({ control, service }: Pick<ServiceSettings, 'control' | 'service'>) {
    this.#control = control
    this.#service = service
  }

  /** How many have the turn or wait for it. */
  get takers(): number {
    return this.#takers
  }

  /** How often it was restarted through svcd: every file that was in force before is known to the server then. */
  get restarts(): number {
    return this.#restarts
  }

  /** It was stopped through svcd, and has not been seen to run since. */
  get halted(): boolean {
    return this.#halted
  }

  /** Files for it are being made; what is returned tells that they are in force, or will not be. */
  prepare(): () => void {
    const { promise, resolve } = pending()
    this.#preparing.add(promise)
    return () => {
      this.#preparing.delete(promise)
      resolve()
    }
  }

  /** Resolves when no files for it are being made: one restart does for all of them. */
  async prepared(signal: AbortSignal): Promise<void> {
    while (this.#preparing.size > 0) await unlessAborted(Promise.all(this.#preparing), signal)
  }

  /** Runs `work` when all that asked before it is done. Throws the reason of `signal` when aborted before. */
  async take<R>(signal: AbortSignal, work: () => Promise<R>): Promise<R> {
    const before = this.#last
    const { promise: mine, resolve: over } = pending()
    this.#last = before.then(() => mine)
    this.#takers++
    try {
      await unlessAborted(before, signal)
      return await work()
    } finally {
      this.#takers--
      over()
    }
  }

  /** Whether it runs, asked now. */
  async state(signal: AbortSignal): Promise<Running> {
    const running = await runningState(this.#control, this.#service, signal)
    if (running.state === 'running') this.#halted = false
    return running
  }

  /** Runs the control command with a verb. Throws an Error with its last words. */
  async control(verb: Exclude<Verb, 'status'>, signal: AbortSignal): Promise<string> {
    const words = await command([...this.#control, verb, this.#service], signal)
    if (verb === 'restart') this.#restarts++
    if (verb !== 'reload') this.#halted = verb === 'stop'
    return words
  }

  /** Makes it take its new files: by the ini's command, the server's control socket, or the control command. */
  async reload(settings: ServiceSettings, needs: Needs, signal: AbortSignal): Promise<void> {
    if (settings.reload.length > 0) await command(settings.reload, signal)
    else if (settings.controlSocket !== '' && (await configReload(settings.controlSocket, signal))) return
    else await this.control(needs, signal)
  }
}

function pending(): { promise: Promise<void>; resolve: () => void } {
  let resolve = () => {}
  const promise = new Promise<void>(done => {
    resolve = done
  })
  return { promise, resolve }
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
