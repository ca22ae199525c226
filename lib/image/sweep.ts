import { readdir } from 'node:fs/promises'
import { theDaemon } from '../model/model.js'
import type { PackDoc } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import type { Installing } from './installing.js'
import { newIntentId, type PackIntent } from './intents.js'
import { discard } from './publish.js'

const hourMs = 3_600_000
/** Changes that come together are looked at together. */
const soonMs = 100

/** The files of a pack among all: every name made for it begins alike, also that of a kernel its image had before. */
function filesOf({ name, osimage, sha256 }: PackDoc, all: readonly string[]): string[] {
  const begins = `${osimage}-${sha256.slice(0, 12)}-`
  return all.filter(file => file === name || file === `${name}.torrent` || file.startsWith(begins))
}

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
    readonly context: ImageContext,
    readonly installing: Pick<Installing, 'packs'>
  ) {}

  /** Something changed. */
  soon(): void {
    this.#at(soonMs)
  }

  /** Looks at every pack now; a second call while it runs waits for the first. Never throws. */
  run(): Promise<void> {
    this.#running ??= this.#sweep()
      .catch(error => this.context.log.error(`old packs could not be removed: ${(error as Error).message}`))
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
    const { model, now, config } = this.context
    const { view } = model
    const installing = this.installing.packs()
    for (const name of [...this.#unused.keys()]) if (!view.get('pack', name)) this.#unused.delete(name)
    const unnamed = [...view.names('pack')].filter(name => {
      const isUsed = view.index.isNamed('pack', name) || installing.has(name)
      if (isUsed) this.#unused.delete(name)
      return !isUsed
    })
    if (unnamed.length === 0) return
    const all = await readdir(config.paths.files)
    for (const name of unnamed) {
      const doc = view.get('pack', name)
      const files = doc ? filesOf(doc, all) : []
      // Some image or tag may name but a kernel of it.
      if (files.some(file => view.index.isNamed('boot', file))) {
        this.#unused.delete(name)
        continue
      }
      const since = this.#unused.get(name) ?? now()
      this.#unused.set(name, since)
      if (now() - since >= config.image.grace && !this.#closed) await this.#remove(name, files)
    }
  }

  /** The pack first, then its files: what is removed is not served any more, and not the other way round. */
  async #remove(name: string, files: readonly string[]): Promise<void> {
    const { model, intents, log } = this.context
    // Noted before: a file that nothing tells of any more must not be forgotten.
    const note: PackIntent = { kind: 'pack', id: newIntentId(), files }
    await intents.write(note)
    let gone = false
    try {
      gone = await model.change(theDaemon, tx => {
        if (!tx.get('pack', name) || tx.index.isNamed('pack', name)) return false
        if (files.some(file => tx.index.isNamed('boot', file))) return false
        tx.remove('pack', name)
        return true
      })
    } finally {
      if (!gone) await intents.drop(note.id)
    }
    if (!gone) return
    this.#unused.delete(name)
    log.info(`pack ${name} is not used any more: ${files.join(', ') || 'no file'} removed`)
    await discard(this.context, note)
  }

  #schedule(): void {
    const { config, now } = this.context
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
