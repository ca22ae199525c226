import { readdirSync, readFileSync } from 'node:fs'

const KIB = 1024
const MIB = 1024 * KIB

/** Limits of a server that the composition root and tests may replace. Times are in ms. */
export const defaultLimits = {
  /** From the first byte of a request to the end of its header (408), and of a TLS handshake. */
  headersMs: 20_000,
  /** Size of request line and header together (431). */
  headerBytes: 16 * KIB,
  /** A long body must bring `bodyBytes`, or end, in each period of `bodyMs` (408). */
  bodyMs: 30_000,
  bodyBytes: 4 * KIB,
  /** Total time for a short body (408). A packet lost a few times in a row comes within 7 s (RFC 6298). */
  shortBodyMs: 15_000,
  /** Bodies being received. Strangers send at most 8 KiB each: together 64 MiB. */
  bodies: 8192,
  bodiesPerAddress: 64,
  /** An answer is cut when the client has taken nothing for this long. */
  stallMs: 120_000,
  /** Time that an idle connection is kept: longer than the minute of front servers. */
  keepAliveMs: 65_000,
  /** After a refusal, an unread body is dropped for this long, so that the client can read the reason. */
  lingerMs: 30_000,
  /** Connections of all clients and files being sent. Above it idle ones end, or new ones are refused. */
  connections: Number.POSITIVE_INFINITY,
  connectionsPerAddress: Number.POSITIVE_INFINITY,
  /** Connections beyond the limit that are held to refuse their request with Retry-After. */
  crowded: 0,
  downloads: 1000,
  /** Wait for a slot; then 503. Nodes retry by themselves for longer. */
  downloadWaitMs: 2000,
  /** Long lists and exports. */
  lists: 32,
  listWaitMs: 10_000,
  /** Requests being forwarded to another server. */
  forwards: 1000,
  forwardWaitMs: 2000,
  /**
   * When slots are short, an answer without progress for this long loses its slot. The system's send buffer
   * takes megabytes at once, so even a slow reader shows progress only now and then.
   */
  yieldMs: 30_000,
  /** Open feeds of events. */
  feeds: 512,
  feedsPerAddress: 32,
  feedsPerUser: 32,
  /** Heartbeats of an idle feed: front servers cut a connection that was silent for a minute. */
  feedBeatMs: 15_000,
  /** TLS handshakes at once. An idle one takes about 50 kB. */
  handshakes: 512,
  /**
   * While others wait, a TLS client has this long for its part of the handshake. Firmware computes for about
   * a second, and a lost packet comes again a second later (RFC 6298).
   */
  handshakeYieldMs: 3000
} as const

export type Limits = { readonly [Name in keyof typeof defaultLimits]: number }

