import { setTimeout as sleep } from 'node:timers/promises'
import { runSliced } from '../base/concurrency.js'
import { jsonInParts } from '../base/json.js'
import type { Log } from '../base/log.js'
import type { ReloadKind, RenderedFile, ServiceSettings } from './backend.js'
import { backendOf, type ServiceName } from './backends.js'
import type { Captured } from './capture.js'
import { command, reasonOf } from './control.js'
import type { SerialAgreement } from './dns/serials.js'
import type { ManagedServer } from './managed-server.js'
import { type Difference, type RenderJob, type RenderOutcome, renderInThread } from './render-job.js'
import {
  clear,
  keepForeign,
  Notes,
  reject,
  rejectedPath,
  Swap,
  type SwapPlan,
  stage,
  stagedPath,
  unstage
} from './swap.js'

export interface ApplyOptions {
  readonly service: ServiceName
  readonly settings: ServiceSettings
  readonly templates: string
  readonly notes: ConstructorParameters<typeof Notes>[0]
  /** Makes the templates' data in slices, of these objects; default: the call captures the stored ones. */
  readonly data: (captured?: Captured) => Generator<unknown, object>
  /** Runs before each rendering: brings what its data names to its place. */
  readonly prepare?: ((signal: AbortSignal) => Promise<void>) | undefined
  /** Called with the data of the files that have come into force. */
  readonly inForce?: ((data: object) => void) | undefined
  readonly log: Log
  readonly now: () => number
  /** Pause (ms) after a reload before the server is asked whether it runs. */
  readonly settle: number
  readonly unit: ManagedServer
  /** Gives zones equal serials on controllers that share the objects. */
  readonly zones?: SerialAgreement
  /** Renders; default: in a thread of its own. */
  readonly render?: (job: RenderJob, signal: AbortSignal) => Promise<RenderOutcome>
}

/** The trial of a server that got its old files back and has not been seen to run since. */
const emptySwap: SwapPlan = { put: [], fresh: [], removed: [] }

type OutcomeOf<P> = RenderOutcome & { readonly kind: P extends false ? 'difference' : 'preview' }

/** Its message is for the log and /monitor/service; the last good files stay in force. */
export class NotApplied extends Error {}

/** Brings a server's files in step with the objects: render, check, swap, reload (rules 10.1). */
export class Apply {
  readonly #notes: Notes
  readonly #abort = new AbortController()

  constructor(private readonly o: ApplyOptions) {
    this.#notes = new Notes(o.notes, o.service)
  }

