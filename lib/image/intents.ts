import { randomBytes } from 'node:crypto'
import { mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { syncDirectory } from '../disk/directory.js'
import { replaceDurably } from '../disk/replace.js'

/** A pack: temporaries in the files directory and, once they are being given their names, those names. */
export interface PackIntent {
  readonly kind: 'pack'
  readonly id: string
  readonly files: readonly string[]
}

/** A tree that is built in a hidden directory and then takes its place (see placing.ts). */
export interface TreeIntent {
  readonly kind: 'tree'
  readonly id: string
  /** Where it will stand, below `[image] directory`: directories with slashes between, '' for none. */
  readonly parent: string
  readonly target: string
  /** Whether a tree that stands there goes. */
  readonly replaces: boolean
  /** `placing`: directories may have been renamed. */
  readonly phase: 'making' | 'placing'
  /** Milliseconds since 1970; the TreeDoc that the same work stores has it too. */
  readonly at: number
}

/** The directory of a deleted image, right below `[image] directory`, that is given a hidden name and removed. */
export interface RemovalIntent {
  readonly kind: 'removal'
  readonly id: string
  readonly target: string
}

export type Intent = PackIntent | TreeIntent | RemovalIntent

/** Names of what is under way: hidden from the file catalog, no name of a file that is served. */
export const temporary = (id: string, what = '') => `.svcd-${id}${what === '' ? '' : `.${what}`}`

/** A name that no work had before. */
export const newIntentId = () => randomBytes(8).toString('hex')

/** One component of a path. */
const plain = (name: unknown) =>
  typeof name === 'string' && name !== '' && name !== '.' && name !== '..' && !/[/\0]/.test(name)

/**
 * Notes of work that leaves something behind when it is interrupted, one file each in `<state>/work`: written
 * before the first thing is made, taken away after the last is gone. The next start puts right what they tell of,
 * and touches nothing else.
 */
export class Intents {
  readonly #now = new Map<string, Intent>()

  private constructor(readonly directory: string) {}

  static async open(directory: string): Promise<Intents> {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    return new Intents(directory)
  }

  /** Durable when it resolves; a second one of the same id takes the first one's place. */
  async write(work: Intent): Promise<void> {
    await replaceDurably(this.#file(work.id), `${JSON.stringify(work)}\n`)
    this.#now.set(work.id, work)
  }

  /** The note of that id as it was last written by this daemon. */
  get(id: string): Intent | undefined {
    return this.#now.get(id)
  }

  async drop(id: string): Promise<void> {
    await rm(this.#file(id), { force: true })
    await syncDirectory(this.directory)
    this.#now.delete(id)
  }

  /** What an earlier daemon left; `unread` gets the names of notes that cannot be understood, which stay. */
  async left(unread: (file: string) => void): Promise<Intent[]> {
    const found: Intent[] = []
    for (const name of await readdir(this.directory)) {
      const file = join(this.directory, name)
      // A note that was being written.
      if (name.startsWith('.')) await rm(file, { force: true })
      else {
        const work = parse(await readFile(file, 'utf8').catch(() => ''))
        if (work && name === `${work.id}.json`) found.push(work)
        else unread(file)
      }
    }
    return found
  }

  #file(id: string): string {
    return join(this.directory, `${id}.json`)
  }
}

function parse(text: string): Intent | undefined {
  let work: Intent
  try {
    work = JSON.parse(text)
  } catch {
    return undefined
  }
  if (typeof work !== 'object' || work === null || !/^[0-9a-f]{16}$/.test(work.id)) return undefined
  if (work.kind === 'pack') return Array.isArray(work.files) && work.files.every(plain) ? work : undefined
  if (work.kind === 'removal') return plain(work.target) ? work : undefined
  if (work.kind !== 'tree' || typeof work.parent !== 'string' || !plain(work.target)) return undefined
  return work.parent === '' || work.parent.split('/').every(plain) ? work : undefined
}
