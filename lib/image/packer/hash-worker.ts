import { createHash } from 'node:crypto'
import { closeSync, openSync, readSync } from 'node:fs'
import { parentPort, workerData } from 'node:worker_threads'

// The thread of hashFile.
const CHUNK_BYTES = 1024 * 1024

const hash = createHash('sha256')
const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
const fd = openSync(workerData as string, 'r')
let bytes = 0
for (let read = readSync(fd, chunk); read > 0; read = readSync(fd, chunk)) {
  hash.update(chunk.subarray(0, read))
  bytes += read
}
closeSync(fd)
parentPort?.postMessage({ result: { sha256: hash.digest('hex'), bytes } })
