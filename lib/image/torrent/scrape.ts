import { randomBytes } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { on, once } from 'node:events'
import { isIPv6 } from 'node:net'
import { oneLine } from '../../base/log.js'
import { requestWhole } from '../../client/request.js'
import { decode, entry, HTTP_LIMITS, isMap } from './torrent.js'

/** Torrents per question: opentracker answers for 64, and over udp there is room for 74. */
const AT_ONCE = 50
/** How often a question over udp is sent, as an answer may be lost. */
const UDP_TRIES = 3
const UDP_LIMIT_MS = 2000

/** Nobody's torrent, asked for in place of an empty list: a tracker may refuse to answer for all torrents. */
const NOBODY = '0'.repeat(40)

/**
 * Returns the number of seeders that the tracker knows of each torrent, by info hash; 0 for an unknown one.
 * It is asked with a scrape: BEP 48 over http, where `announce` in the URL becomes `scrape`, or BEP 15 over
 * udp. Throws an Error saying in a few words why there is no answer.
 */
export async function scrape(announce: string, infoHashes: readonly string[], signal: AbortSignal) {
  const found = new Map<string, number>()
  const wanted = infoHashes.length === 0 ? [NOBODY] : infoHashes
  for (let i = 0; i < wanted.length; i += AT_ONCE) {
    const some = wanted.slice(i, i + AT_ONCE)
    const counts = await (announce.startsWith('udp:') ? overUdp : overHttp)(announce, some, signal)
    for (const [k, infoHash] of some.entries()) found.set(infoHash, counts[k] ?? 0)
  }
  return found
}

/** A tracker needs under 200 bytes for a torrent. A longer answer would take long to decode. */
const MOST_SCRAPED = 64 << 10

async function overHttp(announce: string, infoHashes: readonly string[], signal: AbortSignal) {
  const url = new URL(announce)
  const at = url.pathname.lastIndexOf('/') + 1
  if (!url.pathname.startsWith('announce', at))
    throw new Error('its URL does not end in /announce, so there is none to ask for seeders')
  url.pathname = `${url.pathname.slice(0, at)}scrape${url.pathname.slice(at + 'announce'.length)}`
  const query = infoHashes.map(infoHash => `info_hash=${infoHash.replace(/../g, '%$&')}`).join('&')
  const full = `${url.href}${url.search === '' ? '?' : '&'}${query}`
  const answered = await requestWhole({ url: full, signal, ...HTTP_LIMITS, most: MOST_SCRAPED })
  if (answered.status !== 200) throw new Error(`it answers a scrape with status ${answered.status}`)
  const told = decode(answered.body)
  const refused = entry(told, 'failure reason')
  if (refused !== undefined) throw new Error(`it refuses: ${oneLine(String(refused), 300)}`)
  const files = entry(told, 'files')
  if (!isMap(files)) throw new Error('it does not answer a scrape')
  return infoHashes.map(infoHash => {
    const seeders = entry(files.get(Buffer.from(infoHash, 'hex').toString('latin1')), 'complete')
    return typeof seeders === 'number' ? seeders : 0
  })
}

const CONNECT = 0
const SCRAPE = 2
const FAILED = 3
const PROTOCOL = Buffer.from('0000041727101980', 'hex')

async function overUdp(announce: string, infoHashes: readonly string[], signal: AbortSignal) {
  const { hostname, port } = new URL(announce)
  const host = hostname.replace(/^\[|\]$/g, '')
  const socket = createSocket({ type: isIPv6(host) ? 'udp6' : 'udp4' })
  // The waiter for a message gets its errors.
  socket.on('error', () => {})
  /** Sends a request until its answer comes; returns what follows the head of the answer. */
  const exchange = async (connection: Buffer, action: number, body: Buffer): Promise<Buffer> => {
    const transaction = randomBytes(4)
    const request = Buffer.concat([connection, Buffer.from([0, 0, 0, action]), transaction, body])
    for (let tries = 0; tries < UDP_TRIES; tries++) {
      const limit = AbortSignal.timeout(UDP_LIMIT_MS)
      try {
        const messages = on(socket, 'message', { signal: AbortSignal.any([signal, limit]) })
        socket.send(request)
        for await (const [message] of messages as AsyncIterable<[Buffer]>) {
          if (message.length < 8 || !message.subarray(4, 8).equals(transaction)) continue
          const told = message.readUInt32BE(0)
          if (told === FAILED) throw new Error(`it refuses: ${oneLine(String(message.subarray(8)), 300)}`)
          if (told === action) return message.subarray(8)
        }
      } catch (error) {
        signal.throwIfAborted()
        if (!limit.aborted) throw error
      }
    }
    throw new Error(`no answer within ${(UDP_TRIES * UDP_LIMIT_MS) / 1000} s`)
  }
  try {
    socket.connect(Number(port) || 80, host)
    await once(socket, 'connect', { signal })
    const connection = await exchange(PROTOCOL, CONNECT, Buffer.alloc(0))
    if (connection.length < 8) throw new Error('it does not speak the protocol of a tracker')
    const hashes = Buffer.from(infoHashes.join(''), 'hex')
    const counts = await exchange(connection.subarray(0, 8), SCRAPE, hashes)
    if (counts.length < 12 * infoHashes.length) throw new Error('its answer to a scrape is too short')
    return infoHashes.map((_, k) => counts.readUInt32BE(12 * k))
  } finally {
    socket.close()
  }
}
