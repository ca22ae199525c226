import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Log } from '../log.js'
import type { Exchange } from './exchange.js'

const MAX_PATH = 300

/**
 * Writes one line for a request that is over: method, path, status, bytes of the body, milliseconds, source
 * address. The query is left out, since tokens are sometimes sent in it. Parts of files, of which a download
 * can have thousands, are of level debug.
 */
export function accessLine<C>(log: Log, exchange: Exchange<C>, complete: boolean): void {
  const level = exchange.status === 206 ? 'debug' : 'info'
  if (level === 'debug' ? log.level !== 'debug' : log.level === 'error' || log.level === 'warn') return
  const path = exchange.path.slice(0, MAX_PATH).replace(/[^\x21-\x7e]/g, hexEscape)
  const ms = (performance.now() - exchange.startedMs).toFixed(1)
  const end = complete ? '' : ' (client gone)'
  const { incoming, status, bytes, address } = exchange
  log[level](`${incoming.method} ${path} ${status || '-'} ${bytes} ${ms}ms ${address}${end}`)
}

/** The line for what the parser refused before it was a request. */
export function refusalLine(log: Log, socket: Duplex, status: number, message: string): void {
  log.info(`- - ${status} - - ${(socket as Partial<Socket>).remoteAddress ?? '-'} (${message})`)
}

/** The line for a connection whose TLS handshake failed. */
export function handshakeLine(log: Log, peer: string, reason: string): void {
  log.info(`- - - - - ${peer} (TLS: ${reason})`)
}

const hexEscape = (character: string) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`
