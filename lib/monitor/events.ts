import { randomBytes } from 'node:crypto'

/** What an event is about; docs/page.md lists what each tells. */
export type EventKind = 'node' | 'boot' | 'job' | 'service' | 'takeover' | 'change' | 'audit'

/** One event as it is sent. */
interface Kept {
  readonly seq: number
  readonly text: string
  readonly isForAdmins: boolean
}

/** What is to be told at the next turn. */
interface Pending {
  readonly kind: EventKind
  /** What it tells then, undefined for nothing; for events of one key the last one is told. */
  readonly tell: () => object | undefined
}

export interface EventsOptions {
  /** Milliseconds that only grow. */
  readonly ticks: () => number
  /** Events are gathered for so long; absent: 100 ms. */
  readonly gatherMs?: number
  /** How many events are kept for those who come back; absent: 8,192. */
  readonly most?: number
}

/** Characters of all events that are kept. */
const MOST_CHARACTERS = 2 * 1024 * 1024
/** So many are made in one turn: those that wait for theirs are replaced by newer ones of the same key. */
const MOST_AT_ONCE = 500
/** More that wait are given up: all readers load anew. */
const MOST_PENDING = 50_000
/** Nothing is kept once nobody has followed for so long: the reader that comes back after that loads anew. */
const KEPT_MS = 120_000
/** Characters of a piece. */
const PIECE = 64 * 1024

/**
 * What happens, for those who watch (rules 6.9). The last events are kept, so that a reader who comes back is told what it
 * missed; a reader who comes too late, or reads too slowly, is told to load anew. It costs the same for one reader and for
 * many: a reader is a place in the one list. While nobody reads, nothing is made.
 */
export class Events {
  /** Ids of another run of the daemon mean nothing in this one. */
  readonly #run = randomBytes(6).toString('hex')
  readonly #ticks: () => number
  readonly #gatherMs: number
  readonly #most: number
  #kept: Kept[] = []
  #characters = 0
  /** The last number that was given. */
  #last = 0
  /** All before it are gone. */
  #first = 1
  readonly #pending = new Map<string, Pending>()
  readonly #followers = new Set<() => void>()
  #listenedMs = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  /** The piece that was last made: most readers are at the same place. */
  readonly #joined = new Map<boolean, { readonly from: number; readonly to: number; readonly text: string }>()

  constructor({ ticks, gatherMs = 100, most = 8192 }: EventsOptions) {
    this.#ticks = ticks
    this.#gatherMs = gatherMs
    this.#most = most
  }

  /**
   * Something has happened. Events of one `key` that come close together are told once; `tell` is called then. Never throws,
   * and takes no time while nobody listens.
   */
  note(kind: EventKind, key: string, tell: () => object | undefined): void {
    if (!this.#isHeard) {
      this.#forget()
      return
    }
    this.#pending.set(`${kind} ${key}`, { kind, tell })
    if (this.#pending.size > MOST_PENDING) {
      this.#pending.clear()
      this.#forget()
    }
    this.#timer ??= setTimeout(() => this.#gather(), this.#gatherMs).unref()
  }

  /** The id of the last event: who loads everything now, and follows from there, misses nothing. */
  mark(): string {
    this.#listenedMs = this.#ticks()
    return this.#id(this.#last)
  }

  /** A reader who has seen all up to the event `lastId`; undefined: who wants what comes from now on. An admin sees more. */
  reader(lastId: string | undefined, role: string): EventReader {
    const [run, number] = lastId?.split('-') ?? []
    const seq = run === this.#run && /^\d{1,15}$/.test(number ?? '') ? Number(number) : -1
    const isKnown = seq >= this.#first - 1 && seq <= this.#last
    const from = isKnown ? seq : this.#last
    const begins = `retry: 2000\n\n${this.#special(from, 'begin', { role })}`
    const reset = isKnown || lastId === undefined ? '' : this.#special(from, 'reset')
    return new EventReader(this, from, role === 'admin', begins + reset)
  }

