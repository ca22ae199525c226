/** Time-outs and sizes of a connection. Long bodies and answers have no time limit while they progress. */
export interface Limits {
  /** From the first byte of a request to the end of its header (408). */
  readonly headersMs: number
  /** Size of request line and header together (431). */
  readonly headerBytes: number
  /** A body must bring `bodyBytes`, or end, in each period of `bodyMs` (408). */
  readonly bodyMs: number
  readonly bodyBytes: number
  /** Total time for a body of up to 64 KiB (408). */
  readonly shortBodyMs: number
  /** Bodies being received, in all and of one address. Further ones wait, or get a 503. */
  readonly bodies: number
  readonly bodiesPerAddress: number
  /** An answer is cut when the client has taken nothing for this long. */
  readonly stallMs: number
  /** Time that an idle connection is kept. */
  readonly keepAliveMs: number
  /** After a refusal, an unread body is dropped for this long, so that the client can read the reason. */
  readonly lingerMs: number
  /** Connections of all clients, and of one address. Above it idle ones end, or new ones are refused. */
  readonly connections: number
  readonly connectionsPerAddress: number
  /** Connections beyond the limit that are held to refuse their request with Retry-After. */
  readonly crowded: number
  /** Files sent at once; further ones wait. */
  readonly downloads: number
  /** Wait for a download's slot; then 503. Nodes retry by themselves for longer. */
  readonly downloadWaitMs: number
  /** Long lists and exports sent at once; further ones wait. */
  readonly lists: number
  /** Wait for a list's slot; then 503. */
  readonly listWaitMs: number
  /** When slots are short, an answer without progress for this long loses its slot. */
  readonly yieldMs: number
  /** Requests being forwarded to another server; further ones wait. */
  readonly forwards: number
  /** Wait for a forward's slot; then 503. */
  readonly forwardWaitMs: number
  /** Open feeds of events, in all, of one address and of one user. Further ones get a 503. */
  readonly feeds: number
  readonly feedsPerAddress: number
  readonly feedsPerUser: number
  /** Interval of the heartbeats of an idle feed. */
  readonly feedBeatMs: number
  /** TLS handshakes at once; further ones wait. */
  readonly handshakes: number
  /** While others wait, a TLS client has this long for its part of the handshake. */
  readonly handshakeYieldMs: number
}

/** 136 bytes a second keep an upload alive. Keep-alive outlasts the minute of front servers. */
export const defaultLimits: Limits = {
  headersMs: 20_000,
  headerBytes: 16_384,
  bodyMs: 30_000,
  bodyBytes: 4096,
  // A packet that was lost a few times in a row comes within 7 s (RFC 6298).
  shortBodyMs: 15_000,
  // Strangers send at most 8 KiB each: together 64 MiB.
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
  // The system's send buffer takes megabytes at once, so even a slow reader shows progress only now and then.
  yieldMs: 30_000,
  forwards: 1000,
  forwardWaitMs: 2000,
  feeds: 512,
  feedsPerAddress: 32,
  feedsPerUser: 32,
  // Front servers cut a connection that was silent for a minute.
  feedBeatMs: 15_000,
  // An idle one takes about 50 kB.
  handshakes: 512,
  // Firmware computes for about a second, and a lost packet comes again a second later (RFC 6298).
  handshakeYieldMs: 3000
}
