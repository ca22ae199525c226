import type { FileDelivery } from '../base/request-source.js'
import type { View } from '../model/stored.js'
import type { RevokedDoc } from '../model/types/node.js'
import type { KeptRecords, OpenRecords } from '../store/records.js'
import type { Change } from '../store/types.js'
import {
  addStep,
  type Boot,
  clipped,
  decode,
  type EncodedBoot,
  encode,
  findStep,
  newBoot,
  newStep,
  type Pack,
  type Step,
  type StepName,
  startsNewBoot
} from './boot-steps.js'
import { NodeRate } from './node-rate.js'
import { currentName } from './node-status.js'

/** The pack that a node runs. */
export interface Running extends Pack {
  /** When it was installed or first reported, in milliseconds since 1970. */
  readonly since: number
  readonly seen: number
}

export interface ObservedStep {
  readonly step: StepName
  /** Its subject: a file, a reason, a state. */
  readonly about: string
  readonly from: string
  /** `node`: by its token or own address; `near`: from an unassigned address of its network. */
  readonly place: 'node' | 'near' | 'elsewhere'
}

interface NodeBoots {
  /** Current name of the node; undefined once it is deleted. */
  name: string | undefined
  /** Earlier boots, oldest first. */
  past: EncodedBoot[]
  boot: Boot | undefined
  /** Steps from addresses that are not the node's. Not stored. */
  elsewhere: Step[]
  running: Running | undefined
}

interface BootRecord {
  readonly node: string
  /** Replaces all that is known; absent if only the current boot changed. */
  readonly past?: readonly string[]
  readonly boot?: string
  readonly running?: Running
}

const mostBoots = 10
const mostElsewhere = 16
/** A machine that asks for its script again after this pause has been restarted. */
const rebootAfterMs = 120_000
/** Earlier boots of a node in the shared store. */
const sharedBootsMax = 1

/**
 * Records what svcd saw of the last 10 boots of each node (rules 6.7): in memory at once, on disk in the
 * background. A follower takes the records of the leader, and keeps what it saw in memory until it leads.
 */
export class Boots {
  readonly #nodes = new Map<string, NodeBoots>()
  /** Nodes of which this controller saw something as a follower. */
  readonly #seenAsFollower = new Set<string>()
  /** Reports on what nodes run, where controllers share the records. */
  readonly #runningRate = new NodeRate()
  #records!: KeptRecords<BootRecord>
  /** Called with each step, and without one when what the node runs changes; must not throw. */
  onChange: (node: string, step?: Step) => void = () => undefined

  private constructor(readonly now: () => number) {}

