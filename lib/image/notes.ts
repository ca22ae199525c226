import { randomBytes } from 'node:crypto'
import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { isLeftover, readRegularFile, replaceDurably, syncDirectory } from '../disk/file.js'

/** A pack: hidden files in the files directory, and their names once they get them. */
export interface PackNote {
  readonly kind: 'pack'
  readonly id: string
  readonly files: readonly string[]
}

/** A tree that is built in a hidden directory and then renamed to its place. */
export interface PlacementNote {
  readonly kind: 'tree'
  readonly id: string
  /** Its parent below `[image] directory`, with slashes between; '' for none. */
  readonly parent: string
  readonly target: string
  /** Whether it replaces a tree. */
  readonly replaces: boolean
  /** `placing`: directories may have been renamed. */
  readonly phase: 'making' | 'placing'
  /** Milliseconds since 1970, as in the TreeDoc that is stored with the tree. */
  readonly at: number
}

/**
 * The directory of a deleted image, right below `[image] directory`, that gets a hidden name and is removed.
 */
export interface RemovalNote {
  readonly kind: 'removal'
  readonly id: string
  readonly target: string
  /** As in the TreeDoc: a later directory of the same name differs. Absent in notes of earlier versions. */
  readonly at?: number
  /** Only in notes of an earlier version, which removed the record before the directory. */
  readonly osimage?: string
}

export type TreeNote = PlacementNote | RemovalNote
export type Note = PackNote | TreeNote

/** Returns the hidden name of unfinished work. No served file has such a name. */
export const temporary = (id: string, what = '') => `.svcd-${id}${what === '' ? '' : `.${what}`}`

/** Returns the parent of a note's directory, below `[image] directory`. */
export const parentOf = (note: TreeNote) => (note.kind === 'tree' ? note.parent : '')

/** Returns a new random id. */
export const newNoteId = () => randomBytes(8).toString('hex')

/** Returns the note of a new pack, or of files that are removed. */
export const packNote = (files: readonly string[] = []): PackNote => ({
  kind: 'pack',
  id: newNoteId(),
  files
})

/** Whether a text is one component of a path. */
const plain = (name: unknown) =>
  typeof name === 'string' && name !== '' && name !== '.' && name !== '..' && !/[/\0]/.test(name)

/**
 * Notes of work that a crash would leave unfinished, one file each in `<state>/work`. A note is written
 * before the first thing is made, and removed after the last is gone. The next start repairs what the notes
 * name, and touches nothing else.
 */
export class Notes {
  /** Ended work of which it is not known what is stored: its directories are decided about later. */
  readonly undecided = new Set<TreeNote>()

  private constructor(readonly directory: string) {}

  static async open(directory: string): Promise<Notes> {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    return new Notes(directory)
  }

  /**
   * Writes a note, durably; it replaces one of the same id. Throws an Error that names the directory and not
   * the note: the next attempt has another note, and the same reason.
   */
  async write(note: Note): Promise<void> {
    await replaceDurably(this.#file(note.id), `${JSON.stringify(note)}\n`).catch(error => {
      throw new Error(`${this.directory} takes no note: ${error.code ?? error.message}`, { cause: error })
    })
  }

  async drop({ id }: Note): Promise<void> {
    await rm(this.#file(id), { force: true })
    await syncDirectory(this.directory)
  }

  /**
   * Returns the notes that an earlier daemon left. `unread` is called with each file that is no note; the
   * file stays.
   */
  async left(unread: (file: string) => void): Promise<Note[]> {
    const found: Note[] = []
    for (const name of await readdir(this.directory)) {
      const file = join(this.directory, name)
      // An interrupted write.
      if (isLeftover(name)) await rm(file, { force: true })
      else {
        const note = parse(await readRegularFile(file).then(String, () => ''))
        if (note && name === `${note.id}.json`) found.push(note)
        else unread(file)
      }
    }
    return found
  }

  #file(id: string): string {
    return join(this.directory, `${id}.json`)
  }
}

function parse(text: string): Note | undefined {
  let note: Note
  try {
    note = JSON.parse(text)
  } catch {
    return undefined
  }
  if (typeof note !== 'object' || note === null || !/^[0-9a-f]{16}$/.test(note.id)) return undefined
  if (note.kind === 'pack') return Array.isArray(note.files) && note.files.every(plain) ? note : undefined
  if (note.kind === 'removal') return plain(note.target) ? note : undefined
  if (note.kind !== 'tree' || typeof note.parent !== 'string' || !plain(note.target)) return undefined
  return note.parent === '' || note.parent.split('/').every(plain) ? note : undefined
}
