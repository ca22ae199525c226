import { randomBytes } from 'node:crypto'
import { isComponent } from '../helper/directories.js'
import { RecordMap } from '../store/record-map.js'
import type { OpenRecords } from '../store/records.js'

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
  readonly replaces: boolean
  /** `placing`: directories may have been renamed. */
  readonly phase: 'making' | 'placing'
  /** Milliseconds since 1970, as in the TreeDoc that is stored with the tree. */
  readonly at: number
}

/** A deleted image's directory, right below `[image] directory`, that is hidden and removed. */
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

/**
 * Notes of work that a crash would leave unfinished. A note is stored before the first thing is made, and
 * removed after the last is gone. The next start repairs what the notes name, and touches nothing else.
 */
export class Notes {
  /** Ended work of which it is not known what is stored: its directories are decided about later. */
  readonly undecided = new Set<TreeNote>()

  private constructor(private readonly stored: RecordMap<Note>) {}

  static async open(open: OpenRecords): Promise<Notes> {
    return new Notes(await RecordMap.open(open, noteIn))
  }

  /** The notes that are stored: right after the opening, those that an earlier daemon left. */
  get left(): readonly Note[] {
    return this.stored.values()
  }

  /** Stores a note, which replaces one of the same id. Throws an Error that does not name the note. */
  write(note: Note): Promise<void> {
    return this.#store(note.id, note)
  }

  drop({ id }: Note): Promise<void> {
    return this.#store(id, undefined)
  }

  async #store(id: string, note: Note | undefined): Promise<void> {
    await this.stored.set(id, note).catch(error => {
      // A StoreError would say that it is not known what is stored of the objects.
      throw new Error(`no note of work on images can be stored: ${error.message}`, { cause: error })
    })
  }
}

/** Reads a stored note. Throws Error for anything else. */
function noteIn(json: unknown, name: string): Note {
  const note = json as Note
  if (/^[0-9a-f]{16}$/.test(name) && note.id === name && isWhole(note)) return note
  throw new Error('it is no note of work on images')
}

function isWhole(note: Note): boolean {
  if (note.kind === 'pack') return Array.isArray(note.files) && note.files.every(isComponent)
  if (note.kind === 'removal') return isComponent(note.target)
  if (note.kind !== 'tree' || typeof note.parent !== 'string' || !isComponent(note.target)) return false
  return note.parent === '' || note.parent.split('/').every(isComponent)
}
