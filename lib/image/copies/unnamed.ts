import { readdir } from 'node:fs/promises'
import type { Mutex } from '../../concurrency.js'
import type { Config } from '../../config/types.js'
import { syncDirectory } from '../../disk/directory.js'
import type { Log } from '../../log.js'
import type { Model } from '../../model/model.js'
import { isServed } from '../publish.js'
import { filesOfPack } from '../sweep.js'
import type { OwnedFiles } from './owned.js'

/** What the removal of files uses. */
export interface UnnamedOptions {
  readonly config: Pick<Config, 'image' | 'paths'>
  readonly model: Pick<Model, 'view'>
  readonly log: Log
  /** Milliseconds that only grow. */
  readonly ticks: () => number
  /** Held while files of the files directory get their names or are removed. */
  readonly files: Mutex
}

/** What was made here is stored within seconds, or never. */
const KEPT_MS = 600_000

/** Removes the files that svcd made or fetched when no object has named them for `[image] grace` (rules 11.19). */
export class Unnamed {
  /** Owned files that no object names → since when. */
  readonly #since = new Map<string, number>()
  /** Files that were made for an object that may come → until when. */
  readonly #kept = new Map<string, number>()

  constructor(
    private readonly options: UnnamedOptions,
    private readonly owned: OwnedFiles
  ) {}

  /** Notes files that were made here for an object that is about to name them. They stay for a while, whether it comes or not. `files` has to be held. */
  async keep(names: readonly string[]): Promise<void> {
    await this.owned.add(names)
    for (const name of names) this.#kept.set(name, this.options.ticks() + KEPT_MS)
  }

  /** Milliseconds until each file that nobody names is due. */
  get due(): readonly number[] {
    const { config, ticks } = this.options
    return [...this.#since.values()].map(since => since + config.image.grace - ticks())
  }

  /** Removes what is due now. */
  async remove(): Promise<void> {
    const { model, config, ticks, log, files } = this.options
    const directory = config.paths.files
    await files.run(async () => {
      const { view } = model
      const all = await readdir(directory)
      const packs = view.names('pack').flatMap(name => view.get('pack', name) ?? [])
      const ofPacks = new Set(packs.flatMap(pack => filesOfPack(pack, all)))
      // What svcd has packed here is its own too: the one that writes by now removes the record of a pack, and not our files.
      const bytes = new Map(packs.map(pack => [pack.name, pack.bytes]))
      await this.owned.find(ofPacks, bytes)
      const due: string[] = []
      const owned = new Set(this.owned.names)
      for (const name of this.#since.keys()) if (!owned.has(name)) this.#since.delete(name)
      for (const name of owned) {
        if ((this.#kept.get(name) ?? 0) < ticks()) this.#kept.delete(name)
        if (ofPacks.has(name) || isServed(view.index, name) || this.#kept.has(name)) {
          this.#since.delete(name)
          continue
        }
        const since = this.#since.get(name) ?? ticks()
        this.#since.set(name, since)
        if (ticks() - since >= config.image.grace) due.push(name)
      }
      if (due.length === 0) return
      const removed = await this.owned.remove(due)
      await syncDirectory(directory)
      if (removed.length > 0) log.info(`no OS image uses them any more: ${removed.join(', ')} removed`)
    })
  }
}
