import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { replaceFile } from '../../disk/replace.js'
import type { Seeded, Seeder } from './seeder.js'
import { readInfoHash, type Torrent } from './torrent.js'

/** transmission renames what it has taken. */
const TORRENT = /\.torrent(?:\.added)?$/

/**
 * A directory where a seeder looks for torrents. The seeder must be set up to find their files in the files directory,
 * and to drop a torrent whose file is taken away. Whether it does cannot be seen from here.
 */
export class WatchDirectory implements Seeder {
  constructor(
    readonly directory: string,
    readonly files: string
  ) {}

  async list(): Promise<Seeded[]> {
    return (await this.#found()).map(({ infoHash }) => ({
      infoHash,
      directory: this.files,
      loaded: true,
      seeding: true,
      busy: false,
      stopped: false,
      spent: false,
      problem: ''
    }))
  }

  async add({ name, infoHash }: Torrent): Promise<boolean> {
    if ((await this.#found()).some(found => found.infoHash === infoHash)) return false
    const torrent = await readFile(join(this.files, name))
    // The seeder need not run as root.
    await this.#do(() => replaceFile(join(this.directory, name), torrent, 0o644))
    return true
  }

  async remove(infoHash: string): Promise<void> {
    for (const found of await this.#found())
      if (found.infoHash === infoHash)
        await this.#do(() => rm(join(this.directory, found.name), { force: true }))
  }

  async start(): Promise<void> {}

  async announce(): Promise<void> {}

  async #found(): Promise<Torrent[]> {
    const names = (await this.#do(() => readdir(this.directory))).filter(name => TORRENT.test(name))
    // One that cannot be read, or is gone meanwhile, is nobody's.
    const all = names.map(async name => ({
      name,
      infoHash: await readInfoHash(join(this.directory, name)).catch(() => '')
    }))
    return Promise.all(all)
  }

  async #do<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw new Error(`[torrent] seeder_watch: ${(error as Error).message}`)
    }
  }
}
