import { appendFileSync } from 'node:fs'

/**
 * What `make test-long` has to show, a line of its table each: what was once broken from outside, each fault,
 * and what is thrown at the controller at random. A name that no test gave figures for is printed as "not
 * shown", and the run fails.
 */
export const proofs = [
  // What was once broken from outside.
  'requests pipelined behind a slow one',
  'an image that breaks out of its pack',
  'boot scripts while bodies do not come',
  'boot scripts while images are downloaded',
  'readers that do not read',
  'guessers from many addresses',
  'idle connections at the limit of files',
  'read-only disk',
  'EIO at the lock',
  'log on a full disk',
  'log whose pipe is closed',
  'large bodies to POST /token',
  'TLS handshakes that do not go on',
  'long texts by the token of a node',
  'clock set back and forward',
  'token key and directories that others can write',
  'a FIFO in place of a state file',
  'a node taken over at the console',
  'secrets in state files',
  // Faults.
  'kill -9',
  'power cut',
  'disk full and flapping',
  'EIO',
  'fsync that fails once',
  'no descriptors left',
  'state directory of another owner',
  'state files truncated, foreign or broken by hand',
  'three controllers on three members of etcd',
  // Load and chance.
  'everything over its limit at once',
  'power of 40 nodes',
  'access matrix',
  'secrets looked for wherever they may leak',
  'raw requests',
  'bodies from the field tables',
  'template compiler',
  'structures of TPMs',
  'values into rendered files'
] as const

export type ProofName = (typeof proofs)[number]

/**
 * Figures of one proof. What a proof does not count is left out; the first four are 0 in a controller without
 * faults.
 */
export interface Figures {
  /** Rounds, requests or inputs. */
  readonly tried: number
  /** Times that the daemon ended, or stood still, without being told to. */
  readonly crashes?: number
  /** Answers of 5xx that the rules do not name. */
  readonly unmeant5xx?: number
  /** Writes that were answered with success and are gone. */
  readonly lost?: number
  /** Changes of which a part is there. */
  readonly halfDone?: number
  /** From the end of the fault to the first answer that is right; the longest of all rounds. */
  readonly backMs?: number
  /** By how much the daemon's memory rose at most (rss), in MB. */
  readonly memoryMb?: number
  /** What else is to be told: one short line. */
  readonly note?: string
}

/** What `proof` writes to the file named by SVCD_PROOFS, a line each. */
export interface ProofRow extends Figures {
  readonly name: ProofName
}

/**
 * Adds a row to the table that `make test-long` prints at its end. Call it once the figures are known, before
 * they are asserted, so that a failed proof stands in the table too. A name may have several rows (say in
 * `note` what each is). Without SVCD_PROOFS, as in `make test`, nothing is written.
 */
export function proof(name: ProofName, figures: Figures): void {
  const file = process.env.SVCD_PROOFS
  if (file !== undefined && file !== '') appendFileSync(file, `${JSON.stringify({ name, ...figures })}\n`)
}
