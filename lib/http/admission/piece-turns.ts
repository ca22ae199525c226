import { LIMITS } from './limits.js'

const { piecesRead, piecesUnderWay, pieceMs, pieceRotation, arrivalBytes, unsentBytes, unsentPart } = LIMITS
const { firstPiece, largestPiece, smallestPiece } = LIMITS

/** The downloads of one client network. */
export interface DownloadParty {
  /** Its place in the order of arrival. */
  order: number
  downloads: number
  /** Bytes sent since it got its place in the order. */
  sent: number
  /** Bytes that the system has not taken yet. */
  unsent: number
  readonly waiting: (() => void)[]
}

/** The right to send a piece. */
export interface PieceTurn {
  /** Says that so many bytes were written to the client, from which the next piece may be read. */
  written(bytes: number): void
  /** Says that the system has taken them, or that nothing is written. */
  end(): void
}

/**
 * Decides which download sends the next piece, and how large it is (rules 2.13). Parties that came first are
 * served first: if all of a thousand machines shared, none of them would be done early.
 */
export class PieceTurns {
  readonly #parties = new Map<string, DownloadParty>()
  /** Parties with a download that waits, the longest wait first. */
  readonly #waiting = new Set<DownloadParty>()
  #orders = 0
  #granted = 0
  #reading = 0
  #underWay = 0
  #unsent = 0

  /** @param later the timer; a test passes the time by hand */
  constructor(private readonly later: (run: () => void, ms: number) => NodeJS.Timeout = setTimeout) {}

  /** Adds a download, until `leave`. */
  join(name: string): DownloadParty {
    const party = this.#parties.get(name) ?? {
      ...{ order: ++this.#orders, downloads: 0, sent: 0, unsent: 0, waiting: [] }
    }
    party.downloads++
    this.#parties.set(name, party)
    return party
  }

  /** `isCut`: the client left before the end. It goes to the end: asking again and again costs it nothing. */
  leave(name: string, party: DownloadParty, isCut = false): void {
    if (--party.downloads === 0) this.#parties.delete(name)
    else if (isCut) this.#moveToEnd(party)
  }

  /** Resolves with the right to send a piece. */
  async take(party: DownloadParty): Promise<PieceTurn> {
    if (this.#isFull)
      await new Promise<void>(resolve => {
        party.waiting.push(resolve)
        this.#waiting.add(party)
      })
    else this.#begin()
    let [isRead, isUnderWay, unsent] = [false, true, 0]
    const yieldPlace = () => {
      if (!isRead) this.#reading--
      if (isUnderWay) this.#underWay--
      isRead = true
      isUnderWay = false
      this.#grant()
    }
    let timer: NodeJS.Timeout | undefined
    return {
      written: bytes => {
        this.#reading--
        isRead = true
        unsent = bytes
        this.#count(party, bytes)
        // A client that reads slowly must not hold the place of others.
        timer = this.later(yieldPlace, pieceMs)
        this.#grant()
      },
      end: () => {
        clearTimeout(timer)
        party.unsent -= unsent
        this.#unsent -= unsent
        yieldPlace()
      }
    }
  }

  get #isFull(): boolean {
    return this.#reading >= piecesRead || this.#underWay >= piecesUnderWay
  }

  #begin(): void {
    this.#reading++
    this.#underWay++
  }

  /** Gives places that are free to downloads that wait. */
  #grant(): void {
    while (!this.#isFull) {
      const party = this.#next()
      if (!party) return
      this.#begin()
      // Moves it to the end.
      this.#waiting.delete(party)
      const grant = party.waiting.shift()
      if (party.waiting.length > 0) this.#waiting.add(party)
      grant?.()
    }
  }

  #next(): DownloadParty | undefined {
    const [longest] = this.#waiting
    // Otherwise a download could get nothing for minutes, and its client would give up.
    if (++this.#granted % pieceRotation === 0) return longest
    let first = longest
    for (const party of this.#waiting) if (party.order < (first?.order ?? 0)) first = party
    return first
  }

  /** Counts bytes that were written. */
  #count(party: DownloadParty, bytes: number): void {
    party.unsent += bytes
    this.#unsent += bytes
    party.sent += bytes
    if (party.sent >= arrivalBytes) this.#moveToEnd(party)
  }

  #moveToEnd(party: DownloadParty): void {
    party.sent = 0
    party.order = ++this.#orders
  }

  /**
   * A power of two, so that clients often share pieces. Smaller where clients leave much unread, and at the
   * beginning of a download, of which `sent` bytes were sent: a client that hangs up has cost little.
   */
  pieceBytes(party: DownloadParty, sent: number): number {
    const room = Math.min(unsentBytes - this.#unsent, unsentBytes * unsentPart - party.unsent)
    const size = 2 ** Math.floor(Math.log2(Math.max(room, 1) / 4))
    return Math.max(smallestPiece, Math.min(size, largestPiece, Math.max(firstPiece, sent)))
  }
}
