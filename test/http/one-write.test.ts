import { Writable } from 'node:stream'
import t from 'tap'
import { writeAsOne } from '../../lib/http/connection.js'

/** What arrives at a socket that has `writeAsOne`, and how often it was written to. */
function written(pieces: readonly (string | Buffer)[]): { text: string; writes: number; gathered: number } {
  const seen = { text: '', writes: 0, gathered: 0 }
  const socket = new Writable({
    decodeStrings: false,
    write(piece, _, done) {
      seen.writes++
      seen.text += piece.toString()
      done()
    },
    writev(all, done) {
      seen.gathered++
      for (const { chunk } of all) seen.text += chunk.toString()
      done()
    }
  })
  writeAsOne(socket)
  socket.cork()
  for (const piece of pieces) socket.write(piece)
  socket.uncork()
  return seen
}

t.test('a text with an empty piece behind it is one plain write', async t => {
  t.same(written(['head and text', '']), { text: 'head and text', writes: 1, gathered: 0 })
})

t.test('all other pieces are gathered, in their order', async t => {
  for (const pieces of [
    ['a', 'b'],
    ['', 'b'],
    ['a', '', 'c'],
    ['a', Buffer.from('b'), '']
  ])
    t.same(written(pieces), { text: pieces.join(''), writes: 0, gathered: 1 }, pieces.join('|'))
})
