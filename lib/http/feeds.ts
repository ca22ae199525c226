import { busy } from './busy.js'
import type { Exchange } from './exchange.js'
import type { Limits } from './limits.js'
import type { Feed } from './route.js'

/** How a feed goes out. */
export interface Sending {
  readonly feed: Feed
  /** Sends the head of the answer. */
  readonly begin: () => void
  /** Whether who asked still may. */
  readonly mayStill: () => Promise<boolean>
}

type FeedLimits = Pick<Limits, 'feeds' | 'feedsPerAddress' | 'feedBeatMs'>

/** Whether a caller still may is asked at most so often, beside each beat: ms. */
const ASKED_MS = 1000

/** The feeds that are open: they are bounded in number, in all and for one address (rules 2.20). */
export class Feeds {
  readonly #limits: FeedLimits
  readonly #isUnbound: (address: string) => boolean
  readonly #open = new Set<OpenFeed>()
  readonly #ofAddress = new Map<string, number>()
  #beating: NodeJS.Timeout | undefined
  #closing = false

  /** `isUnbound`: whether an address has no bound of its own. */
  constructor(limits: FeedLimits, isUnbound: (address: string) => boolean) {
    this.#limits = limits
    this.#isUnbound = isUnbound
  }

  /** Sends a feed until the client goes, or may no more, or `close` is called. Throws 503 with Retry-After if there are too many. */
  async run<C>(exchange: Exchange<C>, sending: Sending): Promise<void> {
    const { feeds, feedsPerAddress } = this.#limits
    const { address } = exchange
    const siblings = this.#ofAddress.get(address) ?? 0
    if (this.#open.size >= feeds) throw busy(`${feeds} streams of events are open, which is the most`)
    if (siblings >= feedsPerAddress && !this.#isUnbound(address))
      throw busy(`${address} has ${siblings} streams of events open, which is the most for one address`)
    const open = new OpenFeed(exchange, sending)
    this.#open.add(open)
    this.#ofAddress.set(address, siblings + 1)
    this.#beating ??= setInterval(() => this.#beat(), this.#limits.feedBeatMs).unref()
    try {
      await open.run(this.#closing)
    } finally {
      this.#open.delete(open)
      const left = (this.#ofAddress.get(address) ?? 1) - 1
      if (left === 0) this.#ofAddress.delete(address)
      else this.#ofAddress.set(address, left)
      if (this.#open.size === 0) {
        clearInterval(this.#beating)
        this.#beating = undefined
      }
    }
  }

  /** Ends all of them. */
  close(): void {
    this.#closing = true
    for (const open of this.#open) open.end()
  }

  #beat(): void {
    for (const open of this.#open) open.beat()
  }
}

/** One feed on its way. */
class OpenFeed {
  readonly #exchange: Pick<Exchange<unknown>, 'outgoing' | 'answered' | 'bytes'>
  readonly #sending: Sending
  #pumping = false
  #again = false
  #askedMs = performance.now()
  #isQuiet = true

  constructor(exchange: Pick<Exchange<unknown>, 'outgoing' | 'answered' | 'bytes'>, sending: Sending) {
    this.#exchange = exchange
    this.#sending = sending
  }

  /** Resolves when it has ended. */
  async run(closing: boolean): Promise<void> {
    const { outgoing } = this.#exchange
    const { feed, begin } = this.#sending
    begin()
    const wake = () => void this.#pump(false)
    const stop = feed.follow(wake)
    outgoing.on('drain', wake)
    try {
      await new Promise<void>(resolve => {
        outgoing.once('close', resolve)
        wake()
        if (closing) this.end()
      })
    } finally {
      stop()
      outgoing.off('drain', wake)
    }
  }

  end(): void {
    this.#exchange.answered = true
    this.#exchange.outgoing.end()
  }

  beat(): void {
    void this.#pump(true)
  }

  /** Sends what is new, as long as the client takes it: what it does not take stays where it is. Never rejects. */
  async #pump(isBeat: boolean): Promise<void> {
    if (this.#pumping) {
      this.#again = true
      return
    }
    this.#pumping = true
    try {
      do {
        this.#again = false
        if (!(await this.#mayStill(isBeat))) return this.end()
        this.#send(isBeat)
      } while (this.#again)
    } catch {
      this.#exchange.outgoing.destroy()
    } finally {
      this.#pumping = false
    }
  }

  async #mayStill(isBeat: boolean): Promise<boolean> {
    const now = performance.now()
    if (!isBeat && now - this.#askedMs < ASKED_MS) return true
    this.#askedMs = now
    return this.#sending.mayStill()
  }

  #send(isBeat: boolean): void {
    const { feed } = this.#sending
    while (this.#hasRoom) {
      const text = feed.next()
      if (text === '') break
      this.#write(text)
      this.#isQuiet = false
    }
    if (!isBeat) return
    if (this.#isQuiet && this.#hasRoom) this.#write(feed.beat)
    this.#isQuiet = true
  }

  get #hasRoom(): boolean {
    const { outgoing } = this.#exchange
    return !outgoing.writableNeedDrain && !outgoing.writableEnded && !outgoing.destroyed
  }

  #write(text: string): void {
    this.#exchange.bytes += Buffer.byteLength(text)
    this.#exchange.outgoing.write(text)
  }
}
