import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { defaultLimits, LIMITS, share } from '../../lib/http/admission/limits.js'
import { checkout } from '../support/programs.js'

const count = (value: number) => value.toLocaleString('en-US')
const seconds = (ms: number) => ms / 1000
const kib = (bytes: number) => bytes / 1024
const mib = (bytes: number) => bytes / 1024 / 1024
const parts = new Map([
  [3, 'three'],
  [4, 'quarter'],
  [8, 'eighth'],
  [16, 'sixteenth'],
  [32, 'thirty-second'],
  [120, 'two minutes']
])
const word = (value: number) => parts.get(value) ?? String(value)

const number = (value: number) => ['three', 'four'][value - 3] ?? String(value)

const d = defaultLimits
const l = LIMITS

/** The sentences of docs/rules.md by rule, with the figures of the table. */
const sentences: Record<string, string[]> = {
  '2.11': [
    `Request line and header over ${kib(d.headerBytes)} KiB, and a header of more than ${l.headerLines} lines`,
    `may post ${kib(l.shortBodyBytes)} KiB`,
    `A body of at most ${kib(l.shortBodyBytes)} KiB, by its \`Content-Length\``,
    `has ${seconds(d.shortBodyMs)} s in all`,
    `has to bring ${kib(d.bodyBytes)} KiB in each ${seconds(d.bodyMs)} s`,
    `may have ${d.bodiesPerAddress} requests with unfinished bodies`,
    `together may have ${count(d.bodies)}; then a request that is not a user's and is ` +
      `${seconds(l.bodyYieldMs)} s old`
  ],
  '2.13': [
    `has read nothing for ${seconds(d.yieldMs)} s. If there is no such client, the new download waits ` +
      `${seconds(d.downloadWaitMs)} s for a place`,
    `A ${l.waiting === 1000 ? 'thousand' : l.waiting} may wait`,
    `at most a ${word(1 / l.perAddress)} of the places (${l.downloadsPerAddressMin} in any case)`,
    `A file of up to ${kib(l.smallFileBytes)} KiB is no download`,
    `the last ${mib(l.smallFileCacheBytes)} MiB of such files`,
    `at most ${number(l.piecesRead)} pieces of all downloads at a time, ${number(l.diskReads)} of them from the ` +
      `disk, and goes on while fewer than ${l.piecesUnderWay} clients have not taken theirs; a client counts ` +
      `for ${l.pieceMs} ms`,
    `One piece of ${l.pieceRotation === 2 ? 'two' : l.pieceRotation} goes to the address that came first`,
    `An address that got ${mib(l.arrivalBytes)} MiB goes to the end`,
    `the last ${mib(l.pieceCacheBytes)} MiB of whole pieces`,
    `longer than ${kib(l.listPieceCharacters)} Ki characters: svcd sends ${d.lists} at once`,
    `It keeps ${mib(l.listKeptCharacters)} Mi characters of their parts`,
    `or waits ${seconds(d.listWaitMs)} s for a place`,
    `over ${l.retryMinS} to ${l.retryMaxS} s, so that they need not be refused again: ${l.retryGrowth} times`,
    `${l.retriesPerSecond} at least; lists and exports ${l.listRetriesPerSecond} a second. ` +
      `If ${l.retryMaxS} s are too short for all, the rest gets ${l.retryMaxS / 2} to ${l.retryMaxS} s`,
    `a bound of one address or user gets ${l.retryMinS} to ${l.busyMaxS} s`,
    `without room (2.15) gets ${l.busyForLongMinS} to ${l.retryMaxS} s`
  ],
  '2.14': [
    `svcd begins ${l.pipelinedPerTick} pipelined requests of all connections together, and ` +
      `${l.directPerTick} that wait behind no other`,
    `If ${l.pipelinedRequests} requests, or requests of ${kib(l.pipelinedBytes)} KiB together`,
    `more than ${l.pipelinedRequests} requests at once. It answers ${l.pipelinedMost} of them`,
    `take more than ${mib(l.pipelinedBytesInAll) / 2} MiB`,
    `Above ${mib(l.pipelinedBytesInAll)} MiB, svcd cuts`
  ],
  '2.15': [
    `a ${word(l.reservedPart)} of its limit, but at least ${l.reservedMin} and at most ${l.reservedMax}`,
    `Files may take a ${word(l.filePart)} of these`,
    `idle for ${seconds(l.activeMs)} s, the idlest first; one that has sent no request yet counts as idle ` +
      `after ${seconds(l.freshMs)} s`,
    `A ${word(l.refusalPart)} of the descriptors for clients is kept for these answers, and a ` +
      `${word(l.lentPart)} of those for the store is lent`,
    `if it has over ${l.aheadMin} more`,
    `svcd accepts up to ${l.acceptedPerTick} of them in each turn of the event loop. ` +
      `${count(l.acceptBacklog)} may wait`
  ],
  '2.16': [
    `reads nothing of it for ${word(seconds(d.stallMs))}`,
    `clients may leave ${mib(l.unreadBytes)} MiB unread in all`,
    `have read nothing for ${seconds(l.unreadMs)} s`,
    `Above ${mib(l.unreadBytesHard)} MiB it cuts`,
    `from ${kib(l.largestPiece)} KiB to ${kib(l.smallestPiece)} KiB. Above ${mib(l.unsentBytes)} MiB of all ` +
      `clients, or an ${word(1 / l.unsentPart)} of it of one address`,
    `The first piece of a download has ${kib(l.firstPiece)} KiB`
  ],
  '2.18': [
    `Its handshake has ${seconds(d.headersMs)} s. ${d.handshakes} handshakes are under way at once, and ` +
      `${l.handshakesPerTick} begin in a turn`,
    `have not done their part within ${seconds(d.handshakeYieldMs)} s`
  ],
  '2.20': [
    `and every ${seconds(d.feedBeatMs)} s`,
    `${d.feeds} are open at once: ${d.feedsPerUser} of one user, and ${d.feedsPerAddress} of one address`,
    `The last ${d.feeds / l.feedReservedPart} of the ${d.feeds} are for admins only`
  ]
}

/** The text of each rule, in one line. */
const rules = new Map(
  readFileSync(join(checkout, 'docs', 'rules.md'), 'utf8')
    .split(/^### /m)
    .slice(1)
    .map(text => [/^\S+/.exec(text)?.[0] ?? '', text.replace(/\s+/g, ' ')] as const)
)

t.test('docs/rules.md has the figures of the table of limits', async t => {
  for (const [number, texts] of Object.entries(sentences))
    for (const text of texts)
      t.ok(rules.get(number)?.includes(text.replace(/\s+/g, ' ')), `rules ${number}: ${text}`)
})

// rules 2.15
t.test('the shares of the descriptors are those of the table', async t => {
  const { connections, downloads, crowded } = share(65_536, 36)
  const left = 65_536 - 36 - l.reservedMax
  const refused = Math.floor(left / l.refusalPart)
  t.same(
    { connections, downloads, crowded },
    {
      connections: left - refused,
      downloads: Math.floor(left / l.filePart),
      crowded: refused + l.reservedMax / l.lentPart
    }
  )
})