  /** Reads the records that `open` opens; throws as `open` does. */
  static async open(open: OpenRecords, now: () => number): Promise<Boots> {
    const boots = new Boots(now)
    boots.#records = await open<BootRecord>({
      namesIn: ({ node }) => [node],
      appliesOnceStored: () => false,
      isAddition: event => !event.past,
      latest: node => boots.#recordOf(node),
      names: () => boots.#nodes.keys(),
      recordsOf: (node, isShared) => boots.#recordsOf(node, isShared ? sharedBootsMax : mostBoots),
      replaceRecords: (node, events) => boots.#replace(node, events),
      reset: () => {
        boots.#nodes.clear()
        boots.#seenAsFollower.clear()
      }
    })
    return boots
  }

  /** Records a step and returns it. Never throws, and touches no disk. */
  record(node: string, { step: name, about: text, from, place }: ObservedStep): Step {
    const kept = this.#of(node)
    const now = this.now()
    const about = clipped(text)
    const boot = place === 'elsewhere' ? undefined : this.#bootFor(node, kept, name, from, now, place)
    // Strangers have many addresses, so only the last one is kept.
    const known = boot ? findStep(boot.steps, name, about, from) : findStep(kept.elsewhere, name, about)
    const step = known ?? newStep(name, about, from, now)
    if (known) {
      known.last = now
      known.count++
      known.from = from
    }
    if (!boot) {
      if (!known) addElsewhere(kept.elsewhere, step)
      return step
    }
    boot.last = now
    if (place === 'node') boot.proven = true
    if (!known) addStep(boot, step)
    this.#markPending(node)
    this.onChange(node, step)
    return step
  }

  /** Records how the file of a `step` was sent. */
  recordDelivery(node: string, step: Step, sent: FileDelivery): void {
    Object.assign(step, sent)
    const boot = this.#nodes.get(node)?.boot
    if (!boot?.steps.includes(step)) return
    if (step.step === 'initramfs' && sent.end !== 'cut' && sent.end !== 'refused') boot.started = true
    this.#markPending(node)
    this.onChange(node, step)
  }

  /** Records the pack that a node was assigned. Adds no step. */
  recordAssigned(node: string, pack: Pack): void {
    const boot = this.#nodes.get(node)?.boot
    if (boot) boot.given = pack
  }

  /** Records that a node has installed the pack it was assigned. */
  recordInstalled(node: string): void {
    const kept = this.#of(node)
    const given = kept.boot?.given
    if (!given) return
    kept.running = { ...given, since: this.now(), seen: this.now() }
    this.#markPending(node)
    this.onChange(node)
  }

  /**
   * Records the pack that a node reports to run. Resolves once it is stored, with the node's current name,
   * undefined if it was deleted. Rejects with StoreError, and with 503 above its rate in a shared store.
   */
  async recordRunning(node: string, pack: Pack): Promise<string | undefined> {
    const now = this.now()
    const kept = this.#of(node)
    if (this.#records.isShared) this.#runningRate.takeOrThrow(node)
    const before = kept.running
    const running = before?.pack === pack.pack ? { ...before, seen: now } : { ...pack, since: now, seen: now }
    // In memory first: a rename or delete during the write then moves it along.
    kept.running = running
    try {
      await this.#records.append({ node, running })
    } catch (error) {
      if (kept.running === running) kept.running = before
      throw error
    }
    if (kept.name !== undefined) this.onChange(kept.name)
    return kept.name
  }

  /** Returns what a node runs; undefined if unknown. */
  running(node: string): Running | undefined {
    return this.#nodes.get(node)?.running
  }

  /** Yields the nodes whose running pack is known. */
  *allRunning(): Generator<[node: string, running: Running]> {
    for (const [node, { running }] of this.#nodes) if (running) yield [node, running]
  }

  /** Whether any boot of the node was seen. */
  hasSeen(node: string): boolean {
    return this.#nodes.get(node)?.boot !== undefined
  }

  /** Returns when the current boot began, and its last step; undefined before the first step. */
  present(node: string): { readonly began: number; readonly step: Step } | undefined {
    const boot = this.#nodes.get(node)?.boot
    if (!boot) return undefined
    let step: Step | undefined
    for (const each of boot.steps) if (!step || each.last >= step.last) step = each
    return step && { began: boot.began, step }
  }

  /** Returns the last step of this name in the current boot. */
  lastStep(node: string, name: StepName): Step | undefined {
    return this.#nodes.get(node)?.boot?.steps.findLast(({ step }) => step === name)
  }

  /** Returns all boots of a node, oldest first. */
  of(node: string): { readonly boots: readonly Boot[]; readonly elsewhere: readonly Step[] } {
    const kept = this.#nodes.get(node)
    if (!kept) return { boots: [], elsewhere: [] }
    const { past, boot, elsewhere } = kept
    return { boots: [...past.map(({ text }) => decode(text)), ...(boot ? [boot] : [])], elsewhere }
  }

  /** Applies committed changes: renamed and deleted nodes take their boots along. */
  follow(changes: readonly Change[]): void {
    for (const { type, name, after } of changes)
      if (type === 'revoked' && after) this.#move(name, (after as RevokedDoc).renamed)
  }

  /**
   * Stores what this controller saw as a follower, and repairs names after a crash between the change of a
   * node and the change of its boots.
   */
  catchUp(view: View): void {
    const seen = [...this.#seenAsFollower]
    this.#seenAsFollower.clear()
    for (const node of seen) this.#markPending(node, true)
    for (const node of [...this.#nodes.keys()]) {
      const now = currentName(view, node)
      if (now !== node) this.#move(node, now)
    }
  }

  /** Whether changes can be written, and if not, why. */
  get health(): { ok: boolean; reason: string } {
    return this.#records.health
  }

  close(): Promise<void> {
    return this.#records.close()
  }

  /** Returns the boot that a step belongs to; creates it if the step begins one. */
  #bootFor(
    node: string,
    kept: NodeBoots,
    step: StepName,
    from: string,
    now: number,
    place: ObservedStep['place']
  ): Boot {
    const { boot } = kept
    if (boot && !startsNewBoot(step, boot, now, rebootAfterMs)) return boot
    if (boot) {
      archive(kept, boot)
      // Its end may not be stored yet.
      this.#markPending(node, true)
    }
    kept.boot = newBoot(now, from)
    // The asking machine may be a stranger, and the node may still be installing its pack.
    if (place === 'near') kept.boot.given = boot?.given
    return kept.boot
  }

  #of(node: string): NodeBoots {
    let kept = this.#nodes.get(node)
    if (!kept) {
      kept = { name: node, past: [], boot: undefined, elsewhere: [], running: undefined }
      this.#nodes.set(node, kept)
    }
    return kept
  }

  #markPending(node: string, isWhole = false): void {
    if (this.#records.isReadOnly) this.#seenAsFollower.add(node)
    else this.#records.soon(node, isWhole)
  }

  #move(node: string, to: string | undefined): void {
    const kept = this.#nodes.get(node)
    if (!kept || node === to) return
    this.#nodes.delete(node)
    kept.name = to
    this.#markPending(node, true)
    if (to === undefined) return
    const there = this.#nodes.get(to)
    // Both names exist if a controller crashed between the change of the node and this move.
    if (isNewer(there?.boot, kept.boot)) kept.boot = there?.boot
    if ((there?.running?.seen ?? 0) > (kept.running?.seen ?? 0)) kept.running = there?.running
    this.#nodes.set(to, kept)
    this.#markPending(to, true)
  }

  /** Returns the record of the current boot, and the past ones if given. */
  #recordOf(node: string, past?: readonly EncodedBoot[]): BootRecord {
    const { boot, running } = this.#nodes.get(node) ?? {}
    return {
      node,
      ...(past ? { past: past.map(({ text }) => text) } : {}),
      ...(boot ? { boot: encode(boot) } : {}),
      ...(running ? { running } : {})
    }
  }

  /** Replaces what is known of a node with stored records. A newer boot that was seen here stays. */
  #replace(node: string, events: readonly BootRecord[]): void {
    const here = this.#nodes.get(node)
    this.#nodes.delete(node)
    for (const event of events) this.#apply(node, event)
    const kept = this.#nodes.get(node)
    if (here && kept) kept.elsewhere = here.elsewhere
    if (kept && here && this.#seenAsFollower.has(node) && isNewer(here.boot, kept.boot)) kept.boot = here.boot
    else this.#seenAsFollower.delete(node)
    this.onChange(node)
  }

  #apply(node: string, event: BootRecord): void {
    const kept = this.#of(node)
    if (event.past) {
      kept.past = event.past.map(text => ({ proven: decode(text).proven, text }))
      kept.boot = undefined
      kept.running = undefined
    }
    if (event.running) kept.running = event.running
    if (event.boot === undefined) return
    const boot = decode(event.boot)
    if (kept.boot && kept.boot.began !== boot.began) archive(kept, kept.boot)
    kept.boot = boot
  }

  *#recordsOf(node: string, most: number): Generator<BootRecord> {
    const { past = [], boot, running } = this.#nodes.get(node) ?? {}
    if (boot || running) yield this.#recordOf(node, past.slice(-most))
  }
}

const isNewer = (a: Boot | undefined, b: Boot | undefined) => (a?.last ?? 0) > (b?.last ?? 0)

/** Adds a step, and drops the one seen longest ago if there are too many. */
function addElsewhere(steps: Step[], step: Step): void {
  steps.push(step)
  if (steps.length <= mostElsewhere) return
  const oldest = steps.reduce((a, b) => (b.last < a.last ? b : a))
  steps.splice(steps.indexOf(oldest), 1)
}

/** Archives a finished boot. Unproven boots are dropped first, so that strangers push out no others. */
function archive({ past }: NodeBoots, boot: Boot): void {
  past.push({ proven: boot.proven, text: encode(boot) })
  if (past.length < mostBoots) return
  const unproven = past.findIndex(({ proven }) => !proven)
  past.splice(Math.max(unproven, 0), 1)
}
