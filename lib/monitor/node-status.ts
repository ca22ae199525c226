import type { Log } from '../base/log.js'
import { RateLimit } from '../base/rate-limit.js'
import type { View } from '../model/stored.js'
import type { RevokedDoc } from '../model/types/node.js'
import type { KeptRecords, OpenRecords } from '../store/records.js'
import type { Change } from '../store/types.js'
import { NodeRate } from './node-rate.js'

/** A state that a node reported; `time` is ISO 8601, UTC. */
export interface Report {
  readonly state: string
  readonly time: string
}

/** State of one node; survives a rename. The newest report is the last of `history`. */
interface NodeState {
  history: Report[]
  /** Why the machine last got no boot script, or one that may not work; null if all was well. */
  reason: string | null
}

type StatusRecord =
  | { readonly node: string; readonly history: readonly Report[] }
  | { readonly node: string; readonly state: string; readonly time: string }
  | { readonly node: string; readonly reason: string | null }

const historyLength = 20
/** New reasons of a node that are logged in a minute: anybody may ask in its name. */
const newsRate = { burst: 10, refill: 10, everyMs: 60_000 }
const lastReports = (history: readonly Report[]) => history.slice(-historyLength)
const byTime = (a: Report, b: Report) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0)

/** Separates a state from the output of a failed script, which not everybody may see. */
const beforeOutput = '; it printed: '
/** Returns a state without the output of the failed script. */
export const withoutOutput = (state: string) => state.split(beforeOutput, 1)[0] as string

/** Matches the end of an installation; a failure with its step and reason. */
const outcome = /^installer\.(completed|failed)\b(?:: *([\w-]+)(?=:|$))?(?:: *(.*))?/s

/**
 * Keeps the states that nodes report while they install, and why they could not boot (rules 6.2). A report is
 * stored before it is answered, a reason soon after. A follower takes the records of the leader.
 */
export class NodeStatus {
  readonly #nodes = new Map<string, NodeState>()
  readonly #reportRate = new NodeRate()
  /** Changes that a node makes of itself. */
  readonly #changeRate = new NodeRate()
  /** Failures of a node in the log, and its reasons. */
  readonly #failureRate = new NodeRate()
  readonly #newsRate = new RateLimit(newsRate)
  #records!: KeptRecords<StatusRecord>
  /** Called with the node of each new state or reason; must not throw. */
  onChange: (node: string) => void = () => undefined

  private constructor(
    readonly now: () => number,
    readonly log: Pick<Log, 'warn' | 'info'>
  ) {}