  /** Stops the current run; the next daemon continues it. */
  stop(): void {
    this.#abort.abort()
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** Returns JSON of all files with their diffs. Throws NotApplied for a wrong template. */
  async preview(): Promise<string> {
    return (await this.#render('whole')).outcome.files
  }

  /** Returns the files that would differ if made of these objects. Throws NotApplied for a wrong template. */
  async differing(captured: Captured): Promise<{ path: string; diff: string }[]> {
    return JSON.parse((await this.#render('differing', captured)).outcome.files)
  }

  /**
   * Resolves when the server runs with files of the current objects; throws NotApplied. `alone`: swaps and
   * reloads by itself after a failure, so that the files of another service of the server are not taken back.
   * Returns the number of changed files, and where none was put in force, the ms until the next try.
   */
  async run(alone: boolean): Promise<{ readonly changed: number; readonly againMs?: number }> {
    const { unit } = this.o
    const withLock = <T>(work: () => Promise<T>) => unit.withLock(this.signal, work)
    const { trial } = this.#notes.now
    if (trial && trial.put.length + trial.removed.length > 0)
      await withLock(() => this.#resume(new Swap(trial)))
    const prepared = await unit.preparing(async () => {
      const begun = performance.now()
      const { outcome, made } = await this.#render(false)
      const { difference } = outcome
      const againMs = await this.#agree(difference, performance.now() - begun)
      if (againMs !== undefined) return againMs
      await this.#stage(difference)
      return { difference, made, early: alone ? undefined : await withLock(() => this.#swap(difference)) }
    })
    if (typeof prepared === 'number') return { changed: 0, againMs: prepared }
    const { difference, made, early } = prepared
    if (!alone) await unit.prepared(this.signal)
    await withLock(async () => {
      const swapped = alone ? await this.#swap(difference) : early
      this.o.inForce?.(made)
      if (swapped || this.#notes.now.due !== '')
        await this.#takeUp(swapped?.swap, swapped?.restarts ?? unit.restarts)
    })
    await writing(() => clear(difference.left))
    return { changed: difference.changed.length + difference.removed.length }
  }

  /** Runs before anything is put in force: a serial that is not stored could be given twice. */
  async #agree({ zones }: Difference, renderMs: number): Promise<number | undefined> {
    return this.o.zones?.agree(zones, renderMs).catch(error => {
      throw new NotApplied(`the serials of zones cannot be stored: ${message(error)}`)
    })
  }

  /** Finishes a swap that a stop or a crash of the daemon left open, or takes it back. */
  async #resume(swap: Swap): Promise<void> {
    if (await swap.isWhole()) return this.#takeUp(swap, this.o.unit.restarts)
    await writing(async () => {
      await swap.back()
      await this.#notes.keep({ trial: undefined })
    })
  }

  /** Returns also the data that the files were made of. */
  async #render<P extends RenderJob['preview']>(
    preview: P,
    captured?: Captured
  ): Promise<{ readonly outcome: OutcomeOf<P>; readonly made: object }> {
    const { service, settings, templates, now, zones, render = renderInThread, prepare, data } = this.o
    await prepare?.(this.signal).catch(error => {
      throw failure(error)
    })
    const { serials } = this.#notes.now
    const made = await runSliced(data(captured))
    const parts = await runSliced(jsonInParts(made))
    const job: RenderJob = {
      ...{ service, settings, templates, data: parts, serials, nowMs: now(), preview },
      ...(zones ? { zones: zones.job() } : {})
    }
    const outcome = await render(job, this.signal)
    if (outcome.kind === 'failed') throw new NotApplied(outcome.message)
    return { outcome: outcome as OutcomeOf<P>, made }
  }

  async #stage({ changed }: Difference): Promise<void> {
    if (changed.length === 0) return
    await writing(() => stage(changed))
    await this.#check(changed)
  }

  /** Puts staged files in force; returns also the restarts before it. The caller holds the unit's lock. */
  async #swap({ changed, removed, foreign, serials }: Difference) {
    if (changed.length + removed.length === 0) return undefined
    const { unit } = this.o
    const kinds: readonly string[] = [this.#notes.now.due, ...changed.map(file => file.needs)]
    const isReload = kinds.includes('reload') || changed.length === 0
    const needs = kinds.includes('restart') ? 'restart' : isReload ? 'reload' : ''
    try {
      const on = (await this.#running()).state !== 'stopped' || this.#isDownBecauseOfUs()
      return await writing(async () => {
        await keepForeign(foreign)
        const put = changed.map(({ path }) => path)
        const swap = await Swap.of(put, removed)
        // Noted first: a crash then neither reuses a serial nor forgets a reload.
        await this.#notes.keep({ serials, due: needs, trial: on ? swap.plan : undefined })
        await swap.run()
        return { swap, restarts: unit.restarts }
      })
    } catch (error) {
      await unstage(changed)
      throw error
    }
  }

  async #check(changed: readonly RenderedFile[]): Promise<void> {
    const { service, settings } = this.o
    const { commands, files = [] } = backendOf(service, settings.server).checks(settings, changed, stagedPath)
    const all = [...files, ...changed]
    try {
      await writing(() => stage(files))
      for (const words of commands) await command(words, this.signal)
    } catch (error) {
      if (this.signal.aborted || error instanceof NotApplied) {
        await unstage(changed)
        throw error
      }
      await reject(all)
      throw new NotApplied(rejectedWords(error, all))
    } finally {
      await unstage(files)
    }
  }

  /** Whether the server is down because of svcd: svcd gave it files, and nobody had svcd stop it. */
  #isDownBecauseOfUs(): boolean {
    return this.#notes.now.trial !== undefined && !this.o.unit.halted
  }

  /**
   * Makes the server take the files in force, or puts the old ones back when it does not come up. `restarts`
   * is its count when they came into force: one more restart loads them. The caller holds the unit's lock.
   */
  async #takeUp(swap: Swap | undefined, restarts: number): Promise<void> {
    const { settings, unit } = this.o
    const { state, words } = await this.#running()
    const isDown = state === 'stopped'
    if ((isDown && !this.#isDownBecauseOfUs()) || (state === 'unknown' && settings.reload.length === 0)) {
      await this.#stays(swap, this.#notes.now.due)
      throw new NotApplied(isDown ? `service ${settings.service} does not run` : words)
    }
    try {
      const { due } = this.#notes.now
      if (isDown) await unit.control('restart', this.signal)
      else if (unit.restarts === restarts && due !== '') await unit.reload(settings, due, this.signal)
      if (state !== 'unknown' && (isDown || due !== '')) await this.#comesBack()
    } catch (error) {
      if (this.signal.aborted || !swap) throw failure(error)
      // systemctl only says that a restart failed.
      const state = isOfSystemd(error) ? await this.#running().catch(() => undefined) : undefined
      const why = reasonOf(state?.words ?? '')
      throw new NotApplied(`${message(error)}${why && `: ${why}`}; ${await this.#backTo(swap)}`)
    }
    await this.#stays(swap, '')
  }

  async #stays(swap: Swap | undefined, due: ReloadKind | ''): Promise<void> {
    await writing(async () => {
      await this.#notes.done({ due, trial: undefined })
      await swap?.keep()
    })
  }

  async #comesBack(): Promise<void> {
    await sleep(this.o.settle, undefined, { signal: this.signal })
    const { state, words } = await this.#running()
    if (state === 'running') return
    const { service } = this.o.settings
    const why = reasonOf(words) || `its own log tells why (journalctl -u ${service})`
    throw new Error(`service ${service} did not come back: ${why}`)
  }

  async #backTo(swap: Swap): Promise<string> {
    const { settings, unit } = this.o
    try {
      await swap.back()
      await this.#notes.keep({ trial: emptySwap })
      const { state } = await this.#running()
      if (state === 'stopped') await unit.control('restart', this.signal)
      else await unit.reload(settings, this.#notes.now.due || 'reload', this.signal)
      if (state !== 'unknown') await this.#comesBack()
      await this.#notes.done({ due: '', trial: undefined })
      return `the old files are in force again, the new ones are kept as ${rejectedPath(settings.config)}`
    } catch (error) {
      return `and with the old files: ${message(error)}`
    }
  }

  #running() {
    return this.o.unit.state(this.signal).catch(error => {
      throw failure(error)
    })
  }
}

const isOfSystemd = (error: unknown) => /\bJob for \S+ failed/.test(message(error))
const message = (error: unknown) => (error instanceof Error ? error.message : String(error))
const failure = (error: unknown) => (error instanceof NotApplied ? error : new NotApplied(message(error)))

async function writing<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const isForbidden = (error as NodeJS.ErrnoException).code === 'EACCES'
    const hint = isForbidden ? '; type, as root: systemd-tmpfiles --create svcd.conf' : ''
    throw new NotApplied(`cannot be written: ${message(error)}${hint}`)
  }
}

/** Returns the checker's words, with the paths of the rejected files. */
function rejectedWords(error: unknown, files: readonly RenderedFile[]): string {
  let words = message(error)
  for (const { path } of files.slice(0, 100)) words = words.replaceAll(stagedPath(path), rejectedPath(path))
  return `the rendered files are refused: ${words}`
}
