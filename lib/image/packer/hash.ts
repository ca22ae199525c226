import { inWorker } from './in-worker.js'

export interface Hashed {
  /** In lower case hexadecimal digits. */
  readonly sha256: string
  readonly bytes: number
}

/** The checksum and the size of a file, read in a worker thread. Throws when it cannot be read, and when aborted. */
export function hashFile(path: string, signal?: AbortSignal): Promise<Hashed> {
  const name = `the checksum of ${path}`
  return inWorker<Hashed>(new URL('./hash-worker.js', import.meta.url), { name, workerData: path, signal })
}