  /** Reads the records that `open` opens; throws as `open` does. */
  static async open(open: OpenRecords, now: () => number, log: Pick<Log, 'warn' | 'info'>) {
    const status = new NodeStatus(now, log)
    status.#records = await open<StatusRecord>({
      namesIn: ({ node }) => [node],
      appliesOnceStored: event => 'state' in event,
      isAddition: event => 'state' in event,
      latest: node => ({ node, reason: status.reason(node) }),
      names: () => status.#nodes.keys(),
      recordsOf: node => status.#eventsOf(node),
      replaceRecords: (node, events) => status.#replace(node, events),
      reset: () => status.#nodes.clear()
    })
    return status
  }

  /** Records a state; resolves once it is stored. Rejects with StoreError, and with 503 above its rate. */
  async report(node: string, state: string): Promise<void> {
    const kept = this.#of(node)
    if (this.#records.isShared) this.#reportRate.takeOrThrow(node)
    const time = new Date(this.now()).toISOString()
    await this.#records.append({ node, state, time })
    const before = kept.history
    kept.history = lastReports([...kept.history, { state, time }])
    this.onChange(node)
    const [, ended, step, reason] = outcome.exec(withoutOutput(state)) ?? []
    if (ended !== 'failed') return
    // A node retries forever: the same failure is logged once.
    const last = before.findLast(report => outcome.test(report.state))
    if (last && withoutOutput(last.state) === withoutOutput(state)) return
    if (!this.#failureRate.take(node)) return
    const where = step === undefined ? '' : ` in step ${step}`
    this.log.warn(`node ${node}: the installation failed${where}${reason === undefined ? '' : `: ${reason}`}`)
  }

  /** Counts a change that a node makes of itself; throws 503 with Retry-After above its rate. */
  countOwnChange(node: string): void {
    this.#changeRate.takeOrThrow(node)
  }

  /** Returns the last state of a node; null before the first. */
  state(node: string): string | null {
    return this.#nodes.get(node)?.history.at(-1)?.state ?? null
  }

  /** Returns the reports of a node, oldest first. */
  history(node: string): readonly Report[] {
    return this.#nodes.get(node)?.history ?? []
  }

  /** Returns why the machine last got no boot script, or one that may not work; null if all was well. */
  reason(node: string): string | null {
    return this.#nodes.get(node)?.reason ?? null
  }

  /** Returns the reason, or else why the installation that is being retried failed; null if all is well. */
  problem(node: string): string | null {
    const { history = [], reason = null } = this.#nodes.get(node) ?? {}
    const state = history.at(-1)?.state
    if (reason !== null || !state?.startsWith('installer.') || outcome.test(state)) return reason
    return (
      this.failure(node)?.replace(
        /^installer\.failed:?/,
        'the installation is tried again; it failed in step'
      ) ?? null
    )
  }

  /** Returns the state of the last failed installation, unless a later one was completed. */
  failure(node: string): string | undefined {
    const state = this.history(node).findLast(report => outcome.test(report.state))?.state
    return state?.startsWith('installer.failed') ? state : undefined
  }

  /** Sets the reason; returns whether to log it: it is new, and one of at most ten in a minute. */
  setReason(node: string, reason: string | null): boolean {
    if (this.reason(node) === reason) return false
    const kept = this.#of(node)
    kept.reason = reason
    this.onChange(node)
    // No boot script waits for it, so it is stored in the background.
    if (!this.#records.isReadOnly) this.#records.soon(node)
    return reason === null || this.#newsRate.take(node)
  }

  /** Drops the states of a node, as `rename` does. */
  drop(node: string): Promise<void> {
    return this.rename(node, undefined)
  }

  /** Renames a node, or drops it: at once for readers, on disk now or as soon as possible. Never throws. */
  async rename(node: string, to: string | undefined): Promise<void> {
    const kept = this.#nodes.get(node)
    if (!kept || node === to) return
    this.#nodes.delete(node)
    if (to === undefined) return this.#records.rewrite(node)
    // Both names exist if a controller crashed between the change of the node and this move.
    const there = this.#nodes.get(to)?.history ?? []
    // Reports that are being written move along.
    kept.history = lastReports([...there, ...kept.history].sort(byTime))
    // The reason contains the old name.
    kept.reason = null
    this.#nodes.set(to, kept)
    await this.#records.rewrite(node, to)
  }

  /** Whether the last write succeeded, and if not, why. */
  get health(): { ok: boolean; reason: string } {
    return this.#records.health
  }

  /** Applies committed changes: renamed and deleted nodes take their states along. */
  follow(changes: readonly Change[]): void {
    for (const { type, name, after } of changes)
      if (type === 'revoked' && after) void this.rename(name, (after as RevokedDoc).renamed)
  }

  /** Repairs names after a crash between the change of a node and the change of its states. */
  async catchUp(view: View): Promise<void> {
    for (const node of [...this.#nodes.keys()]) await this.rename(node, currentName(view, node))
  }

  close(): Promise<void> {
    return this.#records.close()
  }

  /** Replaces what is known of a node with stored records, those of an earlier name included. */
  #replace(node: string, events: readonly StatusRecord[]): void {
    this.#nodes.delete(node)
    for (const event of events) {
      const kept = this.#of(node)
      const reports = 'history' in event ? event.history : 'state' in event ? [event] : []
      const all = [...kept.history, ...reports.map(({ state, time }) => ({ state, time }))]
      kept.history = lastReports(event.node === node ? all : all.sort(byTime))
      // A reason contains the name.
      if ('reason' in event && event.node === node) kept.reason = event.reason
    }
    this.onChange(node)
  }

  #of(node: string): NodeState {
    const kept = this.#nodes.get(node) ?? { history: [], reason: null }
    this.#nodes.set(node, kept)
    return kept
  }

  *#eventsOf(node: string): Generator<StatusRecord> {
    const { history = [], reason = null } = this.#nodes.get(node) ?? {}
    if (history.length > 0) yield { node, history }
    if (reason !== null) yield { node, reason }
  }
}

/** Returns the current name of a node; undefined if it was deleted. */
export function currentName(view: View, node: string): string | undefined {
  const passed = new Set<string>()
  let now: string | undefined = node
  while (now !== undefined && !view.get('node', now)) {
    if (passed.has(now)) return undefined
    passed.add(now)
    now = view.get('revoked', now)?.renamed
  }
  return now
}
