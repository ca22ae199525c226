import { readFile } from 'node:fs/promises'
import { replaceFile } from '../../disk/replace.js'

/**
 * Which torrents svcd itself gave to the seeder, info hash → file name, on disk: after a restart, what nobody wants
 * any more can be taken away, and no torrent of anybody else is touched.
 */
export class Ledger {
  #given: Map<string, string> | undefined

  constructor(readonly file: string) {}

  /** @throws Error that names the file when it cannot be read. */
  async read(): Promise<ReadonlyMap<string, string>> {
    this.#given ??= await this.#load()
    return this.#given
  }

  /** Durable when it resolves; undefined: no longer ours. */
  async set(infoHash: string, name: string | undefined): Promise<void> {
    const given = new Map(await this.read())
    if (name === undefined) given.delete(infoHash)
    else given.set(infoHash, name)
    await replaceFile(this.file, `${JSON.stringify(Object.fromEntries(given), undefined, 2)}\n`, 0o600)
    this.#given = given
  }

  async #load(): Promise<Map<string, string>> {
    try {
      const given: unknown = JSON.parse(await readFile(this.file, 'utf8'))
      return new Map(Object.entries(given as Record<string, string>))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return new Map()
      throw new Error(`${this.file} cannot be read: ${(error as Error).message}`)
    }
  }
}
