import t from 'tap'
import { PieceCache } from '../../lib/http/downloads.js'
import type { OpenFile } from '../../lib/http/files.js'

const SIZE = 4

/** A file of these bytes that counts how often it is read; `failing`: so often it cannot be. */
function fileOf(id: number, bytes: string, failing = 0) {
  const file = {
    id,
    path: '/file',
    size: bytes.length,
    reads: 0,
    async read(buffer: Buffer, position: number, length: number) {
      await new Promise(setImmediate)
      if (++file.reads <= failing) throw new Error('EIO')
      return Buffer.from(bytes.slice(position, position + length)).copy(buffer)
    }
  }
  return file as typeof file & OpenFile
}

/** What a client gets that has sent the piece before it asks for the next one. */
async function text(pieces: PieceCache, file: OpenFile, position: number, most = Number.POSITIVE_INFINITY) {
  const { bytes, release } = await pieces.read(file, position, SIZE, most)
  const got = String(bytes)
  release()
  return got
}

// rules 2.13
t.test('a piece is read once for all who ask for it meanwhile and soon after', async t => {
  const pieces = new PieceCache(100)
  const file = fileOf(1, 'abcdefgh01')
  t.same(await Promise.all([text(pieces, file, 0), text(pieces, file, 0)]), ['abcd', 'abcd'])
  t.equal(await text(pieces, file, 0), 'abcd')
  t.equal(await text(pieces, file, 4), 'efgh')
  t.equal(await text(pieces, file, 8, 2), '01', 'the end of the file')
  t.equal(await text(pieces, file, 8, 2), '01')
  t.equal(file.reads, 3)
  t.equal(await text(pieces, fileOf(2, 'xyz0'), 0), 'xyz0', 'of another file')
  t.equal(await text(pieces, file, 12), '', 'beyond the end')
})

t.test('what a file has more than it was promised to have is not sent', async t => {
  const grown = Object.assign(fileOf(1, 'abcdefgh'), { size: 6 })
  const pieces = new PieceCache(100)
  t.equal(await text(pieces, grown, 4, 2), 'ef')
  t.equal(await text(pieces, grown, 4, 2), 'ef')
})

t.test('pieces of so many bytes are kept, those that were used last', async t => {
  const pieces = new PieceCache(2 * SIZE)
  const file = fileOf(1, 'abcdefghijkl')
  for (const position of [0, 4, 0, 8]) await text(pieces, file, position)
  t.equal(file.reads, 3)
  await text(pieces, file, 0)
  t.equal(file.reads, 3, 'used again before the third came')
  await text(pieces, file, 4)
  t.equal(file.reads, 4, 'used longest ago')
  pieces.clear()
  await text(pieces, file, 4)
  t.equal(file.reads, 5)
})

t.test('parts of pieces are not kept: whoever asks for single bytes makes nothing grow', async t => {
  const pieces = new PieceCache(2 * SIZE)
  const file = fileOf(1, 'abcdefgh')
  for (const [position, most] of [
    [1, 100],
    [0, 1],
    [5, 1],
    [4, 3]
  ] as const)
    for (let times = 0; times < 2; times++) await text(pieces, file, position, most)
  t.equal(file.reads, 8)
  t.equal(await text(pieces, file, 1, 1), 'b')
  t.equal(await text(pieces, file, 5), 'fgh')
})

t.test('memory is used again only when nobody has it', async t => {
  const pieces = new PieceCache(SIZE)
  const file = fileOf(1, 'abcdefghijkl')
  const first = await pieces.read(file, 0, SIZE, 4)
  const same = await pieces.read(file, 0, SIZE, 4)
  for (const position of [4, 8, 4, 8]) await text(pieces, file, position)
  t.equal(String(first.bytes), 'abcd')
  first.release()
  for (const position of [4, 8, 4, 8]) await text(pieces, file, position)
  t.equal(String(same.bytes), 'abcd', 'another client has it still')
})

t.test('a piece that could not be read is read again', async t => {
  const pieces = new PieceCache(100)
  const file = fileOf(1, 'abcd', 1)
  const both = await Promise.allSettled([text(pieces, file, 0), text(pieces, file, 0)])
  t.same(
    both.map(({ status }) => status),
    ['rejected', 'rejected']
  )
  t.equal(await text(pieces, file, 0), 'abcd')
  await text(pieces, file, 0)
  t.equal(file.reads, 2, 'and kept')
})

t.test('a piece that is kept comes in a later turn', async t => {
  const pieces = new PieceCache(100)
  const file = fileOf(1, 'abcdefgh'.repeat(10))
  await text(pieces, file, 0)
  let turns = 0
  setImmediate(() => turns++)
  await text(pieces, file, 0)
  t.equal(turns, 1)
})

// rules 2.13
t.test('three pieces are read from the disk at once', async t => {
  const pieces = new PieceCache(100)
  let [reading, most] = [0, 0]
  const file = Object.assign(fileOf(1, 'abcdefgh'.repeat(10)), {
    async read(_: Buffer, __: number, length: number) {
      most = Math.max(most, ++reading)
      await new Promise(setImmediate)
      reading--
      return length
    }
  })
  await Promise.all(Array.from({ length: 20 }, (_, i) => text(pieces, file, i * SIZE)))
  t.equal(most, 3)
})
