import { type FSWatcher, readdirSync, statSync, watch } from 'node:fs'
import { join } from 'node:path'

const scanIntervalMs = 5_000
const settleMs = 50

/**
 * Knows which regular files are in a directory without a look at the disk: a boot script names a kernel only if it is
 * there, and a boot GET does not touch the disk. The directory is watched, and also scanned now and then, because not
 * every file system reports changes. A file that is not known yet is looked for, so that an image can be booted the
 * moment its files have arrived.
 */
export class FileCatalog {
  readonly #names = new Set<string>()
  #watcher: FSWatcher | undefined
  #settle: NodeJS.Timeout | undefined
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
      // The directory is not there, maybe not yet: no file is known, and the next scan looks again.
      this.#names.clear()
      this.#watcher?.close()
      this.#watcher = undefined
    }
  }

  #watch(): void {
    if (this.#watcher) return
    const watcher = watch(this.directory, { persistent: false }, (_event, name) => {
      // The name is forgotten at once, and learned again after the burst: no script names a file that was just removed.
      if (name !== null) this.#names.delete(name)
      clearTimeout(this.#settle)
      this.#settle = setTimeout(() => this.#scan(), settleMs).unref()
    })
    watcher.on('error', () => {
      watcher.close()
      this.#watcher = undefined
    })
    this.#watcher = watcher
  }
}
