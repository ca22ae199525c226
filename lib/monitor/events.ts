import { randomBytes } from 'node:crypto'

/** Kinds of events; docs/page.md lists the fields of each. */
type EventKind =
  | 'node'
  | 'boot'
  | 'job'
  | 'service'
  | 'takeover'
  | 'hardware'
  | 'trust'
  | 'unknown'
  | 'change'
  | 'audit'

interface BufferedEvent {
  readonly seq: number
  readonly text: string
  readonly isForAdmins: boolean
  /** The node that it is about, and no other; undefined for the rest. */
  readonly node: unknown
}

/** An event that waits for the next turn. */
interface Pending {
  readonly kind: EventKind
  /** Returns the data, undefined for no event. Of several events with one key, the last is used. */
  readonly tell: () => object | undefined
}

type Sees = (node: string) => boolean

interface EventsOptions {
  /** Monotonic clock, in milliseconds. */
  readonly ticks: () => number
  /** Interval in which events are collected; 100 ms by default. */
  readonly batchMs?: number
  readonly most?: number
}

/** Characters of all events in the buffer. */
const MOST_CHARACTERS = 2 * 1024 * 1024
/** Events made in one turn; the rest wait, and may be replaced by newer ones of the same key. */
const MOST_AT_ONCE = 500
/** With more pending events all are dropped, and all readers reload. */
const MOST_PENDING = 50_000
/** Without a follower for this long nothing is buffered; readers that return later reload. */
const KEPT_MS = 120_000
const CHUNK_CHARACTERS = 64 * 1024

/**
 * The event stream (rules 6.9). Recent events are buffered, so that a reader that reconnects gets what it
 * missed; a reader that is too late or too slow is told to reload. A reader is only a position in the buffer,
 * so many cost no more than one. While nobody reads, no events are made.
 */
export class Events {
  /** IDs of another run of the daemon are invalid in this one. */
  readonly #run = randomBytes(6).toString('hex')
  #buffer: BufferedEvent[] = []
  #characters = 0
  #last = 0
  #first = 1
  readonly #pending = new Map<string, Pending>()
  readonly #followers = new Set<() => void>()
  #listenedMs = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  /** The last chunk made: most readers are at the same position. */
  readonly #lastChunks = new Map<
    boolean,
    { readonly from: number; readonly to: number; readonly text: string }
  >()

  constructor(private readonly options: EventsOptions) {}

  /** Notes an event; those of one `key` are merged, and `tell` is called then. Free while nobody listens. */
  notify(kind: EventKind, key: string, tell: () => object | undefined): void {
    const hasListeners = this.#followers.size > 0 || this.options.ticks() - this.#listenedMs < KEPT_MS
    if (!hasListeners) {
      this.#dropBuffer()
      return
    }
    this.#pending.set(`${kind} ${key}`, { kind, tell })
    if (this.#pending.size > MOST_PENDING) {
      this.#pending.clear()
      this.#dropBuffer()
    }
    this.#flushSoon()
  }

  /** Returns the ID of the last event: a client that loads everything now and follows from it misses none. */
  cursor(): string {
    this.#listenedMs = this.options.ticks()
    return this.#id(this.#last)
  }

  /** Returns a reader after the event `lastId`, else from now on. Admins see more, `sees` nodes alone. */
  reader(lastId: string | undefined, role: string, sees?: Sees) {
    const [run, number] = lastId?.split('-') ?? []
    const seq = run === this.#run && /^\d{1,15}$/.test(number ?? '') ? Number(number) : -1
    const isKnown = seq >= this.#first - 1 && seq <= this.#last
    let seen = isKnown ? seq : this.#last
    const reset = isKnown || lastId === undefined ? '' : this.#special(seen, 'reset')
    let begins = `retry: 2000\n\n${this.#special(seen, 'begin', { role })}${reset}`
    return {
      /** A comment, which readers ignore. */
      keepAlive: ': \n\n',
      /** Returns the next events in the format of the stream; '' for none. */
      next: (): string => {
        const first = begins
        begins = ''
        if (first !== '') return first
        for (;;) {
          const { to, text } = this.#after(seen, role === 'admin', sees)
          const isEnd = to === seen
          seen = to
          if (text !== '' || isEnd) return text
        }
      },
      follow: (wake: () => void) => this.follow(wake)
    }
  }

