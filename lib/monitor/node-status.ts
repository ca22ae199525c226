import { Background } from '../background.js'
import { Journal } from '../store/journal.js'

/** One state a node reported, and when (ISO 8601, UTC). */
export interface Report {
  readonly state: string
  readonly time: string
}

/** What is kept of a node, whatever its name becomes; the newest report is the last of `history`. */
interface Kept {
  history: Report[]
}

type Event =
  | { readonly node: string; readonly history: readonly Report[] }
  | { readonly node: string; readonly state: string; readonly time: string }
  | { readonly node: string; readonly renamed: string }
  | { readonly node: string; readonly dropped: true }
  | { readonly probe: true }

const historyLength = 20
const retryMs = { first: 5_000, longest: 5_000 }
const newest = (history: readonly Report[]) => history.slice(-historyLength)
const byTime = (a: Report, b: Report) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0)

/**
 * The states nodes report while they install, with a short history (rules 6.2): in memory, and in a journal
 * that is on disk before a report is answered. Why a node could not boot is kept in memory alone.
 */
export class NodeStatus {
  readonly #nodes = new Map<string, Kept>()
  readonly #reasons = new Map<string, string>()
  /** Events of changes that were made, which the disk did not take yet. */
  readonly #owed: Event[] = []
  readonly #paying = new Background({ work: () => this.#pay(), retryMs })
  #journal!: Journal<Event>

  private constructor(readonly now: () => number) {}

  /** Reads the journal `file`, made when missing; throws what Journal.open throws. */
  static async open(file: string, now: () => number): Promise<NodeStatus> {
    const status = new NodeStatus(now)
    status.#journal = await Journal.open<Event>({
      file,
      read: event => status.#apply(event),
      snapshot: () => status.#snapshot()
    })
    return status
  }

  /** Records a state; resolves once it is on disk, rejects with StoreError when it cannot be. */
  async report(node: string, state: string): Promise<void> {
    const kept = this.#of(node)
    const time = new Date(this.now()).toISOString()
    await this.#append({ node, state, time })
    kept.history = newest([...kept.history, { state, time }])
  }

  /** The node's last state, null before the first. */
  state(node: string): string | null {
    return this.#nodes.get(node)?.history.at(-1)?.state ?? null
  }

  /** Oldest first. */
  history(node: string): readonly Report[] {
    return this.#nodes.get(node)?.history ?? []
  }

  /** Why the node was last refused a boot script, null when it was not. */
  reason(node: string): string | null {
    return this.#reasons.get(node) ?? null
  }

  /** True when the reason is news. */
  setReason(node: string, reason: string | undefined): boolean {
    if (this.#reasons.get(node) === reason) return false
    if (reason === undefined) this.#reasons.delete(node)
    else this.#reasons.set(node, reason)
    return true
  }

  /** Forgets a node that is gone: at once for readers; on disk now, or as soon as that can be. Never throws. */
  async drop(node: string): Promise<void> {
    this.#reasons.delete(node)
    if (this.#nodes.delete(node)) await this.#owe({ node, dropped: true })
  }

  /** Follows a node to its new name: at once for readers; on disk now, or as soon as that can be. Never throws. */
  async rename(node: string, to: string): Promise<void> {
    this.#reasons.delete(node)
    if (node !== to && this.#move(node, to)) await this.#owe({ node, renamed: to })
  }

  /** Whether the last report could be kept, and if not, why. */
  get health(): { ok: boolean; reason: string } {
    const reason = this.#paying.problem
    return { ok: reason === '', reason }
  }

  /**
   * Does what a crash kept from being done between a change of a node and that of its states: those of a node
   * that is gone follow it to the name it was given, or are forgotten.
   */
  async catchUp(
    exists: (node: string) => boolean,
    renamed: (node: string) => string | undefined
  ): Promise<void> {
    for (const node of [...this.#nodes.keys()]) {
      const passed = new Set<string>()
      let now: string | undefined = node
      while (now !== undefined && !exists(now) && !passed.has(now)) {
        passed.add(now)
        now = renamed(now)
      }
      if (now === undefined || passed.has(now)) await this.drop(node)
      else await this.rename(node, now)
    }
  }

  async close(): Promise<void> {
    await this.#paying.close()
    await this.#journal.close()
  }

  /** Writes an event that follows from a change already made: it cannot be refused, so it is owed until written. */
  async #owe(event: Event): Promise<void> {
    this.#owed.push(event)
    await this.#paying.run().catch(() => undefined)
  }

  /** Writes what is owed, in order. */
  async #pay(): Promise<void> {
    // Together they share one fsync; one that is written twice after a failure says the same twice.
    const events = [...this.#owed]
    await Promise.all(events.map(event => this.#journal.append(event)))
    this.#owed.splice(0, events.length)
  }

  async #append(event: Event): Promise<void> {
    if (this.#owed.length > 0) await this.#paying.run().catch(() => undefined)
    try {
      await this.#journal.append(event)
    } catch (error) {
      // A probe is owed: once the disk takes it `health` is well again, also when nobody reports.
      if (this.#owed.length === 0) await this.#owe({ probe: true })
      throw error
    }
  }

  /** Reads one event of the journal. */
  #apply(event: Event): void {
    if ('history' in event) this.#of(event.node).history = [...event.history]
    else if ('state' in event) {
      const kept = this.#of(event.node)
      kept.history = newest([...kept.history, { state: event.state, time: event.time }])
    } else if ('probe' in event) return
    else if ('renamed' in event) this.#move(event.node, event.renamed)
    else this.#nodes.delete(event.node)
  }

  #of(node: string): Kept {
    const kept = this.#nodes.get(node) ?? { history: [] }
    this.#nodes.set(node, kept)
    return kept
  }

  /** False where nothing is kept of the node. A report that is on its way to the disk moves along. */
  #move(node: string, to: string): boolean {
    const kept = this.#nodes.get(node)
    if (!kept) return false
    // The journal can hold both: it was made smaller, or could not be written, while the node was renamed.
    const there = this.#nodes.get(to)?.history ?? []
    kept.history = newest([...there, ...kept.history].sort(byTime))
    this.#nodes.delete(node)
    this.#nodes.set(to, kept)
    return true
  }

  *#snapshot(): Generator<Event> {
    for (const [node, { history }] of this.#nodes) if (history.length > 0) yield { node, history }
  }
}
