import t from 'tap'
import { LIMITS } from '../../lib/http/admission/limits.js'
import { type DownloadParty, PieceTurns } from '../../lib/http/admission/piece-turns.js'

const { piecesRead, piecesUnderWay, pieceMs, pieceRotation, arrivalBytes, unsentBytes, unsentPart } = LIMITS
const { largestPiece, smallestPiece } = LIMITS

/** Turns of which all places are taken, and the order in which `names` get those that become free. */
async function busy(turns = new PieceTurns()) {
  const first = turns.join('first')
  const taken = await Promise.all(Array.from({ length: piecesRead }, () => turns.take(first)))
  const granted: string[] = []
  const wait = (name: string, party: DownloadParty) =>
    void turns.take(party).then(turn => {
      granted.push(name)
      taken.push(turn)
    })
  const free = async (count: number) => {
    for (let i = 0; i < count; i++) {
      taken.shift()?.end()
      await new Promise(setImmediate)
    }
    return granted.join('')
  }
  return { turns, wait, free, taken, granted }
}

// rules 2.13
t.test('places go in order of arrival, one in two to the address that has waited longest', async t => {
  const { turns, wait, free } = await busy()
  const parties = ['a', 'b', 'c'].map(name => [name, turns.join(name)] as const)
  for (const [name, party] of parties.toReversed()) for (let i = 0; i < 8; i++) wait(name, party)
  // c came last but has waited longest, then b.
  t.equal(await free(4 * pieceRotation), 'acabacab')
})

// rules 2.13
t.test('an address that got its share goes to the end of the order', async t => {
  const { turns, wait, free, taken } = await busy()
  const [a, b] = [turns.join('a'), turns.join('b')]
  wait('a', a)
  t.equal(await free(1), 'a')
  taken.at(-1)?.written(arrivalBytes)
  t.equal(await free(1), 'a', 'what is written is still under way')
  for (const [name, party] of [
    ['a', a],
    ['b', b]
  ] as const)
    for (let i = 0; i < 8; i++) wait(name, party)
  t.match(await free(4), /^a+(ba)+$/)
})

// rules 2.13
t.test('an address whose client hangs up goes to the end of the order', async t => {
  const { turns, wait, free } = await busy()
  const [a, b] = [turns.join('a'), turns.join('b')]
  turns.join('a')
  turns.leave('a', a, true)
  for (const [name, party] of [
    ['a', a],
    ['b', b]
  ] as const)
    for (let i = 0; i < 8; i++) wait(name, party)
  t.match(await free(4), /^(ba)+$/)
  t.ok(a.order > b.order)
})

// rules 2.13
t.test('all that wait get a place, and each place is given once', async t => {
  const { turns, wait, free, taken, granted } = await busy()
  const count = 500
  for (let i = 0; i < count; i++) wait(String(i), turns.join(String(i)))
  await free(count)
  t.equal(new Set(granted).size, count)
  t.equal(taken.length, piecesRead)
})

// rules 2.13
t.test('a client that does not take its piece counts for a moment', async t => {
  // The moment is passed by hand: a starved machine would pass it before the first assertion.
  const moments: (() => void)[] = []
  const later = (run: () => void, ms: number) => {
    t.equal(ms, pieceMs)
    moments.push(run)
    return setTimeout(() => {})
  }
  const { turns, wait, free, taken, granted } = await busy(new PieceTurns(later))
  const [slow, next] = [turns.join('slow'), turns.join('next')]
  for (let i = 0; i < 3 * piecesUnderWay; i++) wait('s', slow)
  const write = async () => {
    for (const turn of taken.splice(0)) turn.written(1)
    await new Promise(setImmediate)
  }
  for (let i = 0; i < piecesUnderWay; i++) await write()
  t.equal(granted.length + piecesRead, piecesUnderWay, 'so many are under way')
  wait('n', next)
  await write()
  t.equal(granted.length + piecesRead, piecesUnderWay, 'nothing more before the moment is over')
  while (granted.length < 3 * piecesUnderWay) {
    const before = granted.length
    for (const pass of moments.splice(0)) pass()
    await write()
    if (!t.ok(granted.length > before, 'then others go on')) break
  }
  await free(0)
})

// rules 2.16
t.test('pieces become smaller as more is left unsent, by all or by one address', async t => {
  const turns = new PieceTurns()
  const [reader, ...others] = Array.from({ length: 40 }, (_, i) => turns.join(String(i)))
  if (!reader) throw new Error('none')
  t.equal(turns.pieceBytes(reader, largestPiece), largestPiece)
  const growing = [0, 64, 128, 256, 512].map(kib => turns.pieceBytes(reader, kib * 1024) / 1024)
  t.same(growing, [64, 64, 128, 256, 512], 'a download begins with small ones')
  const turn = await turns.take(reader)
  turn.written(unsentBytes * unsentPart)
  t.equal(turns.pieceBytes(reader, largestPiece), smallestPiece, 'an address that reads nothing')
  for (const other of others)
    t.equal(turns.pieceBytes(other, largestPiece), largestPiece, 'others do not pay for it')
  turn.end()
  t.equal(turns.pieceBytes(reader, largestPiece), largestPiece)

  // A thousand that read nothing hold the budget, and 16 KiB each beyond it.
  let held = 0
  for (let i = 0; i < 1000; i++) {
    const party = turns.join(`stalled ${i}`)
    const turn = await turns.take(party)
    const bytes = turns.pieceBytes(party, largestPiece)
    turn.written(bytes)
    held += bytes
  }
  t.ok(held <= unsentBytes + 1000 * smallestPiece, `${held} bytes`)
  t.equal(turns.pieceBytes(reader, largestPiece), smallestPiece)
})
