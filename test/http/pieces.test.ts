import t from 'tap'
import type { OpenFile } from '../../lib/http/open-files.js'
import { Pieces } from '../../lib/http/pieces.js'

/** A file of these bytes that counts how often it is read; `failing`: so often it cannot be. */
function fileOf(id: number, bytes: string, failing = 0) {
  const file = {
    id,
    path: '/file',
    reads: 0,
    async read(position: number, length: number) {
      if (++file.reads <= failing) throw new Error('EIO')
      return Buffer.from(bytes).subarray(position, position + length)
    }
  }
  return file as typeof file & OpenFile
}

// rules 2.13
t.test('a piece is read once for all who ask for it meanwhile and soon after', async t => {
  const pieces = new Pieces(100)
  const file = fileOf(1, 'abcdef')
  const first = await Promise.all([pieces.read(file, 0, 3), pieces.read(file, 0, 3)])
  const later = [await pieces.read(file, 0, 3), await pieces.read(file, 3, 3)]
  t.same([...first, ...later].map(String), ['abc', 'abc', 'abc', 'def'])
  t.equal(file.reads, 2)
  const other = fileOf(2, 'xyz')
  t.equal(String(await pieces.read(other, 0, 3)), 'xyz', 'of another file')
})

t.test('pieces of so many bytes are kept, those that were used last', async t => {
  const pieces = new Pieces(6)
  const file = fileOf(1, 'abcdefghi')
  for (const position of [0, 3, 0, 6]) await pieces.read(file, position, 3)
  t.equal(file.reads, 3)
  await pieces.read(file, 0, 3)
  t.equal(file.reads, 3, 'used again before the third came')
  await pieces.read(file, 3, 3)
  t.equal(file.reads, 4, 'used longest ago')
  pieces.clear()
  await pieces.read(file, 3, 3)
  t.equal(file.reads, 5)
  t.equal(String(await pieces.read(file, 0, 9)), 'abcdefghi', 'one that is larger than all that is kept')
})

t.test('a piece that could not be read is read again', async t => {
  const pieces = new Pieces(6)
  const file = fileOf(1, 'abc', 1)
  const both = await Promise.allSettled([pieces.read(file, 0, 3), pieces.read(file, 0, 3)])
  t.same(
    both.map(({ status }) => status),
    ['rejected', 'rejected']
  )
  t.equal(String(await pieces.read(file, 0, 3)), 'abc')
  await pieces.read(file, 0, 3)
  t.equal(file.reads, 2, 'and kept')
})

t.test('a piece that is kept comes in a later turn of the event loop', async t => {
  const pieces = new Pieces(6)
  const file = fileOf(1, 'abc')
  await pieces.read(file, 0, 3)
  let turns = 0
  setImmediate(() => turns++)
  await pieces.read(file, 0, 3)
  t.equal(turns, 1)
})
