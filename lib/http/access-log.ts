import type { Log } from '../base/log.js'
import type { Exchange } from './exchange.js'

const MAX_PATH = 300

/** Lines per address and period. A booting node asks for some dozens of things. */
const MOST_LINES = 600
const PERIOD_MS = 60_000
/** Addresses that are counted at once; the oldest is forgotten. */
const MOST_ADDRESSES = 20_000

/** The lines of one address in the current period. */
interface Lines {
  readonly sinceMs: number
  count: number
  left: number
  /** Computed on first use. */
  isExempt?: boolean
}

/** Logs requests, parser refusals and failed TLS handshakes: 600 lines a minute per address (rules 11.7). */
export class AccessLog {
  readonly #lines = new Map<string, Lines>()

  /** `isExempt`: whether an address is the controller's own, or that of a server in front of it. */
  constructor(
    private readonly log: Log,
    private readonly isExempt: (address: string) => boolean,
    private readonly now: () => number = () => performance.now()
  ) {}

  /**
   * Logs a finished request: method, path, status, bytes of the body, milliseconds, source address. The query
   * is omitted, as tokens are sometimes sent in it. Parts of files have level debug, as a download can have
   * thousands.
   */
  request(exchange: Exchange, complete: boolean): void {
    const { log } = this
    const level = exchange.status === 206 ? 'debug' : 'info'
    if (level === 'debug' ? log.level !== 'debug' : log.level === 'error' || log.level === 'warn') return
    const { incoming, status, bytes, address } = exchange
    if (!this.#hasRoom(address)) return
    const path = readable(exchange.path.slice(0, MAX_PATH))
    const ms = (performance.now() - exchange.startedMs).toFixed(1)
    const end = complete ? '' : ' (client gone)'
    log[level](`${incoming.method} ${path} ${status || '-'} ${bytes} ${ms}ms ${address}${end}`)
  }

  /** Logs input that the parser refused before it was a request. */
  refusal(peer: string, status: number, message: string): void {
    if (this.#hasRoom(peer)) this.log.info(`- - ${status} - - ${peer} (${message})`)
  }

  /** Logs a failed TLS handshake. */
  handshake(peer: string, reason: string): void {
    if (this.#hasRoom(peer)) this.log.info(`- - - - - ${peer} (TLS: ${reason})`)
  }

  #hasRoom(address: string): boolean {
    const now = this.now()
    let lines = this.#lines.get(address)
    if (lines && now - lines.sinceMs >= PERIOD_MS) {
      if (lines.left > 0) this.log.info(`${lines.left} lines of ${address} were left out`)
      this.#lines.delete(address)
      lines = undefined
    }
    if (!lines) {
      lines = { sinceMs: now, count: 0, left: 0 }
      this.#lines.set(address, lines)
      const [oldest] = this.#lines.keys()
      if (this.#lines.size > MOST_ADDRESSES && oldest !== undefined) this.#lines.delete(oldest)
    }
    lines.count++
    if (lines.count <= MOST_LINES) return true
    lines.isExempt ??= this.isExempt(address)
    if (lines.isExempt) return true
    lines.left++
    if (lines.left === 1)
      this.log.info(
        `${address} had ${MOST_LINES} lines within a minute; ` +
          'its further ones are left out until the minute is over'
      )
    return false
  }
}

/** Testing first is cheaper: nearly no path needs an escape. */
const readable = (path: string) =>
  /[^\x21-\x7e]/.test(path) ? path.replace(/[^\x21-\x7e]/g, hexEscape) : path

const hexEscape = (character: string) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`
