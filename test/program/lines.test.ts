import t from 'tap'
import { Lines } from '../../lib/program/program.js'

/** The lines of some text that arrives in pieces of so many bytes. */
function cut(text: string, size: number): string[] {
  const found: string[] = []
  const lines = new Lines(line => found.push(line))
  const bytes = Buffer.from(text)
  for (let at = 0; at < bytes.length; at += size) lines.add(bytes.subarray(at, at + size))
  lines.end()
  return found
}

t.test('lines are the same however the bytes arrive', t => {
  const text = 'one\r\ntwo\n\n 5%\r50%\r100%\r\n\r\nhé\u{1f600}llo\rlast'
  const lines = ['one', 'two', '', ' 5%', '50%', '100%', '', 'hé\u{1f600}llo', 'last']
  for (let size = 1; size <= 20; size++) t.same(cut(text, size), lines, `${size} bytes at a time`)
  t.same(cut('a\r', 1), ['a'])
  t.same(cut('', 1), [])
  t.same(cut('a\n', 2), ['a'], 'no line after the last')
  t.end()
})

t.test('a long line comes in pieces, nothing is lost', t => {
  const long = 'x'.repeat(150_000)
  for (const size of [1000, 65_536, 1_000_000]) {
    const pieces = cut(`${long}\nshort`, size)
    t.equal(pieces.pop(), 'short')
    t.equal(pieces.join(''), long)
    t.ok(pieces.every(piece => piece.length <= 65_536))
  }
  t.end()
})
