import type { Ledger } from './ledger.js'
import type { Seeded, Seeder } from './seeder.js'
import type { Torrent } from './torrent.js'

/** What one look at the seeder has shown. */
export interface Kept {
  /** Something was added, started or taken away: worth another look soon. */
  readonly changed: boolean
  /** Info hashes of the wanted torrents that it offers. */
  readonly seeding: ReadonlySet<string>
  /** Those of them that nobody fetches now. */
  readonly idle: ReadonlySet<string>
  /** One sentence each. */
  readonly problems: readonly string[]
}

/**
 * Brings the seeder to offer `torrents` out of `files`. What it has besides is taken away only where the ledger says
 * that svcd put it there; `names` are the wanted files, also those that cannot be read now.
 * @throws Error when the seeder does not say what it has, or the ledger cannot be kept.
 */
export async function keepSeeding(
  seeder: Seeder,
  ledger: Ledger,
  files: string,
  names: ReadonlySet<string>,
  torrents: readonly Torrent[],
  signal: AbortSignal
): Promise<Kept> {
  const given = await ledger.read()
  const all = await seeder.list(signal)
  const problems: string[] = []
  let changed = false
  const attempt = async (name: string, work: () => Promise<void>) => {
    changed = true
    await work().catch(error => {
      signal.throwIfAborted()
      problems.push(`${name}: ${error.message}`)
    })
  }
  const offered: Seeded[] = []
  for (const torrent of torrents) {
    const { name, infoHash } = torrent
    const found = all.filter(seeded => seeded.infoHash === infoHash)
    const loaded = found.find(seeded => seeded.loaded)
    const problem = (loaded ?? found[0])?.problem
    if (problem) problems.push(`${name}: ${problem}`)
    if (loaded && loaded.directory !== files)
      problems.push(`${name}: the seeder has it from ${loaded.directory}, not from ${files}`)
    if (loaded?.seeding) offered.push(loaded)
    if (loaded?.stopped) await attempt(name, () => seeder.start(infoHash, signal))
    if (loaded?.spent && given.has(infoHash))
      await attempt(name, async () => {
        await seeder.remove(infoHash, signal)
        await seeder.add(torrent, signal)
      })
    // Written down first: what a crash leaves in the seeder is then known to be ours.
    if (!loaded)
      await attempt(name, async () => {
        await ledger.set(infoHash, name)
        if (!(await seeder.add(torrent, signal))) await ledger.set(infoHash, undefined)
      })
  }
  const wanted = new Set(torrents.map(({ infoHash }) => infoHash))
  for (const [infoHash, name] of await ledger.read())
    if (!wanted.has(infoHash) && !names.has(name))
      await attempt(name, async () => {
        const isThere = (seeded: Seeded) => seeded.infoHash === infoHash && seeded.directory === files
        if (all.some(isThere)) await seeder.remove(infoHash, signal)
        await ledger.set(infoHash, undefined)
      })
  const hashes = (some: readonly Seeded[]) => new Set(some.map(({ infoHash }) => infoHash))
  return { changed, seeding: hashes(offered), idle: hashes(offered.filter(({ busy }) => !busy)), problems }
}
