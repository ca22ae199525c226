/** Time-outs and sizes of a connection. A long body, or an answer, that makes progress has no bound in time. */
export interface Limits {
  /** From the first byte of a request to the end of its header (408). */
  readonly headersMs: number
  /** Size of request line and header together (431). */
  readonly headerBytes: number
  /** A body must bring `bodyBytes`, or end, in each such period (408). */
  readonly bodyMs: number
  readonly bodyBytes: number
  /** A body of up to 64 KiB has so long in all (408). */
  readonly shortBodyMs: number
  /** Bodies that are on their way at once, in all and of one address; one more waits, or is 503. */
  readonly bodies: number
  readonly bodiesPerAddress: number
  /** An answer of which the client takes nothing for so long is cut. */
  readonly stallMs: number
  /** An idle connection is kept so long. */
  readonly keepAliveMs: number
  /** After a refusal, the rest of an unread body is dropped for so long, so that the client can read why. */
  readonly lingerMs: number
  /** Connections of all clients, and of one address; idle ones end, or new ones are refused. */
  readonly connections: number
  readonly connectionsPerAddress: number
  /** So many more are told to come back later. */
  readonly crowded: number
  /** Files that are sent at once; one more waits. */
  readonly downloads: number
  /** How long it waits for a place; then it is 503. Nodes wait longer by themselves. */
  readonly downloadWaitMs: number
  /** Lists and exports of more than one piece that are sent at once; one more waits. */
  readonly lists: number
  /** How long it waits for its turn; then it is 503. */
  readonly listWaitMs: number
  /** Where room is short, an answer of which the client has taken nothing for so long makes room for another one. */
  readonly yieldMs: number
  /** Requests that another server answers at once; one more waits. */
  readonly forwards: number
  /** How long it waits; then it is 503. */
  readonly forwardWaitMs: number
  /** Feeds of events that are open at once, in all, of one address and of one user; one more is 503. */
  readonly feeds: number
  readonly feedsPerAddress: number
  readonly feedsPerUser: number
  /** A feed with nothing new is sent a beat this often. */
  readonly feedBeatMs: number
  /** TLS handshakes that are under way at once; one more waits. */
  readonly handshakes: number
  /** While others wait for its place, a TLS client has so long to do its part of the handshake. */
  readonly handshakeYieldMs: number
}

/** 136 bytes a second keep an upload alive; keep-alive outlasts the minute that front servers use. */
export const defaultLimits: Limits = {
  headersMs: 20_000,
  headerBytes: 16_384,
  bodyMs: 30_000,
  bodyBytes: 4096,
  // A packet that was lost a few times in a row comes within 7 s (RFC 6298).
  shortBodyMs: 15_000,
  // Strangers send 8 KiB at most: they take 64 MiB.
  bodies: 8192,
  bodiesPerAddress: 64,
  stallMs: 120_000,
  keepAliveMs: 65_000,
  lingerMs: 30_000,
  connections: Number.POSITIVE_INFINITY,
  connectionsPerAddress: Number.POSITIVE_INFINITY,
  crowded: 0,
  downloads: 1000,
  downloadWaitMs: 2000,
  lists: 32,
  listWaitMs: 10_000,
  // A send buffer of the system takes megabytes at once: a slow reader is seen to read only now and then.
  yieldMs: 30_000,
  forwards: 1000,
  forwardWaitMs: 2000,
  feeds: 512,
  feedsPerAddress: 32,
  feedsPerUser: 32,
  // Front servers cut a connection that was silent for a minute.
  feedBeatMs: 15_000,
  // One that does nothing holds some 50 kB.
  handshakes: 512,
  // Firmware computes for about a second, and a packet that was lost comes again a second later (RFC 6298).
  handshakeYieldMs: 3000
}
