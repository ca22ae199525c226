import type { Torrent } from './torrent.js'

/** So long a seeder may take to reach the tracker, until something is done about it, and after that. */
const HEARD_MS = 5000

interface Entry {
  readonly name: string
  /** Milliseconds of `performance.now`. */
  readonly since: number
  /** When something was done about it last. */
  readonly tried: number
}

/** Torrents that a seeder offers and that the tracker knows no seeder of. */
export class Unheard {
  /** By info hash. */
  #entries: ReadonlyMap<string, Entry> = new Map()

  get isEmpty(): boolean {
    return this.#entries.size === 0
  }

  /** Takes note of those that are unheard now; gives those for which something is to be done. */
  update(torrents: readonly Torrent[]): Torrent[] {
    const now = performance.now()
    const first = ({ name, infoHash }: Torrent) =>
      this.#entries.get(infoHash) ?? { name, since: now, tried: now }
    const isDue = (torrent: Torrent) => now - first(torrent).tried >= HEARD_MS
    const due = torrents.filter(isDue)
    this.#entries = new Map(
      torrents.map(torrent => [
        torrent.infoHash,
        isDue(torrent) ? { ...first(torrent), tried: now } : first(torrent)
      ])
    )
    return due
  }

  /** One for each that has been so for longer than a seeder takes. */
  get problems(): string[] {
    const now = performance.now()
    return [...this.#entries.values()]
      .filter(({ since }) => now - since >= HEARD_MS)
      .map(({ name }) => `${name}: the tracker knows no seeder of it`)
  }
}
