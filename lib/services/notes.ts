import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { readRegularFileSync, replaceDurably } from '../disk/file.js'
import type { JsonValue } from '../json.js'
import type { Needs } from './backend.js'
import type { Serials } from './dns/serials.js'
import type { SwapPlan } from './swap.js'

/** What the daemon has to remember of a service over a restart. */
export interface Remembered {
  readonly serials: Serials
  /** What the server has yet to do to take the files in force. */
  readonly due: Needs | ''
  /**
   * The swap that a running server was given and that it has not been seen to run with. svcd brings such a server up
   * again, with the old files if need be.
   */
  readonly trial: SwapPlan | undefined
}

/** `<state>/services/<name>.json`. */
export class Notes {
  readonly #directory: string
  readonly #file: string
  #now: Remembered

  constructor(state: string, service: string) {
    this.#directory = join(state, 'services')
    this.#file = join(this.#directory, `${service}.json`)
    this.#now = read(this.#file)
  }

  get now(): Remembered {
    return this.#now
  }

  /** Changes the notes. The change holds once it is durable, when this resolves. */
  async keep(change: Partial<Remembered>): Promise<void> {
    const next = { ...this.#now, ...change }
    await this.#write(next)
    this.#now = next
  }

  /**
   * Notes what was done. It holds at once, so that it is not done again because the disk is full; it is durable when
   * this resolves.
   */
  done(change: Partial<Remembered>): Promise<void> {
    this.#now = { ...this.#now, ...change }
    return this.#write(this.#now)
  }

  async #write(remembered: Remembered): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 })
    await replaceDurably(this.#file, `${JSON.stringify(remembered, null, 2)}\n`)
  }
}

/** A missing or damaged file costs no more than a reload, and serials that start from the clock. */
function read(file: string): Remembered {
  try {
    const { serials = {}, due = '', trial } = JSON.parse(readRegularFileSync(file).toString())
    const numbers = Object.entries(serials as Record<string, JsonValue>).filter(([, serial]) =>
      Number.isInteger(serial)
    )
    return {
      serials: Object.fromEntries(numbers) as Serials,
      due: due === 'restart' || due === '' ? due : 'reload',
      trial: isPlan(trial) ? trial : undefined
    }
  } catch {
    return { serials: {}, due: '', trial: undefined }
  }
}

function isPlan(plan: unknown): plan is SwapPlan {
  const { put, fresh, removed } = (plan ?? {}) as Record<string, unknown>
  return [put, fresh, removed].every(
    paths => Array.isArray(paths) && paths.every(path => typeof path === 'string')
  )
}
