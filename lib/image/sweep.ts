import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { ClusterIndex } from '../model/index.js'
import { syncDirectory } from './durable.js'
import type { Installing } from './installing.js'
import { itself, type Workshop } from './workshop.js'

const hourMs = 3_600_000
/** Changes that come together are looked at together. */
const soonMs = 100

/** Whether an image, a tag or a pack that is kept has this file of the files directory; also a pack's torrent. */
export const isServed = (index: ClusterIndex, name: string) =>
  index.isImageFile('boot', name) || index.isImageFile('pack', name.replace(/\.torrent$/, ''))

/**
 * Removes the packs that svcd made and that no image, no tag and no installing node has used for `[image] grace`,
 * with their boot files and torrents. The time counts from the daemon's start where it was unused already.
 */
export class Sweep {
  readonly #unused = new Map<string, number>()
  #timer: NodeJS.Timeout | undefined
  #due = Number.POSITIVE_INFINITY
  #running: Promise<void> | undefined
  #closed = false

  constructor(
    readonly shop: Workshop,
    readonly installing: Pick<Installing, 'packs'>
  ) {}

  /** Something changed. */
  soon(): void {
    this.#at(soonMs)
  }

  /** Looks at every pack now; a second call while it runs waits for the first. Never throws. */
  run(): Promise<void> {
    this.#running ??= this.#sweep()
      .catch(error => this.shop.log.error(`old packs could not be removed: ${(error as Error).message}`))
      .finally(() => {
        this.#running = undefined
        this.#schedule()
      })
    return this.#running
  }

  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    await this.#running
  }

  async #sweep(): Promise<void> {
    const { model, now, config } = this.shop
    const { view } = model
    const installing = this.installing.packs()
    const packs = view.names('pack')
    for (const name of [...this.#unused.keys()]) if (!view.get('pack', name)) this.#unused.delete(name)
    for (const name of [...packs]) {
      if (view.index.isPackNamed(name) || installing.has(name)) {
        this.#unused.delete(name)
        continue
      }
      const since = this.#unused.get(name) ?? now()
      this.#unused.set(name, since)
      if (now() - since >= config.image.grace && !this.#closed)
        await this.shop.files.take(() => this.#remove(name))
    }
  }

  /** The pack first, then its files: what is removed is not served any more, and not the other way round. */
  async #remove(name: string): Promise<void> {
    const { model, config, log } = this.shop
    const gone = await model.change(itself, tx => {
      const doc = tx.get('pack', name)
      if (!doc || tx.index.isPackNamed(name)) return undefined
      tx.remove('pack', name)
      return doc
    })
    if (!gone) return
    this.#unused.delete(name)
    const directory = config.paths.files
    // Every name made for it begins alike, also that of a kernel that its image had before another one.
    const stem = `${gone.osimage}-${gone.sha256.slice(0, 12)}`
    const files = (await readdir(directory)).filter(
      file => file === name || file === `${name}.torrent` || file.startsWith(`${stem}-`)
    )
    const removed = files.filter(file => !isServed(model.view.index, file))
    for (const file of removed) await rm(join(directory, file), { force: true })
    await syncDirectory(directory)
    log.info(`pack ${name} is not used any more: ${removed.join(', ') || 'no file'} removed`)
  }

  #schedule(): void {
    const { config, now } = this.shop
    const next = Math.min(
      ...[...this.#unused.values()].map(since => since + config.image.grace - now()),
      hourMs
    )
    // One that is due and could not be removed is tried again with the next look.
    this.#at(next <= 0 ? hourMs : next)
  }

  #at(ms: number): void {
    if (this.#closed) return
    const due = performance.now() + ms
    if (this.#timer && this.#due <= due) return
    clearTimeout(this.#timer)
    this.#due = due
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      void this.run()
    }, ms).unref()
  }
}
