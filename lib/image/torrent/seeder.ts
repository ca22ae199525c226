import type { Torrent } from './torrent.js'

/** A torrent as the seeder has it. */
export interface Seeded {
  readonly infoHash: string
  /** Where the seeder looks for the file. */
  readonly directory: string
  /** False for what it only remembers: it is to be added again. */
  readonly loaded: boolean
  /** It holds the whole file and offers it, or, in a watch directory, should. */
  readonly seeding: boolean
  /** Peers are connected to it. */
  readonly busy: boolean
  /** It is to be started again. */
  readonly stopped: boolean
  /** To be taken away and added again, or it does not serve again the nodes it has served. */
  readonly spent: boolean
  /** What is wrong with it, a few words; '' when nothing is. */
  readonly problem: string
}

/** The system's seeder. Every method throws an Error that names the ini key when the seeder does not do it. */
export interface Seeder {
  /** All it has, those of others too. */
  list(signal: AbortSignal): Promise<Seeded[]>
  /** False when it had that torrent already. */
  add(torrent: Torrent, signal: AbortSignal): Promise<boolean>
  /** The file stays. */
  remove(infoHash: string, signal: AbortSignal): Promise<void>
  start(infoHash: string, signal: AbortSignal): Promise<void>
  /** Makes it tell the tracker once more, which has not heard of it; it may be stopped for that. */
  announce(infoHash: string, signal: AbortSignal): Promise<void>
}

/** The keys of `[torrent]` that lead to the seeder. */
export interface SeederSettings {
  readonly seeder: 'none' | 'transmission' | 'aria2'
  /** Its RPC. */
  readonly seeder_url: string
  /** transmission: `user:password` or empty; aria2: its RPC secret. */
  readonly seeder_secret: string
  /** Of transmission; set: torrents are put there, and the seeder is not spoken to. */
  readonly seeder_watch: string
}
