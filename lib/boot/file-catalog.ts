import { type FSWatcher, readdirSync, statSync, watch } from 'node:fs'
import { join } from 'node:path'

const scanIntervalMs = 5_000
const settleMs = 50

/**
 * Lists the regular files of a directory in memory: a boot script names a kernel only if it exists, and must
 * not wait for the disk. The directory is watched, and also scanned, because not every file system reports
 * changes. An unknown file is looked up on the disk, so that a new image can boot at once.
 */
export class FileCatalog {
  readonly #names = new Set<string>()
  #watcher: FSWatcher | undefined
  #settle: NodeJS.Timeout | undefined
  /** Called when a file may have changed. */
  onChange = () => {}
  readonly #interval: NodeJS.Timeout

  constructor(readonly directory: string) {
    this.#scan()
    this.#interval = setInterval(() => this.#scan(), scanIntervalMs)
    this.#interval.unref()
  }

  has(name: string): boolean {
    if (this.#names.has(name)) return true
    const found = statSync(join(this.directory, name), { throwIfNoEntry: false })?.isFile() ?? false
    if (found) this.#names.add(name)
    return found
  }

  close(): void {
    clearInterval(this.#interval)
    clearTimeout(this.#settle)
    this.#watcher?.close()
  }

  #scan(): void {
    try {
      const entries = readdirSync(this.directory, { withFileTypes: true })
      this.#names.clear()
      for (const entry of entries) if (entry.isFile()) this.#names.add(entry.name)
      this.#watch()
    } catch {
      // The directory may not exist yet; the next scan tries again.
      this.#names.clear()
      this.#watcher?.close()
      this.#watcher = undefined
    }
  }

  #watch(): void {
    if (this.#watcher) return
    const watcher = watch(this.directory, { persistent: false }, (_event, name) => {
      // Removed at once, and read again after the burst, so that no script names a deleted file.
      if (name !== null) this.#names.delete(name)
      clearTimeout(this.#settle)
      this.#settle = setTimeout(() => {
        this.#scan()
        this.onChange()
      }, settleMs).unref()
    })
    watcher.on('error', () => {
      watcher.close()
      this.#watcher = undefined
    })
    this.#watcher = watcher
  }
}
