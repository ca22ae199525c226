import { access, constants, copyFile } from 'node:fs/promises'
import type { Log } from '../log.js'
import type { Needs, RenderedFile, ServiceSettings } from './backend.js'
import { backendOf, type ServiceName } from './backends.js'
import { command, control, reload, runningState } from './control.js'
import { Notes } from './notes.js'
import { renderInThread } from './render.js'
import type { Difference, RenderJob, RenderOutcome } from './render-job.js'
import { inSlices } from './slices.js'
import { reject, rejectedPath, Swap, stage, stagedPath, unstage } from './swap.js'

export interface ApplyOptions {
  readonly service: ServiceName
  readonly settings: ServiceSettings
  /** Directory of the templates. */
  readonly templates: string
  /** State directory. */
  readonly state: string
  /** What the templates are given: taken hold of when it is called, made in slices. */
  readonly data: () => Generator<unknown, object>
  readonly log: Log
  readonly now: () => number
  /** How long after a reload the server is asked whether it runs; milliseconds. */
  readonly settle: number
  /** Who renders; a thread of its own when not given. */
  readonly render?: (job: RenderJob, signal: AbortSignal) => Promise<RenderOutcome>
}

/** What is wrong, for the log and for /monitor/service; the files in force are the last good ones. */
export class NotApplied extends Error {}

/**
 * Brings the files of a server to what the objects say: render, check, swap, reload (architecture, "Work outside the
 * request"). One at a time.
 */
export class Apply {
  readonly #o: ApplyOptions
  readonly #notes: Notes
  readonly #abort = new AbortController()

  constructor(options: ApplyOptions) {
    this.#o = options
    this.#notes = new Notes(options.state, options.service)
  }

  /** Ends what is under way; what is due is done by the next daemon. */
  stop(): void {
    this.#abort.abort()
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** JSON of the files that would be in force, each with its difference. Throws NotApplied for a wrong template. */
  async preview(): Promise<string> {
    const outcome = await this.#render(true)
    if (outcome.kind === 'preview') return outcome.files
    throw new NotApplied(outcome.kind === 'failed' ? outcome.message : 'nothing was rendered')
  }

  /** Resolves when the server has what the objects say; Throws NotApplied. */
  async run(): Promise<{ readonly changed: number }> {
    const outcome = await this.#render(false)
    if (outcome.kind !== 'difference')
      throw new NotApplied(outcome.kind === 'failed' ? outcome.message : 'nothing was rendered')
    const { changed, removed } = outcome.difference
    if (changed.length + removed.length > 0) await this.#put(outcome.difference)
    else if (this.#notes.now.due !== '') await this.#takeUp(this.#notes.now.due, undefined)
    return { changed: changed.length + removed.length }
  }

  async #render(preview: boolean): Promise<RenderOutcome> {
    const { service, settings, templates, data, now, render = renderInThread } = this.#o
    const { serials } = this.#notes.now
    const made = JSON.stringify(await inSlices(data()))
    const job: RenderJob = { service, settings, templates, data: made, serials, nowMs: now(), preview }
    return render(job, this.signal)
  }

  async #put({ changed, removed, serials }: Difference): Promise<void> {
    await writing(() => stage(changed))
    await this.#check(changed)
    const needs: Needs =
      this.#notes.now.due === 'restart' || changed.some(file => file.needs === 'restart')
        ? 'restart'
        : 'reload'
    const swap = await writing(async () => {
      // First, so that no serial is given twice and no reload forgotten, whatever happens on the way.
      if (!this.#notes.now.ours) await keepForeign(this.#o.settings.config)
      await this.#notes.keep({ serials, due: needs, ours: true })
      return Swap.run(changed, removed)
    }).catch(async error => {
      await unstage(changed)
      throw error
    })
    try {
      await this.#takeUp(needs, swap)
    } finally {
      if (!swap.isBack) await swap.keep()
    }
  }

  async #check(changed: readonly RenderedFile[]): Promise<void> {
    const { service, settings } = this.#o
    const { commands, files } = backendOf(service, settings.server).checks(settings, changed, stagedPath)
    try {
      await writing(() => stage(files))
      for (const words of commands) await command(words, this.signal)
    } catch (error) {
      if (this.signal.aborted || error instanceof NotApplied) {
        await unstage(changed)
        throw error
      }
      await reject(changed)
      throw new NotApplied(rejectedWords(error, changed))
    } finally {
      await unstage(files)
    }
  }

  /** Makes the server take the files in force; when it does not come up with them, it gets the old ones back. */
  async #takeUp(needs: Needs, swap: Swap | undefined): Promise<void> {
    const { settings } = this.#o
    const before = await this.#running()
    if (before.state === 'stopped') throw new NotApplied(`service ${settings.service} does not run`)
    if (before.state === 'unknown' && settings.reload.length === 0) throw new NotApplied(before.words)
    try {
      await reload(settings, needs, this.signal)
      if (before.state === 'running') await this.#comesBack()
    } catch (error) {
      if (this.signal.aborted || !swap) throw failure(error)
      throw new NotApplied(`${message(error)}; ${await this.#backTo(swap, needs)}`)
    }
    await writing(() => this.#notes.keep({ due: '' }))
  }

  async #comesBack(): Promise<void> {
    await new Promise(resolve => setTimeout(resolve, this.#o.settle))
    const { state, words } = await this.#running()
    if (state !== 'running')
      throw new Error(
        `service ${this.#o.settings.service} did not come back: ${words.split('\n').at(-1) ?? ''}`
      )
  }

  async #backTo(swap: Swap, needs: Needs): Promise<string> {
    const { settings } = this.#o
    try {
      await swap.back()
      // It may be down: a restart does for either.
      if ((await this.#running()).state === 'running') await reload(settings, needs, this.signal)
      else await control(settings, 'restart', this.signal)
      await this.#notes.keep({ due: '' })
      return `the files before it are in force again, the new ones are kept as ${rejectedPath(settings.config)}`
    } catch (error) {
      return `and with the files before it: ${message(error)}`
    }
  }

  #running() {
    return runningState(this.#o.settings, this.signal).catch(error => {
      throw failure(error)
    })
  }
}

const message = (error: unknown) => (error instanceof Error ? error.message : String(error))
const failure = (error: unknown) => (error instanceof NotApplied ? error : new NotApplied(message(error)))

async function writing<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw new NotApplied(`cannot be written: ${message(error)}`)
  }
}

/** The checker's words, which name the files where they are found now. */
function rejectedWords(error: unknown, files: readonly RenderedFile[]): string {
  let words = message(error)
  for (const { path } of files.slice(0, 100)) words = words.replaceAll(stagedPath(path), rejectedPath(path))
  return `what was rendered is refused: ${words}`
}

/** A file that was there before svcd is kept once: an admin's own configuration is not lost. */
async function keepForeign(path: string): Promise<void> {
  const kept = `${path}.before-svcd`
  const exists = (file: string) =>
    access(file).then(
      () => true,
      () => false
    )
  if ((await exists(path)) && !(await exists(kept))) await copyFile(path, kept, constants.COPYFILE_EXCL)
}
