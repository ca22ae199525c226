import type { Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type SecureContext, TLSSocket } from 'node:tls'
import { Semaphore } from '../concurrency.js'

/** So many begin in a turn of the event loop: each takes a millisecond or so, which requests of others wait for. */
const IN_A_TURN = 32

export interface HandshakesOptions {
  /** What a new connection gets. */
  readonly context: () => SecureContext
  /** So many are under way. */
  readonly most: number
  /** From the connection to the end of its handshake. */
  readonly timeoutMs: number
  /** While others wait for its place, a client has so long to do its part. */
  readonly yieldMs: number
  /** A handshake that came to nothing; `reason` is undefined if the connection only ended. */
  readonly failed: (peer: string, reason: string | undefined) => void
}

/**
 * The TLS handshakes of new connections. They are bounded in number and in time (rules 2.18). An address that has none yet
 * comes before those that have some: where all places are taken, one of the address with most of them is cut for it. So
 * only as many addresses as there are places delay another one, by `yieldMs` at most.
 */
export class Handshakes {
  readonly #places: Semaphore
  readonly #beginning = new Semaphore(IN_A_TURN)
  /** All that have no TLS yet, with their address. */
  readonly #open = new Map<Socket, string>()
  /** Those under way by address, the oldest first. */
  readonly #under = new Map<string, Set<Socket>>()
  /** They had their time, but nobody has needed their places; the first are the oldest. */
  readonly #late = new Set<Socket>()
  /** Their places are about to be free. */
  readonly #cut = new Set<Socket>()

  constructor(private readonly options: HandshakesOptions) {
    this.#places = new Semaphore(options.most)
  }

  /** Takes a connection of which nothing was read. Calls `secured` as soon as there may be something to read. */
  take(raw: Socket, address: string, secured: (socket: TLSSocket) => void): void {
    const timer = setTimeout(() => raw.destroy(), this.options.timeoutMs)
    this.#open.set(raw, address)
    const isFirst = !this.#under.has(address) && this.#places.waiting(0, address) === 0
    void this.#places
      .run(address, () => this.#inPlace(raw, address, secured), isFirst ? 0 : 1)
      .finally(() => {
        clearTimeout(timer)
        this.#open.delete(raw)
      })
    this.#makeRoom()
  }

  /** Who waits does so because all places are taken: of those that had their time, as many are cut as others wait. */
  #makeRoom(): void {
    const waiting = this.#places.waiting(0) + this.#places.waiting(1)
    for (const raw of this.#late) {
      if (this.#cut.size >= waiting) break
      this.#free(raw)
    }
    while (this.#cut.size < this.#places.waiting(0)) {
      const raw = this.#ofMost()
      if (!raw) return
      this.#free(raw)
    }
  }

  #free(raw: Socket): void {
    this.#late.delete(raw)
    this.#cut.add(raw)
    const address = this.#open.get(raw)
    if (address !== undefined) this.#ended(raw, address)
    raw.destroy()
  }

  /** The oldest one of the address that has most, if that has more than one. */
  #ofMost(): Socket | undefined {
    let most: ReadonlySet<Socket> | undefined
    for (const sockets of this.#under.values()) if (sockets.size > (most?.size ?? 1)) most = sockets
    return most?.values().next().value
  }

  #ended(raw: Socket, address: string): void {
    const sockets = this.#under.get(address)
    if (sockets?.delete(raw) && sockets.size === 0) this.#under.delete(address)
  }

  /** Cuts the connections that have no TLS yet. */
  close(): void {
    for (const raw of this.#open.keys()) raw.destroy()
  }

  async #inPlace(raw: Socket, address: string, secured: (socket: TLSSocket) => void): Promise<void> {
    const sockets = this.#under.get(address) ?? new Set()
    this.#under.set(address, sockets.add(raw))
    let over: Promise<void> | undefined
    await this.#beginning.run(address, () => {
      over = this.#run(raw, secured)
      return nextTurn()
    })
    await over
    this.#cut.delete(raw)
    this.#ended(raw, address)
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
      }, this.options.yieldMs)
      const done = () => {
        clearTimeout(yields)
        this.#late.delete(raw)
        this.#cut.delete(raw)
        resolve()
      }
      const failed = () => {
        done()
        this.options.failed(peer, reason)
      }
      const hungUp = () => raw.destroy()
      const socket = new TLSSocket(raw, {
        isServer: true,
        secureContext: this.options.context(),
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
