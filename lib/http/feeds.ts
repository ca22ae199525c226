import { Parties } from '../base/lists.js'
import { clientNetworkOf } from '../base/request-source.js'
import { LIMITS, type Limits } from './admission/limits.js'
import { busy } from './admission/retry-after.js'
import type { Exchange } from './exchange.js'
import type { Feed, Subscriber } from './route.js'

/** How a feed is sent. */
interface FeedDelivery {
  readonly feed: Feed
  /** Writes the head of the answer. */
  readonly begin: () => void
  /** Whether the caller is still authorized. */
  readonly isStillAuthorized: () => Promise<boolean>
  readonly subscriber?: Subscriber | undefined
}

type FeedLimits = Pick<Limits, 'feeds' | 'feedsPerAddress' | 'feedsPerUser' | 'feedBeatMs'>

/** Minimum time between two authorization checks, apart from heartbeats (ms). */
const RECHECK_MS = 1000

/** The open feeds. Their number is bounded, in all, for one address and for one user (rules 2.20). */
export class Feeds {
  readonly #open = new Set<OpenFeed>()
  readonly #ofAddress = new Parties<OpenFeed>()
  readonly #ofUser = new Parties<OpenFeed>()
  #beating: NodeJS.Timeout | undefined
  #closing = false

  /** `isExempt`: whether an address has no limit of its own. */
  constructor(
    private readonly limits: FeedLimits,
    private readonly isExempt: (address: string) => boolean
  ) {}

  /** Sends a feed until its end. Throws 503 with Retry-After if too many are open. */
  async run(exchange: Exchange, sending: FeedDelivery): Promise<void> {
    const network = clientNetworkOf(exchange.address)
    const { subscriber } = sending
    this.#assertRoom(exchange.address, network, subscriber)
    const open = new OpenFeed(exchange, sending)
    this.#open.add(open)
    this.#ofAddress.add(network, open)
    if (subscriber) this.#ofUser.add(subscriber.name, open)
    this.#beating ??= setInterval(() => this.#beat(), this.limits.feedBeatMs).unref()
    try {
      await open.run(this.#closing)
    } finally {
      this.#open.delete(open)
      this.#ofAddress.delete(network, open)
      if (subscriber) this.#ofUser.delete(subscriber.name, open)
      if (this.#open.size === 0) {
        clearInterval(this.#beating)
        this.#beating = undefined
      }
    }
  }

  close(): void {
    this.#closing = true
    for (const open of this.#open) open.end()
  }

  #beat(): void {
    for (const open of this.#open) open.beat()
  }

  /** Throws 503 with Retry-After if there is no slot for one more. */
  #assertRoom(address: string, network: string, follower: Subscriber | undefined): void {
    const { feeds, feedsPerAddress, feedsPerUser } = this.limits
    const most = follower?.first ? feeds : feeds - Math.floor(feeds / LIMITS.feedReservedPart)
    const ofAddress = this.#ofAddress.of(network).size
    const ofUser = follower ? this.#ofUser.of(follower.name).size : 0
    if (ofUser >= feedsPerUser)
      throw busy(`${follower?.name} has ${ofUser} streams of events open, which is the most for one user`)
    if (ofAddress >= feedsPerAddress && !this.isExempt(address))
      throw busy(`${address} has ${ofAddress} streams of events open, which is the most for one address`)
    if (this.#open.size >= most)
      throw busy(`${this.#open.size} streams of events are open, which is the most`)
  }
}

class OpenFeed {
  #pumping = false
  #again = false
  #checkedMs = performance.now()
  #isQuiet = true

  constructor(
    private readonly exchange: Pick<Exchange, 'outgoing' | 'answered' | 'bytes'>,
    private readonly sending: FeedDelivery
  ) {}

  /** Resolves when the feed has ended. */
  async run(closing: boolean): Promise<void> {
    const { outgoing } = this.exchange
    const { feed, begin } = this.sending
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
    this.exchange.answered = true
    this.exchange.outgoing.end()
  }

  beat(): void {
    void this.#pump(true)
  }

  /** Sends what is new while the client takes it; the rest stays in the feed. Never rejects. */
  async #pump(isBeat: boolean): Promise<void> {
    if (this.#pumping) {
      this.#again = true
      return
    }
    this.#pumping = true
    try {
      do {
        this.#again = false
        if (!(await this.#isStillAuthorized(isBeat))) return this.end()
        this.#send(isBeat)
        if (this.sending.feed.ended) return this.end()
      } while (this.#again)
    } catch {
      this.exchange.outgoing.destroy()
    } finally {
      this.#pumping = false
    }
  }

  async #isStillAuthorized(isBeat: boolean): Promise<boolean> {
    const now = performance.now()
    if (!isBeat && now - this.#checkedMs < RECHECK_MS) return true
    this.#checkedMs = now
    return this.sending.isStillAuthorized()
  }

  #send(isBeat: boolean): void {
    const { feed } = this.sending
    while (this.#hasRoom) {
      const text = feed.next()
      if (text === '') break
      this.#write(text)
      this.#isQuiet = false
    }
    if (!isBeat) return
    if (this.#isQuiet && this.#hasRoom) this.#write(feed.keepAlive)
    this.#isQuiet = true
  }

  get #hasRoom(): boolean {
    const { outgoing } = this.exchange
    return !outgoing.writableNeedDrain && !outgoing.writableEnded && !outgoing.destroyed
  }

  #write(text: string): void {
    this.exchange.bytes += Buffer.byteLength(text)
    this.exchange.outgoing.write(text)
  }
}