  /** Calls `wake` whenever there are new events; returns a function that ends that. */
  follow(wake: () => void): () => void {
    this.#followers.add(wake)
    return () => {
      this.#followers.delete(wake)
      this.#listenedMs = this.options.ticks()
    }
  }

  /** Number of readers that follow. */
  get followers(): number {
    return this.#followers.size
  }

  /** Returns the events after `from` (`sees`: about these nodes alone), or a reset if it was dropped. */
  #after(from: number, isAdmin: boolean, sees?: Sees): { readonly to: number; readonly text: string } {
    if (from < this.#first - 1) return { to: this.#last, text: this.#special(this.#last, 'reset') }
    if (from >= this.#last) return { to: from, text: '' }
    const joined = sees ? undefined : this.#lastChunks.get(isAdmin)
    if (joined?.from === from) return joined
    let text = ''
    let to = from
    for (let i = from - this.#first + 1; i < this.#buffer.length && text.length < CHUNK_CHARACTERS; i++) {
      const event = this.#buffer[i] as BufferedEvent
      to = event.seq
      const { node } = event
      if (sees ? typeof node === 'string' && sees(node) : isAdmin || !event.isForAdmins) text += event.text
    }
    const made = { from, to, text }
    if (!sees) this.#lastChunks.set(isAdmin, made)
    return made
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#pending.clear()
  }

  /** Drops the buffer, because an event was not recorded: readers that reconnect reload. */
  #dropBuffer(): void {
    if (this.#buffer.length > 0) {
      this.#buffer = []
      this.#characters = 0
      this.#lastChunks.clear()
    }
    this.#last++
    this.#first = this.#last + 1
  }

  #flushSoon(): void {
    this.#timer ??= setTimeout(() => this.#flush(), this.options.batchMs ?? 100).unref()
  }

  /** Makes events of what is pending, a bounded number in one turn. */
  #flush(): void {
    this.#timer = undefined
    let left = MOST_AT_ONCE
    for (const [key, { kind, tell }] of this.#pending) {
      if (left-- === 0) break
      this.#pending.delete(key)
      const told = tell()
      if (told) this.#append(kind, told)
    }
    if (this.#pending.size > 0) this.#flushSoon()
    for (const wake of this.#followers) wake()
  }

  #append(kind: EventKind, told: object): void {
    const seq = ++this.#last
    const text = `id: ${this.#id(seq)}\nevent: ${kind}\ndata: ${JSON.stringify(told)}\n\n`
    const { name, node } = told as { readonly name?: unknown; readonly node?: unknown }
    const about = kind === 'node' ? name : kind === 'boot' || kind === 'hardware' ? node : undefined
    this.#buffer.push({ seq, text, isForAdmins: kind === 'audit', node: about })
    this.#characters += text.length
    // Half at once: taking one from the front of a long array is not cheap.
    if (this.#buffer.length > (this.options.most ?? 8192) || this.#characters > MOST_CHARACTERS) {
      for (const { text } of this.#buffer.splice(0, Math.ceil(this.#buffer.length / 2)))
        this.#characters -= text.length
      this.#first = this.#buffer[0]?.seq ?? seq + 1
    }
  }

  #id(seq: number): string {
    return `${this.#run}-${seq}`
  }

  #special(seq: number, event: 'begin' | 'reset', data = {}): string {
    return `id: ${this.#id(seq)}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`
  }
}

/** One reader: its position among the events. */
export type EventReader = ReturnType<Events['reader']>