  /** Calls `wake` whenever there is something new; returns how to end that. */
  follow(wake: () => void): () => void {
    this.#followers.add(wake)
    return () => {
      this.#followers.delete(wake)
      this.#listenedMs = this.#ticks()
    }
  }

  /** How many follow. */
  get followers(): number {
    return this.#followers.size
  }

  /** What comes after the event `from`, and the number of its last; a reader who is too late is told to load anew. */
  after(from: number, isAdmin: boolean): { readonly to: number; readonly text: string } {
    if (from < this.#first - 1) return { to: this.#last, text: this.#special(this.#last, 'reset') }
    if (from >= this.#last) return { to: from, text: '' }
    const joined = this.#joined.get(isAdmin)
    if (joined?.from === from) return joined
    let text = ''
    let to = from
    for (let i = from - this.#first + 1; i < this.#kept.length && text.length < PIECE; i++) {
      const event = this.#kept[i] as Kept
      to = event.seq
      if (isAdmin || !event.isForAdmins) text += event.text
    }
    const made = { from, to, text }
    this.#joined.set(isAdmin, made)
    return made
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#pending.clear()
  }

  get #isHeard(): boolean {
    return this.#followers.size > 0 || this.#ticks() - this.#listenedMs < KEPT_MS
  }

  /** Something happened that nobody is told: who comes back has to load anew. */
  #forget(): void {
    if (this.#kept.length > 0) {
      this.#kept = []
      this.#characters = 0
      this.#joined.clear()
    }
    this.#last++
    this.#first = this.#last + 1
  }

  /** Makes events of what has happened. Those that are too many have their turn later. */
  #gather(): void {
    this.#timer = undefined
    let left = MOST_AT_ONCE
    for (const [key, { kind, tell }] of this.#pending) {
      if (left-- === 0) break
      this.#pending.delete(key)
      const told = tell()
      if (told) this.#keep(kind, told)
    }
    if (this.#pending.size > 0) this.#timer = setTimeout(() => this.#gather(), this.#gatherMs).unref()
    for (const wake of this.#followers) wake()
  }

  #keep(kind: EventKind, told: object): void {
    const seq = ++this.#last
    const text = `id: ${this.#id(seq)}\nevent: ${kind}\ndata: ${JSON.stringify(told)}\n\n`
    this.#kept.push({ seq, text, isForAdmins: kind === 'audit' })
    this.#characters += text.length
    // A half at once: to take one from the front of a long array is not cheap.
    if (this.#kept.length > this.#most || this.#characters > MOST_CHARACTERS) {
      for (const { text } of this.#kept.splice(0, Math.ceil(this.#kept.length / 2)))
        this.#characters -= text.length
      this.#first = this.#kept[0]?.seq ?? seq + 1
    }
  }

  #id(seq: number): string {
    return `${this.#run}-${seq}`
  }

  #special(seq: number, event: 'begin' | 'reset', data = {}): string {
    return `id: ${this.#id(seq)}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`
  }
}

/** One reader: its place among the events. */
export class EventReader {
  readonly #events: Events
  readonly #isAdmin: boolean
  #seen: number
  #begins: string

  constructor(events: Events, seen: number, isAdmin: boolean, begins: string) {
    this.#events = events
    this.#seen = seen
    this.#isAdmin = isAdmin
    this.#begins = begins
  }

  /** A comment, which readers pass over. */
  readonly beat = ': \n\n'

  /** The next events as they are sent, '' when there are none. */
  next(): string {
    const begins = this.#begins
    this.#begins = ''
    if (begins !== '') return begins
    for (;;) {
      const { to, text } = this.#events.after(this.#seen, this.#isAdmin)
      const isEnd = to === this.#seen
      this.#seen = to
      if (text !== '' || isEnd) return text
    }
  }

  follow(wake: () => void): () => void {
    return this.#events.follow(wake)
  }
}