/** All other limits that rules 2.11 to 2.20 name. */
export const LIMITS = {
  /** Node silently drops header lines beyond its own limit. */
  headerLines: 128,
  /** A body that cannot be longer than this has a total time limit. */
  shortBodyBytes: 64 * KIB,
  /** While every slot for bodies is taken, a body older than this yields its slot to the next one. */
  bodyYieldMs: 2000,
  /** Requests that wait for a slot of one kind. */
  waiting: 1000,
  /** Share of the downloads, and of the forwards, that one address may have, and the least of downloads. */
  perAddress: 1 / 4,
  downloadsPerAddressMin: 16,
  listsPerAddress: 3 / 4,
  /** Retries of refused clients per second: a slow controller sends this many small files in a storm. */
  retriesPerSecond: 300,
  listRetriesPerSecond: 10,
  /** Shortest and longest Retry-After in seconds. */
  retryMinS: 2,
  retryMaxS: 30,
  /** More clients are invited than were served lately: otherwise the pace could never grow. */
  retryGrowth: 1.25,
  /** Retry-After where an address or user has too much, and where a connection finds no room. */
  busyMaxS: 10,
  busyForLongMinS: 5,
  /** Larger files are downloads. */
  smallFileBytes: 64 * KIB,
  smallFileCacheBytes: 4 * MIB,
  /** Pieces between disk and socket at once: limits their share of a turn of the event loop. */
  piecesRead: 4,
  /** Pieces read from the disk at once: the pool has four threads for all work. */
  diskReads: 3,
  /** Pieces between disk and client at once; a client that takes its piece counts for `pieceMs` at most. */
  piecesUnderWay: 16,
  pieceMs: 10,
  /** One in this many pieces goes to the address that has waited longest, the others in order of arrival. */
  pieceRotation: 2,
  /** After this much an address goes to the end of the order. */
  arrivalBytes: 64 * MIB,
  /** Pieces become smaller as clients leave more unsent: of all, and the part of one address. */
  unsentBytes: 32 * MIB,
  unsentPart: 1 / 8,
  pieceCacheBytes: 64 * MIB,
  largestPiece: 512 * KIB,
  /** The first piece of a download; the next ones have what was sent before. */
  firstPiece: 64 * KIB,
  smallestPiece: 16 * KIB,
  /** Longer JSON texts are sent in pieces, which bounds the time and memory for one step. */
  listPieceCharacters: 256 * KIB,
  /** Of all lists together: their parts are kept from measuring to sending; others are made twice. */
  listKeptCharacters: 32 * MIB,
  /** With this many queued requests, or bytes of them, a connection is no longer read. */
  pipelinedRequests: 16,
  pipelinedBytes: 32 * KIB,
  /** Maximum number of queued requests, those included that were read before reading stopped. */
  pipelinedMost: 32,
  /** Queued bytes of all connections. Above, the newest connection is closed; at half, a paused one. */
  pipelinedBytesInAll: 64 * MIB,
  /** Requests that start per turn of the event loop: pipelined and other ones. */
  pipelinedPerTick: 8,
  directPerTick: 16,
  /** Descriptors reserved for files of the store, logs and programs: one in so many, within bounds. */
  reservedPart: 16,
  reservedMin: 48,
  reservedMax: 512,
  /** One in this many descriptors is for refusals: in a storm hundreds come before the first is answered. */
  refusalPart: 32,
  /** One in this many may be a file: a client that does not read its file holds two descriptors. */
  filePart: 4,
  /** One in this many of those for the store is lent to refusals. */
  lentPart: 4,
  /** The least limit of forwards, which is half of the files that may be sent. */
  forwardsMin: 8,
  /** A connection used less than this ago is likely to be used again. */
  activeMs: 2000,
  /** The first request of a younger connection may still be on its way. */
  freshMs: 5000,
  /** When none is idle, the busiest address yields some if it has this many more than the newcomer. */
  aheadMin: 16,
  /** Connections that are accepted per turn of a busy event loop, and those that the system holds for it. */
  acceptedPerTick: 16,
  acceptBacklog: 4096,
  /** Handshakes that begin per turn of the event loop: each blocks it for about a millisecond. */
  handshakesPerTick: 32,
  /** Budget for unread answers of all clients, without downloads; and where answers that are read are cut. */
  unreadBytes: 32 * MIB,
  unreadBytesHard: 128 * MIB,
  /** A client that has taken nothing of an answer for this long does not read. */
  unreadMs: 2000,
  /** One feed in this many is reserved for admins, who can watch whatever others open. */
  feedReservedPart: 16
} as const

const { reservedPart, reservedMin, reservedMax, refusalPart, filePart, lentPart } = LIMITS

/** Returns the limits of the ini, reduced to the descriptors; all files of the parts are open by now. */
export function connectionLimits(http: {
  readonly max_downloads: number
  readonly max_connections_per_address: number
}): Partial<Limits> {
  const { connections, downloads, crowded } = descriptorShare()
  return {
    ...{ connections, crowded },
    connectionsPerAddress: http.max_connections_per_address,
    downloads: Math.min(http.max_downloads, downloads),
    // Each forward takes a second descriptor.
    forwards: Math.min(defaultLimits.forwards, Math.max(LIMITS.forwardsMin, Math.floor(downloads / 2)))
  }
}

/** The limits that depend on the descriptors of the process. */
type Share = Pick<Limits, 'connections' | 'downloads' | 'crowded'>

/** Divides the descriptors left after start-up (rules 2.15). Infinity if there is no known limit. */
function descriptorShare(): Share {
  try {
    const limit = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
    if (limit !== undefined) return share(Number(limit), readdirSync('/proc/self/fd').length)
  } catch {
    // Without /proc the limit is unknown.
  }
  return share(Number.POSITIVE_INFINITY, 0)
}

/** `used` of `limit` descriptors are taken. */
export function share(limit: number, used: number): Share {
  const reserve = Math.max(reservedMin, Math.min(Math.floor(limit / reservedPart), reservedMax))
  const left = Math.max(16, limit - used - reserve)
  const kept = Number.isFinite(limit) ? Math.max(0, limit - used - left) : 0
  const refused = Number.isFinite(left) ? Math.floor(left / refusalPart) : 0
  return {
    connections: left - refused,
    downloads: Math.floor(left / filePart),
    crowded: refused + Math.floor(kept / lentPart)
  }
}
