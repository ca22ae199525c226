import type { Writable } from 'node:stream'

/**
 * Replaces writev(2) by a plain write for an answer of one text. node:http adds an empty second piece, and
 * writev costs a sixth of what it takes for a whole request.
 */
export function writeAsOne(socket: Writable): void {
  const writev = socket._writev
  if (!writev) return
  socket._writev = (pieces, done) => {
    const [piece, empty] = pieces
    if (pieces.length === 2 && piece && empty?.chunk.length === 0)
      socket._write(piece.chunk, piece.encoding, done)
    else writev.call(socket, pieces, done)
  }
}
