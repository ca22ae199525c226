import { readdir } from 'node:fs/promises'
import { Background } from '../base/background.js'
import { daemonActor } from '../model/model.js'
import type { View } from '../model/stored.js'
import { type PackDoc, packFilePrefix, previousPack } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import type { Installing } from './installing.js'
import { newIntentId, type PackIntent } from './intents.js'
import { discard, packOf } from './publish.js'

const hourMs = 3_600_000
/** Changes are gathered for so long. */
const soonMs = 100

/** Returns the files of a pack among all. */
export const filesOfPack = (pack: PackDoc, all: readonly string[]): string[] =>
  all.filter(file => packOf(file) === pack.name || file.startsWith(packFilePrefix(pack)))

/**
 * Removes the packs that svcd made and that no image, tag or installing node has used for `[image] grace`,
 * with their boot files and torrents. The time counts from the daemon's start at the earliest.
 */
export class Sweep {
  readonly #unused = new Map<string, number>()
  readonly #background: Background

  constructor(
    readonly context: ImageContext,
    readonly installing: Pick<Installing, 'packs'>
  ) {
    this.#background = new Background({
      work: signal => this.#sweep(signal),
      everyMs: () => this.#pauseMs(),
      failed: reason => context.log.error(`old packs could not be removed: ${reason}`)
    })
  }

  /** Looks at every pack soon. */
  soon(): void {
    this.#background.wake(soonMs)
  }

  /** Looks at every pack now. Never throws. */
  run(): Promise<void> {
    return this.#background.run().catch(() => {})
  }

  close(): Promise<void> {
    return this.#background.close()
  }

  async #sweep(signal: AbortSignal): Promise<void> {
    const { model, ticks, config } = this.context
    if (model.isReadOnly) return
    const { view } = model
    for (const name of [...this.#unused.keys()]) if (!view.get('pack', name)) this.#unused.delete(name)
    const unnamed = [...view.names('pack')].filter(name => {
      const isUsed = this.#isUsed(view, name)
      if (isUsed) this.#unused.delete(name)
      return !isUsed
    })
    if (unnamed.length === 0) return
    const all = await readdir(config.paths.files)
    for (const name of unnamed) {
      const doc = view.get('pack', name)
      const files = doc ? filesOfPack(doc, all) : []
      // An image or a tag may name only a kernel of it.
      if (files.some(file => view.index.isNamed('boot', file))) {
        this.#unused.delete(name)
        continue
      }
      const since = this.#unused.get(name) ?? ticks()
      this.#unused.set(name, since)
      if (ticks() - since < config.image.grace || signal.aborted || (await this.#isNeeded(name, signal)))
        continue
      await this.#remove(name, files)
    }
  }

  #isUsed({ index }: View, name: string): boolean {
    return index.isNamed('pack', name) || this.context.coming.has(name) || this.installing.packs().has(name)
  }

  /** Whether it is the pack before the present one, and another controller still lacks the present one. */
  async #isNeeded(name: string, signal: AbortSignal): Promise<boolean> {
    const { model, controllers } = this.context
    const { view } = model
    const { imagefile = '' } = view.get('osimage', view.get('pack', name)?.osimage ?? '') ?? {}
    const present = view.get('pack', imagefile)
    if (!controllers || !present || previousPack(view, present)?.name !== name) return false
    return (await controllers.having(present, signal)).length < controllers.others().length
  }

  /** Removes the pack first, then its files, as a file must not be served any more. */
  async #remove(name: string, files: readonly string[]): Promise<void> {
    const { model, intents, log } = this.context
    // The note comes first: without the pack, only the note names the files.
    const note: PackIntent = { kind: 'pack', id: newIntentId(), files }
    await intents.write(note)
    let gone = false
    try {
      gone = await model.change(daemonActor, tx => {
        if (!tx.get('pack', name) || this.#isUsed(tx, name)) return false
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

  /** Returns the milliseconds until the next pack is due; a failed removal is tried again after an hour. */
  #pauseMs(): number {
    const { config, ticks } = this.context
    const next = [...this.#unused.values()].map(since => since + config.image.grace - ticks())
    return Math.min(...next.filter(ms => ms > 0), hourMs)
  }
}
