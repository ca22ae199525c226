import type { BigIntStats } from 'node:fs'
import { matcher } from './excludes.js'
import { inWorker } from './in-worker.js'
import { type Walk, walk } from './walk.js'

/** What is packed, as it goes to a worker thread. */
export interface Contents {
  readonly tree: string
  /** As of `pattern`. */
  readonly excludes: readonly string[]
  /** `./proc`; text. */
  readonly mounts: readonly string[]
}

/** The walk over them. */
export const walkOf = ({ tree, excludes, mounts }: Contents): Walk => ({
  tree,
  leaveOut: matcher(excludes),
  mounts: new Set(mounts.map(path => Buffer.from(path, 'utf8').toString('latin1')))
})

/** Bytes of the archive of a tree, roughly: for the progress. Blocking. */
export function measure(contents: Contents, isSparse: boolean): number {
  let bytes = 0
  for (const { stat } of walk(walkOf(contents))) bytes += 512 + contentBytes(stat, isSparse)
  return bytes
}

function contentBytes(stat: BigIntStats, isSparse: boolean): number {
  if (!stat.isFile()) return 0
  const size = Number(stat.size)
  // A file with many names is packed once.
  return Math.ceil((isSparse ? Math.min(size, Number(stat.blocks) * 512) : size) / Number(stat.nlink))
}

/** The same in a worker thread, of an archive that leaves holes out. */
export const measureAside = (contents: Contents, signal: AbortSignal): Promise<number> =>
  inWorker<number>(new URL('./measure-worker.js', import.meta.url), {
    name: `the size of ${contents.tree}`,
    workerData: contents,
    signal
  })
