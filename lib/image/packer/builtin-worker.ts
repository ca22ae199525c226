import { createHash } from 'node:crypto'
import { fsyncSync, writeFileSync } from 'node:fs'
import { Readable } from 'node:stream'
import { parentPort, workerData } from 'node:worker_threads'
import { createGzip } from 'node:zlib'
import { archive } from './archive.js'
import { type Contents, measure, walkOf } from './measure.js'
import { Omitted } from './omitted.js'

// The thread of the builtin packer: reads the tree here, compresses in node's thread pool.
const BATCH_BYTES = 256 * 1024
const { contents, output } = workerData as { contents: Contents; output: number }

const omitted = new Omitted()
const hash = createHash('sha256')
const total = measure(contents, false)
let readBytes = 0
let told = 0
let bytes = 0

/** In pieces of that size or a little more: most files are small, and each piece is a turn of the compressor. */
function* batches(pieces: Iterable<Buffer>): Generator<Buffer> {
  let batch: Buffer[] = []
  let size = 0
  for (const piece of pieces) {
    batch.push(piece)
    size += piece.length
    if (size < BATCH_BYTES) continue
    yield Buffer.concat(batch)
    tell(size)
    batch = []
    size = 0
  }
  yield Buffer.concat(batch)
}

function tell(size: number): void {
  readBytes += size
  const progress = Math.min(readBytes / total, 1)
  if (progress - told < 0.01) return
  told = progress
  parentPort?.postMessage({ progress })
}

const gzip = createGzip()
const pieces = Readable.from(batches(archive(walkOf(contents), omitted)), { highWaterMark: 2 })
pieces.once('error', error => gzip.destroy(error)).pipe(gzip)
for await (const chunk of gzip as AsyncIterable<Buffer>) {
  writeFileSync(output, chunk)
  hash.update(chunk)
  bytes += chunk.length
}
fsyncSync(output)
parentPort?.postMessage({ result: { sha256: hash.digest('hex'), bytes, omitted: omitted.sentences() } })
