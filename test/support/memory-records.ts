// Records in memory in the place of a medium, of which a test says what becomes of a write.
import { LoadError } from '../../lib/store/errors.js'
import { type OpenRecords, type RecordChange, type RecordStore, Records } from '../../lib/store/records.js'

/** The texts of all kinds; a controller that is started again finds them. */
export class MemoryRecords implements RecordStore {
  isShared = false
  isReadOnly = false
  takesAddition = () => true
  /** Changes of each write, in order. */
  readonly writes: (readonly RecordChange[])[] = []
  /** Waited for before a write; its throw is a failure that stores nothing. */
  before: (changes: readonly RecordChange[]) => unknown = () => {}
  readonly #texts = new Map<string, Map<string, string>>()

  async write(kind: string, changes: readonly RecordChange[]): Promise<void> {
    this.writes.push(changes)
    await this.before(changes)
    const texts = this.texts(kind)
    for (const { name, text, adds } of changes) {
      const whole = adds ? (texts.get(name) ?? '') + text : text
      if (whole === '') texts.delete(name)
      else texts.set(name, whole)
    }
  }

  /** The stored texts of a kind by name. */
  texts(kind: string): Map<string, string> {
    const texts = this.#texts.get(kind) ?? new Map<string, string>()
    this.#texts.set(kind, texts)
    return texts
  }

  /** The number of lines of a kind. */
  lines(kind: string): number {
    return [...this.texts(kind).values()].join('').split('\n').length - 1
  }

  /** Opens a kind; `damaged` hears of what is no record, which is an error otherwise. */
  opener(kind: string, damaged?: (name: string, reason: string) => void): OpenRecords {
    return async memory =>
      new Records({
        ...{ kind, store: this, memory, texts: [...this.texts(kind)] },
        text: async name => this.texts(kind).get(name),
        damaged:
          damaged ??
          ((name, message) => {
            throw new LoadError([{ file: name, message }])
          })
      })
  }
}
