import type { Log } from '../log.js'
import type { Exchange } from './exchange.js'

const MAX_PATH = 300

/** So many lines an address has in so long. A booting node asks for some dozens of things. */
const MOST_LINES = 600
const PERIOD_MS = 60_000
/** So many addresses are counted at once; the one that was first seen longest ago is forgotten. */
const MOST_ADDRESSES = 20_000

/** The lines of one address in the present period. */
interface Lines {
  readonly sinceMs: number
  count: number
  left: number
  /** Looked up when it matters. */
  isExempt?: boolean
}

/**
 * The lines for requests, for what was none, and for TLS handshakes that failed. An address that would fill the log has its
 * lines left out for the rest of a minute, and one that says so (rules 11.7).
 */
export class AccessLog {
  readonly #lines = new Map<string, Lines>()

  /** `isExempt`: an address of the controller itself, or of a server in front of it. */
  constructor(
    private readonly log: Log,
    private readonly isExempt: (address: string) => boolean,
    private readonly now: () => number = () => performance.now()
  ) {}

  /**
   * Writes one line for a request that is over: method, path, status, bytes of the body, milliseconds, source
   * address. The query is left out, since tokens are sometimes sent in it. Parts of files, of which a download
   * can have thousands, are of level debug.
   */
  request<C>(exchange: Exchange<C>, complete: boolean): void {
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

  /** The line for what the parser refused before it was a request. */
  refusal(peer: string, status: number, message: string): void {
    if (this.#hasRoom(peer)) this.log.info(`- - ${status} - - ${peer} (${message})`)
  }

  /** The line for a connection whose TLS handshake failed. */
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
        `${address} had ${MOST_LINES} lines within a minute; its further ones are left out until the minute is over`
      )
    return false
  }
}

/** To look first costs less than to replace nothing. */
const readable = (path: string) =>
  /[^\x21-\x7e]/.test(path) ? path.replace(/[^\x21-\x7e]/g, hexEscape) : path

const hexEscape = (character: string) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`
