import { readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { JsonValue } from '../http/route.js'
import { realFiles } from '../store/files.js'
import type { Needs } from './backend.js'
import type { Serials } from './dns/serials.js'

/** What has to be known of a service after a restart of the daemon. */
export interface Remembered {
  readonly serials: Serials
  /** What the server has yet to do to take the files in force. */
  readonly due: Needs | ''
  /** The files in force are svcd's. */
  readonly ours: boolean
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

  /** Durable when it resolves. */
  async keep(change: Partial<Remembered>): Promise<void> {
    const next = { ...this.#now, ...change }
    await mkdir(this.#directory, { recursive: true, mode: 0o700 })
    await realFiles.replace(this.#file, `${JSON.stringify(next, null, 2)}\n`)
    await realFiles.syncDirectory(this.#directory)
    this.#now = next
  }
}

/** A file that is gone, or that a hand spoilt, costs no more than a reload and serials by the clock. */
function read(file: string): Remembered {
  try {
    const { serials = {}, due = '', ours } = JSON.parse(readFileSync(file, 'utf8'))
    const numbers = Object.entries(serials as Record<string, JsonValue>).filter(([, serial]) =>
      Number.isInteger(serial)
    )
    return {
      serials: Object.fromEntries(numbers) as Serials,
      due: due === 'restart' || due === '' ? due : 'reload',
      ours: ours === true
    }
  } catch {
    return { serials: {}, due: '', ours: false }
  }
}
