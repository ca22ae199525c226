import type { Torrent } from './torrent.js'

/** A torrent as the seeder has it. */
export interface Seeded {
  readonly infoHash: string
  /** Where the seeder looks for the file. */
  readonly directory: string
  /** False for one that it only remembers, and that must be added again. */
  readonly loaded: boolean
  /** It has the whole file and offers it. In a watch directory that is only supposed. */
  readonly seeding: boolean
  /** Peers are connected to it. */
  readonly busy: boolean
  /** It must be started again. */
  readonly stopped: boolean
  /** It must be taken away and added again, or it will not serve nodes again that it has served. */
  readonly spent: boolean
  /** What is wrong with it, a few words; '' when nothing is. */
  readonly problem: string
}

/** The seeder of the system. Each method throws an Error that names the ini key when the seeder does not do it. */
export interface Seeder {
  /** All its torrents, also those of others. */
  list(signal: AbortSignal): Promise<Seeded[]>
  /** False when it had that torrent already. */
  add(torrent: Torrent, signal: AbortSignal): Promise<boolean>
  /** The file stays. */
  remove(infoHash: string, signal: AbortSignal): Promise<void>
  start(infoHash: string, signal: AbortSignal): Promise<void>
  /** Makes the seeder tell the tracker of it once more. The torrent may be stopped for that. */
  announce(infoHash: string, signal: AbortSignal): Promise<void>
}

/** The keys of `[torrent]` that lead to the seeder. */
export interface SeederSettings {
  readonly seeder: 'none' | 'transmission' | 'aria2'
  /** Its RPC. */
  readonly seeder_url: string
  /** transmission: `user:password` or empty; aria2: its RPC secret. */
  readonly seeder_secret: string
  /** Of transmission. Where it is set, torrents are put there, and nothing is sent to the seeder. */
  readonly seeder_watch: string
}
