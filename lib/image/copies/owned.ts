import { lstat, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { readRegularFile, replaceDurably, unlessMissing } from '../../disk/file.js'

/** What a file was like when svcd had it. Another file of its name is somebody else's. */
interface Mark {
  readonly bytes: number
  /** Milliseconds since 1970. */
  readonly mtime: number
}

/** Which files of the files directory svcd has made or fetched, in a file of the state directory. No other one is ever removed. */
export class OwnedFiles {
  private constructor(
    private readonly file: string,
    private readonly directory: string,
    private marks: ReadonlyMap<string, Mark>
  ) {}

  /** `unread` is told of a list that is damaged: what stands in it stays where it is. */
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

  /**
   * Notes files that svcd has made or fetched just now, as they are. `at`: where they are, if not in the directory. Durable when it
   * resolves.
   */
  add(names: Iterable<string>, at?: string): Promise<void> {
    return this.#note(names, name => markOf(at ?? join(this.directory, name)))
  }

  /**
   * Notes files that svcd made some time ago, but for those that are not so long as they should be. What was noted before stays: a
   * file that differs from it is somebody else's by now. Durable when it resolves.
   */
  find(names: Iterable<string>, bytes: ReadonlyMap<string, number>): Promise<void> {
    return this.#note(names, async name => {
      // svcd makes a torrent anew when the tracker is another one.
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

  /** Removes these from the directory, where they are still the same, and from the list; gives what was removed. */
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

/** Undefined where there is no regular file. */
async function markOf(path: string): Promise<Mark | undefined> {
  const found = await unlessMissing(lstat(path), undefined)
  return found?.isFile() ? { bytes: found.size, mtime: found.mtimeMs } : undefined
}
