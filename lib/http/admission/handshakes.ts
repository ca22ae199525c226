import type { Socket } from 'node:net'
import { type SecureContext, TLSSocket } from 'node:tls'
import { PerTurn, Semaphore } from '../../base/concurrency.js'
import { Parties } from '../../base/lists.js'
import { LIMITS, type Limits } from './limits.js'

interface HandshakesOptions {
  /** `headersMs`: from the connection to the end of its handshake. */
  readonly limits: Pick<Limits, 'handshakes' | 'headersMs' | 'handshakeYieldMs'>
  /** Returns the certificate for a new connection. */
  readonly context: () => SecureContext
  /** Called for a failed handshake; `reason` is undefined if the connection only ended. */
  readonly failed: (peer: string, reason: string | undefined) => void
}

/**
 * Limits the TLS handshakes of new connections in number and time (rules 2.18). Addresses without one come
 * first: when no slot is free, the address with most of them loses one. So only as many addresses as there
 * are slots can delay another one, by at most `handshakeYieldMs`.
 */
export class Handshakes {
  readonly #slots: Semaphore
  readonly #beginning = new PerTurn(LIMITS.handshakesPerTick)
  /** All connections without TLS yet, with their address. */
  readonly #open = new Map<Socket, string>()
  /** Handshakes with a slot, oldest first. */
  readonly #running = new Parties<Socket>()
  /** Handshakes over `handshakeYieldMs` whose slots nobody needed yet, oldest first. */
  readonly #late = new Set<Socket>()

  constructor(private readonly options: HandshakesOptions) {
    this.#slots = new Semaphore(options.limits.handshakes)
  }

  /** Takes an unread connection. Calls `secured` as soon as there may be something to read. */
  take(raw: Socket, address: string, secured: (socket: TLSSocket) => void): void {
    const timer = setTimeout(() => raw.destroy(), this.options.limits.headersMs)
    this.#open.set(raw, address)
    void this.#inSlot(raw, address, secured).finally(() => {
      clearTimeout(timer)
      this.#open.delete(raw)
    })
    this.#makeRoom()
  }

  /** Cuts as many late handshakes as others wait: they wait because no slot is free. */
  #makeRoom(): void {
    for (const raw of this.#late) {
      if (this.#slots.waiting(0) + this.#slots.waiting(1) === 0) return
      this.#cut(raw)
    }
    while (this.#slots.waiting(0) > 0) {
      const busiest = this.#running.largest
      const [oldest] = busiest
      if (busiest.size < 2 || !oldest) return
      this.#cut(oldest)
    }
  }

  #cut(raw: Socket): void {
    this.#late.delete(raw)
    this.#release(raw)
    raw.destroy()
  }

  /** Gives the slot of a handshake to the next one. One that was cut has none any more. */
  #release(raw: Socket): void {
    if (this.#running.delete(this.#open.get(raw) ?? '', raw)) this.#slots.release()
  }

  /** Cuts the connections without TLS. */
  close(): void {
    for (const raw of this.#open.keys()) raw.destroy()
  }

  async #inSlot(raw: Socket, address: string, secured: (socket: TLSSocket) => void): Promise<void> {
    const isFirst = this.#running.of(address).size === 0 && this.#slots.waiting(0, address) === 0
    const turn = this.#slots.take(address, isFirst ? 0 : 1)
    if (turn) await turn
    this.#running.add(address, raw)
    try {
      const { over } = await this.#beginning.run(address, () => ({ over: this.#run(raw, secured) }))
      await over
    } finally {
      this.#release(raw)
    }
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
      }, this.options.limits.handshakeYieldMs)
      const done = () => {
        clearTimeout(yields)
        this.#late.delete(raw)
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
      exposeWriteQueue(socket, raw)
      // Node emits errors of a socket without a tls.Server as '_tlsError'.
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
 * Shows the TCP handle's write queue at the TLS socket: only it has the rest of a large write. Node reads it
 * before it ends a stalled connection, and so does the send buffer budget.
 */
function exposeWriteQueue(socket: TLSSocket, raw: Socket): void {
  type Handled = { _handle?: { writeQueueSize?: number } | null }
  const { _handle: handle } = socket as Handled
  if (handle)
    Object.defineProperty(handle, 'writeQueueSize', {
      get: () => (raw as Handled)._handle?.writeQueueSize ?? 0
    })
}
