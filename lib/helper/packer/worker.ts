import { createHash } from 'node:crypto'
import { fsyncSync, openSync, readSync, writeFileSync } from 'node:fs'
import { Readable } from 'node:stream'
import { createGzip } from 'node:zlib'
import { answerQuestions, LONGEST_MS } from '../../base/thread.js'
import { withDescriptor } from '../../disk/file.js'
import { run } from '../../program/program.js'
import { archive, walk, walkOf } from './archive.js'
import type { Contents } from './contents.js'
import type { Hashed, WorkerTask } from './in-worker.js'
import { Omissions, type PackResult } from './packer.js'
import { writePlainTar } from './plain-tar.js'

// The thread that in-worker.ts starts. It does one task, which may block it.
const HASH_CHUNK_BYTES = 1024 * 1024
const BATCH_BYTES = 256 * 1024

function hashing() {
  const hash = createHash('sha256')
  let bytes = 0
  return {
    add(chunk: Buffer): void {
      hash.update(chunk)
      bytes += chunk.length
    },
    end: (): Hashed => ({ sha256: hash.digest('hex'), bytes })
  }
}

/** Reads synchronously: node's pool, which serves the daemon too, must not wait for this disk. */
function hashOf(file: string): Hashed {
  const { add, end } = hashing()
  const chunk = Buffer.allocUnsafe(HASH_CHUNK_BYTES)
  return withDescriptor(openSync(file, 'r'), fd => {
    for (let read = readSync(fd, chunk); read > 0; read = readSync(fd, chunk)) add(chunk.subarray(0, read))
    return end()
  })
}

/** The program dies with this thread. */
async function hashUnpacked(program: string, file: string): Promise<Hashed> {
  const { add: onBytes, end } = hashing()
  await run(program, ['-dcq', file], { timeLimitMs: LONGEST_MS, onBytes })
  return end()
}

/** Estimates the bytes of a tree's archive. A file with many names is packed once. */
function sizeOf(contents: Contents, isSparse: boolean): number {
  let bytes = 0
  for (const { stat } of walk(walkOf(contents))) {
    const size = stat.isFile() ? Number(stat.size) : 0
    const carried = isSparse ? Math.min(size, Number(stat.blocks) * 512) : size
    bytes += 512 + Math.ceil(carried / Number(stat.nlink))
  }
  return bytes
}

/** Reads the tree here and compresses in node's thread pool. */
async function archiveTo(output: number, contents: Contents, report: (progress: number) => void) {
  const omitted = new Omissions()
  const total = sizeOf(contents, false)
  let readBytes = 0
  let told = 0

  const tell = (size: number) => {
    readBytes += size
    const progress = Math.min(readBytes / total, 1)
    if (progress - told < 0.01) return
    told = progress
    report(progress)
  }
  /** Joins pieces of small files, as each costs the compressor a call. */
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

  const gzip = createGzip()
  const pieces = Readable.from(batches(archive(walkOf(contents), omitted)), { highWaterMark: 2 })
  pieces.once('error', error => gzip.destroy(error)).pipe(gzip)
  const { add, end } = hashing()
  for await (const chunk of gzip as AsyncIterable<Buffer>) {
    writeFileSync(output, chunk)
    add(chunk)
  }
  fsyncSync(output)
  return { ...end(), omitted: omitted.sentences() }
}

answerQuestions((task: WorkerTask, report): Hashed | number | undefined | Promise<Hashed | PackResult> => {
  if (task.kind === 'hash') return hashOf(task.file)
  if (task.kind === 'unpacked') return hashUnpacked(task.program, task.file)
  if (task.kind === 'measure') return sizeOf(task.contents, true)
  if (task.kind === 'archive') return archiveTo(task.output, task.contents, report)
  writePlainTar(task.from, task.to, task.most)
  return undefined
})
