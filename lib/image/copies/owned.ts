import { lstat, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { readRegularFile, replaceDurably, unlessMissing } from '../../disk/file.js'

/** The file stamp at the time svcd wrote it. A file with another stamp is somebody else's. */
interface Mark {
  readonly bytes: number
  /** Milliseconds since 1970. */
  readonly mtime: number
}

/** The files of the files directory that svcd made or fetched: it removes no others. */
export class OwnedFiles {
  private constructor(
    private readonly file: string,
    private readonly directory: string,
    private marks: ReadonlyMap<string, Mark>
  ) {}

  /** `unread` is called for a damaged list: its files stay. */
  static async open(file: string, directory: string, unread: (message: string) => void): Promise<OwnedFiles> {
    let marks: [string, Mark][] = []
    try {
      const text = await unlessMissing(readRegularFile(file).then(String), '{}')
      marks = Object.entries(JSON.parse(text) as Record<string, Mark>).filter(
        ([, { bytes, mtime }]) => typeof bytes === 'number' && typeof mtime === 'number'
      )
    } catch (error) {
      const { message } = error as Error
      unread(`${file} cannot be read (${message}): files that it lists are not removed any more`)
    }
    return new OwnedFiles(file, directory, new Map(marks))
  }

  get names(): readonly string[] {
    return [...this.marks.keys()]
  }

  /** Notes new files. `at`: their path, if not in the directory. Durable when it resolves. */
  add(names: Iterable<string>, at?: string): Promise<void> {
    return this.#note(names, name => markOf(at ?? join(this.directory, name)))
  }

  /**
   * Notes files that svcd made some time ago, unless their size is wrong. An earlier note stays: a file that
   * differs from it is somebody else's. Durable when it resolves.
   */
  find(names: Iterable<string>, bytes: ReadonlyMap<string, number>): Promise<void> {
    return this.#note(names, async name => {
      // svcd makes a new torrent for a new tracker.
      if (this.marks.has(name) && !name.endsWith('.torrent')) return undefined
      const mark = await markOf(join(this.directory, name))
      return mark?.bytes === (bytes.get(name) ?? mark?.bytes) ? mark : undefined
    })
  }

  async #note(names: Iterable<string>, wanted: (name: string) => Promise<Mark | undefined>): Promise<void> {
    const marks = new Map(this.marks)
    let isChanged = false
    for (const name of names) {
      const mark = await wanted(name)
      if (!mark || isSame(marks.get(name), mark)) continue
      marks.set(name, mark)
      isChanged = true
    }
    if (isChanged) await this.#keep(marks)
  }

  /** Removes unchanged files from the directory, and all from the list; returns the removed ones. */
  async remove(names: readonly string[]): Promise<string[]> {
    const marks = new Map(this.marks)
    const removed: string[] = []
    for (const name of names) {
      const now = await markOf(join(this.directory, name))
      if (now && isSame(marks.get(name), now)) {
        await rm(join(this.directory, name))
        removed.push(name)
      }
      marks.delete(name)
    }
    if (names.length > 0) await this.#keep(marks)
    return removed
  }

  async #keep(marks: Map<string, Mark>): Promise<void> {
    await replaceDurably(this.file, `${JSON.stringify(Object.fromEntries(marks), undefined, 2)}\n`)
    this.marks = marks
  }
}

const isSame = (one: Mark | undefined, other: Mark) => one?.bytes === other.bytes && one.mtime === other.mtime

/** Returns undefined where there is no regular file. */
async function markOf(path: string): Promise<Mark | undefined> {
  const found = await unlessMissing(lstat(path), undefined)
  return found?.isFile() ? { bytes: found.size, mtime: found.mtimeMs } : undefined
}
