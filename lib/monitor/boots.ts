import { Background } from '../background.js'
import type { Log } from '../log.js'
import type { View } from '../model/stored.js'
import type { RevokedDoc } from '../model/types/node.js'
import type { Sent } from '../source.js'
import type { OpenRecords, Records } from '../store/records.js'
import type { Change } from '../store/types.js'
import {
  addStep,
  type Boot,
  beganBy,
  clipped,
  decode,
  encode,
  newBoot,
  newStep,
  type Pack,
  type Packed,
  type Step,
  type StepName,
  sameStep
} from './boot-steps.js'
import { nameNow } from './node-status.js'
import { type Pace, paced } from './pace.js'

/** What a node runs. */
export interface Running extends Pack {
  /** When it was installed, or first told of; milliseconds since 1970. */
  readonly since: number
  /** When the node last told of it. */
  readonly seen: number
}

/** A step that svcd saw a node take. */
export interface Noted {
  readonly step: StepName
  /** What it was about: a file, a reason, a state. */
  readonly about: string
  /** The address that asked. */
  readonly from: string
  /**
   * `node`: an address that is the node's alone, or its token; `near`: an address of its network that nobody has;
   * `elsewhere`: any other.
   */
  readonly place: 'node' | 'near' | 'elsewhere'
}

/** What is kept of a node. */
interface Kept {
  /** The node's name by now; undefined once it is gone. */
  name: string | undefined
  /** The boots before the present one, the oldest first. */
  past: Packed[]
  boot: Boot | undefined
  /** Steps of machines that say they are this node, from addresses that are not its own. In memory alone. */
  elsewhere: Step[]
  running: Running | undefined
  /** How often it may tell what it runs, where controllers share that. */
  pace?: Pace
}

/** A node's boots for a reader: the oldest first. */
export interface Told {
  readonly boots: readonly Boot[]
  readonly elsewhere: readonly Step[]
}

type Event =
  | { readonly node: string; readonly dropped: true }
  | {
      readonly node: string
      /** Replaces what was kept; absent: only the present boot is told. */
      readonly past?: readonly string[]
      readonly boot?: string
      readonly running?: Running
    }

const mostBoots = 10
const mostElsewhere = 16
/** A machine that asks for its script again after so long has been started anew, whatever was seen before. */
const pauseMs = 120_000
/** So many nodes are written at once, and so often, so that nobody can keep the disk or the event loop busy, or fill what controllers share. */
const writtenAtOnce = 200
const ownMs = 1000
const sharedMs = 2000
const mostAtEnd = 1000
/** So many boots before the present one are kept where controllers share them. */
const mostShared = 1
const retryMs = { first: 2_000, longest: 10_000 }

/**
 * What svcd saw of the boots of each node (rules 6.7): in memory, and stored soon after. Nobody waits for that.
 * A node has 10 boots at most, and each has a bound; a step that is seen again is counted. While another controller writes, this one
 * takes what that one stores, and what it sees itself stays in memory until it writes.
 */
export class Boots {
  readonly #nodes = new Map<string, Kept>()
  /** What is not stored yet: the present boot of a node, or all of it. */
  readonly #unwritten = new Map<string, 'boot' | 'all'>()
  /** Nodes of which something was seen here while another controller writes. */
  readonly #seenHere = new Set<string>()
  readonly #writing: Background
  #records!: Records<Event>
  /** Is told each step of a boot, and what a node runs (no step); it must not throw. */
  told: (node: string, step?: Step) => void = () => undefined

