import type { Socket } from 'node:net'
import { type SecureContext, TLSSocket } from 'node:tls'
import { Semaphore } from '../concurrency.js'

/** So many are under way: each takes a millisecond or more at once, which requests of others wait for. */
const AT_ONCE = 32

export interface HandshakesOptions {
  /** What a new connection gets. */
  readonly context: () => SecureContext
  /** From the connection to the end of its handshake. */
  readonly timeoutMs: number
  /** While others wait for its place, a client has so long to do its part. */
  readonly yieldMs: number
  /** A handshake that came to nothing; `reason` is undefined if the connection only ended. */
  readonly failed: (peer: string, reason: string | undefined) => void
}

/**
 * The TLS handshakes of new connections. They are bounded in number, taken from each client address in turn, and in time
 * (rules 2.18): one address whose handshakes do not go on delays another one by `yieldMs` at most.
 */
export class Handshakes {
  readonly #options: HandshakesOptions
  readonly #places = new Semaphore(AT_ONCE)
  readonly #open = new Set<Socket>()
  /** They had their time, but nobody has needed their places; the first are the oldest. */
  readonly #late = new Set<Socket>()
  /** Their places are about to be free. */
  readonly #cut = new Set<Socket>()

  constructor(options: HandshakesOptions) {
    this.#options = options
  }

  /** Takes a connection of which nothing was read. Calls `secured` as soon as there may be something to read. */
  take(raw: Socket, address: string, secured: (socket: TLSSocket) => void): void {
    const timer = setTimeout(() => raw.destroy(), this.#options.timeoutMs)
    this.#open.add(raw)
    void this.#places
      .run(address, () => this.#run(raw, secured))
      .finally(() => {
        clearTimeout(timer)
        this.#open.delete(raw)
      })
    this.#makeRoom()
  }

  /** Cuts as many of those that had their time as others wait: who waits does so because all places are taken. */
  #makeRoom(): void {
    for (const raw of this.#late) {
      if (this.#cut.size >= this.#places.waiting(0)) return
      this.#late.delete(raw)
      this.#cut.add(raw)
      raw.destroy()
    }
  }

  /** Cuts the connections that have no TLS yet. */
  close(): void {
    for (const raw of this.#open) raw.destroy()
  }

  /** Resolves when the handshake has ended, well or not. */
  #run(raw: Socket, secured: (socket: TLSSocket) => void): Promise<void> {
    if (raw.destroyed) return Promise.resolve()
    const peer = raw.remoteAddress ?? '-'
    return new Promise(resolve => {
      let reason: string | undefined
      const yields = setTimeout(() => {
        this.#late.add(raw)
        this.#makeRoom()
      }, this.#options.yieldMs)
      const done = () => {
        clearTimeout(yields)
        this.#late.delete(raw)
        this.#cut.delete(raw)
        resolve()
      }
      const failed = () => {
        done()
        this.#options.failed(peer, reason)
      }
      const hungUp = () => raw.destroy()
      const socket = new TLSSocket(raw, {
        isServer: true,
        secureContext: this.#options.context(),
        ALPNProtocols: ['http/1.1']
      })
      tellProgress(socket, raw)
      // Node tells errors of a socket that no tls.Server has made by the latter.
      for (const event of ['error', '_tlsError'])
        socket.on(event, (error: Error & { reason?: string }) => {
          reason ??= error.reason ?? error.message
          socket.destroy()
        })
      socket
        .once('close', failed)
        .once('end', hungUp)
        .once('secure', () => {
          socket.off('close', failed).off('end', hungUp)
          done()
          secured(socket)
        })
    })
  }
}

/**
 * What the system has not taken yet of a large write, only the handle of the TCP socket tells. Node asks that of the TLS
 * socket before it ends a connection for want of progress, and so does `Unread`.
 */
function tellProgress(socket: TLSSocket, raw: Socket): void {
  type Handled = { _handle?: { writeQueueSize?: number } | null }
  const { _handle: handle } = socket as Handled
  if (handle)
    Object.defineProperty(handle, 'writeQueueSize', {
      get: () => (raw as Handled)._handle?.writeQueueSize ?? 0
    })
}