  private constructor(
    readonly now: () => number,
    private everyMs: number | undefined,
    log: Pick<Log, 'warn' | 'info'>
  ) {
    this.#writing = new Background({
      work: () => this.#write(writtenAtOnce),
      everyMs: () => (this.#unwritten.size > 0 ? this.everyMs : undefined),
      retryMs,
      failed: reason => log.warn(`the boots of nodes cannot be written, and it is tried again: ${reason}`),
      recovered: () => log.info('the boots of nodes are written again')
    })
  }

  /** Reads what `open` opens; throws what that throws. What is new is written every `everyMs`. */
  static async open(
    open: OpenRecords,
    now: () => number,
    log: Pick<Log, 'warn' | 'info'>,
    everyMs?: number
  ): Promise<Boots> {
    const boots = new Boots(now, everyMs, log)
    boots.#records = await open<Event>({
      read: event => boots.#apply(event),
      snapshot: () => boots.#snapshot(),
      namesIn: ({ node }) => [node],
      waits: () => false,
      names: () => boots.#nodes.keys(),
      of: node => boots.#shared(node),
      take: (node, events) => boots.#take(node, events),
      reset: () => boots.#reset()
    })
    boots.everyMs ??= boots.#records.isShared ? sharedMs : ownMs
    return boots
  }

  /** Notes a step, and returns what is kept of it. Never throws, and touches no disk. */
  note(node: string, { step: name, about: text, from, place }: Noted): Step {
    const kept = this.#of(node)
    const now = this.now()
    const about = clipped(text)
    const boot = place === 'elsewhere' ? undefined : this.#bootFor(node, kept, name, from, now, place)
    // Strangers have many addresses: the last one is kept.
    const known = boot ? sameStep(boot.steps, name, about, from) : sameStep(kept.elsewhere, name, about)
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
    this.#changed(node)
    this.told(node, step)
    return step
  }

  /** Notes how a file was sent, which `step` is about. */
  sent(node: string, step: Step, sent: Sent): void {
    Object.assign(step, sent)
    const boot = this.#nodes.get(node)?.boot
    if (!boot?.steps.includes(step)) return
    if (step.step === 'initramfs' && sent.end !== 'cut' && sent.end !== 'refused') boot.started = true
    this.#changed(node)
    this.told(node, step)
  }

  /** Notes what a node was given to install; the step is noted apart. */
  given(node: string, pack: Pack): void {
    const boot = this.#nodes.get(node)?.boot
    if (boot) boot.given = pack
  }

  /** A node says that it has installed what it was given. */
  completed(node: string): void {
    const kept = this.#of(node)
    const given = kept.boot?.given
    if (!given) return
    kept.running = { ...given, since: this.now(), seen: this.now() }
    this.#changed(node)
    this.told(node)
  }

  /**
   * A node says which pack it runs. Resolves once that is stored, to the name that the node has by then, or to undefined
   * when it is gone; rejects with StoreError when it cannot be, and with 503 where the node tells it too often for controllers that share it.
   */
  async runs(node: string, pack: Pack): Promise<string | undefined> {
    const now = this.now()
    const kept = this.#of(node)
    if (this.#records.isShared) kept.pace = paced(node, kept.pace)
    const before = kept.running
    const running = before?.pack === pack.pack ? { ...before, seen: now } : { ...pack, since: now, seen: now }
    // In memory first: while it is written, the node may be renamed or deleted, and this goes along.
    kept.running = running
    try {
      await this.#records.append({ node, running })
    } catch (error) {
      if (kept.running === running) kept.running = before
      // It may be stored all the same.
      if (this.#records.isShared) this.#changed(node)
      throw error
    }
    if (kept.name !== undefined) this.told(kept.name)
    return kept.name
  }

  /** What a node runs, undefined when that is not known. */
  running(node: string): Running | undefined {
    return this.#nodes.get(node)?.running
  }

  /** The nodes of which it is known what they run. */
  *allRunning(): Generator<[node: string, running: Running]> {
    for (const [node, { running }] of this.#nodes) if (running) yield [node, running]
  }

  /** Whether a boot of this node was seen. */
  hasSeen(node: string): boolean {
    return this.#nodes.get(node)?.boot !== undefined
  }

  /** When the present boot began and its last step; undefined before the first. */
  present(node: string): { readonly began: number; readonly step: Step } | undefined {
    const boot = this.#nodes.get(node)?.boot
    if (!boot) return undefined
    let step: Step | undefined
    for (const each of boot.steps) if (!step || each.last >= step.last) step = each
    return step && { began: boot.began, step }
  }

  /** The last step of a name in the present boot. */
  lastStep(node: string, name: StepName): Step | undefined {
    return this.#nodes.get(node)?.boot?.steps.findLast(({ step }) => step === name)
  }

  /** What is kept of a node's boots. */
  of(node: string): Told {
    const kept = this.#nodes.get(node)
    if (!kept) return { boots: [], elsewhere: [] }
    const { past, boot, elsewhere } = kept
    return { boots: [...past.map(({ text }) => decode(text)), ...(boot ? [boot] : [])], elsewhere }
  }

  /** Follows committed changes: what is kept of a node that was renamed or deleted goes with it. */
  follow(changes: readonly Change[]): void {
    for (const { type, name, after } of changes)
      if (type === 'revoked' && after) this.#move(name, (after as RevokedDoc).renamed)
  }

  /** Catches up after a crash between a change of a node and what is kept of it. */
  catchUp(view: View): void {
    for (const node of [...this.#nodes.keys()]) {
      const now = nameNow(view, node)
      if (now !== node) this.#move(node, now)
    }
  }

  /** This controller writes from now on: what it saw before is written too. */
  promoted(view: View): void {
    const seen = [...this.#seenHere]
    this.#seenHere.clear()
    for (const node of seen) this.#changed(node, 'all')
    this.catchUp(view)
  }

  /** Whether what is new can be written, and if not, why. */
  get health(): { ok: boolean; reason: string } {
    const { problem } = this.#writing
    return { ok: problem === '', reason: problem }
  }

  /** Writes what is new; of what controllers share, what can be written soon: another one waits for the right to write. */
  async close(): Promise<void> {
    await this.#writing.close()
    await this.#write(this.#records.isShared ? mostAtEnd : Number.POSITIVE_INFINITY).catch(() => undefined)
    await this.#records.close()
  }

  /** The boot that a step belongs to; a new one where the step begins one. */
  #bootFor(node: string, kept: Kept, step: StepName, from: string, now: number, place: Noted['place']): Boot {
    const { boot } = kept
    if (boot && !beganBy(step, boot, now, pauseMs)) return boot
    if (boot) archive(kept, boot)
    // Its end is not stored.
    if (this.#unwritten.has(node)) this.#changed(node, 'all')
    kept.boot = newBoot(now, from)
    // It may be a stranger: the node may still install what it was given.
    if (place === 'near') kept.boot.given = boot?.given
    return kept.boot
  }

  #of(node: string): Kept {
    let kept = this.#nodes.get(node)
    if (!kept) {
      kept = { name: node, past: [], boot: undefined, elsewhere: [], running: undefined }
      this.#nodes.set(node, kept)
    }
    return kept
  }

  #changed(node: string, what: 'boot' | 'all' = 'boot'): void {
    if (this.#records.isFollowing) {
      this.#seenHere.add(node)
      return
    }
    if (what === 'all' || !this.#unwritten.has(node)) this.#unwritten.set(node, what)
    if (this.#unwritten.size === 1) this.#writing.wake(this.everyMs)
  }

  #move(node: string, to: string | undefined): void {
    const kept = this.#nodes.get(node)
    if (!kept || node === to) return
    this.#nodes.delete(node)
    kept.name = to
    this.#changed(node, 'all')
    if (to === undefined) return
    const there = this.#nodes.get(to)
    // Both are there where a controller died between the change of a node and this.
    if (isNewer(there?.boot, kept.boot)) kept.boot = there?.boot
    if ((there?.running?.seen ?? 0) > (kept.running?.seen ?? 0)) kept.running = there?.running
    this.#nodes.set(to, kept)
    this.#changed(to, 'all')
  }

  async #write(most: number): Promise<void> {
    const batch = [...this.#unwritten].slice(0, most)
    for (const [node] of batch) this.#unwritten.delete(node)
    try {
      await Promise.all(batch.map(([node, what]) => this.#records.append(this.#eventOf(node, what))))
    } catch (error) {
      // Who writes now has them as far as they were stored.
      if (this.#records.isFollowing) return
      for (const [node, what] of batch)
        if (what === 'all' || !this.#unwritten.has(node)) this.#unwritten.set(node, what)
      throw error
    }
  }

  #eventOf(node: string, what: 'boot' | 'all', most = mostBoots): Event {
    const kept = this.#nodes.get(node)
    if (!kept) return { node, dropped: true }
    const { past, boot, running } = kept
    return {
      node,
      ...(what === 'all' ? { past: past.slice(-most).map(({ text }) => text) } : {}),
      ...(boot ? { boot: encode(boot) } : {}),
      ...(running ? { running } : {})
    }
  }

  /** Another controller has stored this of a node. A boot that was seen here, and is newer, stays. */
  #take(node: string, events: readonly Event[]): void {
    const here = this.#nodes.get(node)
    this.#nodes.delete(node)
    for (const event of events) this.#apply(event)
    const kept = this.#nodes.get(node)
    if (here && kept) kept.elsewhere = here.elsewhere
    if (kept && here && this.#seenHere.has(node) && isNewer(here.boot, kept.boot)) kept.boot = here.boot
    else this.#seenHere.delete(node)
    this.told(node)
  }

  #reset(): void {
    this.#nodes.clear()
    this.#unwritten.clear()
    this.#seenHere.clear()
  }

  /** Reads one event. */
  #apply(event: Event): void {
    const { node } = event
    if ('dropped' in event) {
      this.#nodes.delete(node)
      return
    }
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

  *#snapshot(): Generator<Event> {
    for (const [node, { boot, running }] of this.#nodes) if (boot || running) yield this.#eventOf(node, 'all')
  }

  *#shared(node: string): Generator<Event> {
    const { boot, running } = this.#nodes.get(node) ?? {}
    if (boot || running) yield this.#eventOf(node, 'all', mostShared)
  }
}

const isNewer = (a: Boot | undefined, b: Boot | undefined) => (a?.last ?? 0) > (b?.last ?? 0)

/** Adds a step; one too many takes the place of the one that was seen longest ago. */
function addElsewhere(steps: Step[], step: Step): void {
  steps.push(step)
  if (steps.length <= mostElsewhere) return
  const oldest = steps.reduce((a, b) => (b.last < a.last ? b : a))
  steps.splice(steps.indexOf(oldest), 1)
}

/**
 * Puts a boot that is over to those before it. What nobody can prove to be of the node itself pushes out nothing but its
 * like.
 */
function archive({ past }: Kept, boot: Boot): void {
  past.push({ proven: boot.proven, text: encode(boot) })
  if (past.length < mostBoots) return
  const unproven = past.findIndex(({ proven }) => !proven)
  past.splice(Math.max(unproven, 0), 1)
}
