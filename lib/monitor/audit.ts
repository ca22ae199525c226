import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { lstat, open, rename, rm } from 'node:fs/promises'
import { Background } from '../background.js'
import { atOnce, inSlices } from '../concurrency.js'
import { unlessMissing, withOpen } from '../disk/file.js'
import { APPENDING, type DiskStep, realFiles, StepError } from '../disk/steps.js'
import { escapeControls, type Log } from '../log.js'
import { masked } from '../model/differences.js'
import type { Actor, ChangeKind } from '../model/model.js'
import { fold, folding } from '../node-set/fold.js'
import type { Change } from '../store/types.js'
import type { Condition } from './health.js'
import { type Pace, within } from './pace.js'

export interface AuditOptions {
  /** The name of this controller, where several share the objects: each line tells it. */
  readonly controller?: string | undefined
  /** Of the changes by users. */
  readonly file: string
  /** Of the changes by machines: by nodes, on their consoles, and by svcd for one that boots. */
  readonly machinesFile: string
  /** A file is rotated when it has reached this size. */
  readonly maxBytes: number
  /** How many rotated files are kept of each: `<file>.1` is the newest. */
  readonly keep: number
  readonly now: () => number
  /** Fails when the directory is no longer ours to write (rules 11.3). */
  readonly ours?: DiskStep
  readonly log?: Pick<Log, 'error' | 'info'>
  /** Is told the heads of lines as they are written; it must not throw. */
  readonly told?: (line: object) => void
}

/** Pauses while the disk takes none. */
const retryMs = { first: 1000, longest: 2000 }

/** How many lines are kept in memory while the disk takes none. */
const mostWaiting = 10_000

/** A change of one object that changes more objects along has one line for those of a type, as that of a node set. */
const mostAlone = 1000

/** An import names this many of the objects that it touched. */
const mostNamed = 10_000

/** So many lines of a change are told to those who watch, without their values. */
const mostTold = 20
const values = { before: undefined, after: undefined }

/** So many lines are shown at once, of so many bytes in all from each file. */
export const mostRead = 200
const mostShownBytes = 256 * 1024

/** Characters of a text that a line carries. */
const longestText = 4096

/** Lines of the audit log that were asked for. */
export interface AuditLines {
  /** The newest first. */
  readonly lines: readonly object[]
  /** The controllers whose lines are not among them, where several share the objects. */
  readonly missing?: readonly { readonly controller: string; readonly reason: string }[]
}

/** Objects whose pace is remembered. */
const mostPaced = 20_000
/** A line tells as often as this how many were left out. */
const toldEveryMs = 60_000

/** Types of the store that are no objects to an admin. */
const internal = new Set(['revoked'])

/**
 * Who changed what: a JSON line for each object that a change touched, written after the commit and before the answer
 * (rules 11.4). Users and machines have files of their own: no machine can push out what an admin did. A change of very many has one line for all of a type;
 * an import one with counts, and then the name of each object alone; a table one line for all objects that it changed alike. A line that cannot be written does not undo the change; it is
 * reported by `health`.
 */
export class Audit {
  readonly #users: Trail
  readonly #machines: Trail
  /** How often machines may still change each object before lines of it are left out. */
  readonly #paces = new Map<string, Pace>()
  /** How many lines were left out, and of which objects. */
  #leftOut: { count: number; readonly names: Set<string>; readonly timer: NodeJS.Timeout } | undefined

  constructor(private readonly options: AuditOptions) {
    this.#users = new Trail(options.file, options)
    this.#machines = new Trail(options.machinesFile, options)
  }

  get health(): Condition {
    const reason = this.#users.failure || this.#machines.failure
    return { ok: reason === '', reason }
  }

  /** The last lines that users, or machines, left: the newest first, 200 at most (6.11). Throws 503 when they cannot be read. */
  async last(by: 'users' | 'machines'): Promise<AuditLines> {
    return { lines: await (by === 'users' ? this.#users : this.#machines).last(mostRead) }
  }

  /** Tells what was left out, and tries once more to write lines that wait. */
  async close(): Promise<void> {
    this.#tellLeftOut()
    await Promise.all([this.#users.close(), this.#machines.close()])
  }

  record(actor: Actor, changes: readonly Change[], kind: ChangeKind): Promise<void> {
    const known = changes.filter(({ type }) => !internal.has(type))
    if (known.length === 0) return Promise.resolve()
    if (isByMachine(actor) && !this.#mayTell(known)) return Promise.resolve()
    const head = this.#head(actor)
    const trail = isByMachine(actor) ? this.#machines : this.#users
    const { told } = this.options
    const lines = function* () {
      const made: string[] = []
      for (const entry of yield* entriesOf(known, kind)) {
        if (made.length < mostTold) told?.({ ...head, ...entry, ...values })
        yield void made.push(lineOf({ ...head, ...entry }))
      }
      return made
    }
    // In the order of the commits, as far as a change can be told in one turn of the event loop.
    if (kind === 'change' && known.length <= mostAlone) return trail.add(atOnce(lines()))
    return inSlices(lines()).then(made => trail.add(made))
  }

  /**
   * Adds one line for what a user has BMCs of nodes do, before they are asked: no change of an object tells
   * of it.
   */
  async acted(actor: Actor, nodes: readonly string[], part: string, action: string): Promise<void> {
    const [name] = nodes
    const which =
      nodes.length === 1 ? { name } : { count: nodes.length, names: await inSlices(folding(nodes)) }
    const line = { ...this.#head(actor), action: part, type: 'node', ...which }
    this.options.told?.(line)
    await this.#users.add([lineOf({ ...line, after: { [part]: action } })])
  }

  /** One change may touch many objects: its lines carry the same mark. */
  #head({ who, from }: Pick<Actor, 'who' | 'from'>) {
    const { controller, now } = this.options
    return {
      ...{ time: new Date(now()).toISOString(), change: randomBytes(6).toString('hex') },
      ...(controller === undefined ? {} : { controller }),
      ...{ who, from }
    }
  }

  /** Whether a machine's change has its lines: not where machines change all its objects faster than their pace. */
  #mayTell(changes: readonly Change[]): boolean {
    let may = false
    for (const { type, name } of changes) {
      const key = `${type} ${name}`
      const before = this.#paces.get(key)
      const pace = within(before)
      may ||= pace !== undefined
      // The object that was changed last is last.
      this.#paces.delete(key)
      this.#paces.set(key, pace ?? (before as Pace))
    }
    for (const oldest of this.#paces.keys()) {
      if (this.#paces.size <= mostPaced) break
      this.#paces.delete(oldest)
    }
    if (!may) this.#leaveOut(changes)
    return may
  }

  #leaveOut(changes: readonly Change[]): void {
    const timer = () => setTimeout(() => this.#tellLeftOut(), toldEveryMs).unref()
    this.#leftOut ??= { count: 0, names: new Set(), timer: timer() }
    this.#leftOut.count += changes.length
    for (const { name } of changes) if (this.#leftOut.names.size < mostTold) this.#leftOut.names.add(name)
  }

  #tellLeftOut(): void {
    if (!this.#leftOut) return
    const { count, names, timer } = this.#leftOut
    clearTimeout(timer)
    this.#leftOut = undefined
    const entry = { action: 'omit', count, names: fold(names) }
    this.#machines.add([lineOf({ ...this.#head({ who: 'svcd', from: '-' }), ...entry })])
  }
}

/** A line of the log; what is not seen is escaped as JSON has it, since people read the file. */
const lineOf = (entry: object) => `${escapeControls(JSON.stringify(entry, clipped))}\n`

/** Whether a machine asked for a change, or is why svcd made it: no user, and svcd not of itself. */
export const isByMachine = ({ who, from }: Actor) => !who.startsWith('user ') && from !== '-'

/** The names of a node set are never clipped: no other line has them. */
const clipped = (key: string, value: unknown) =>
  typeof value === 'string' && value.length > longestText && key !== 'names'
    ? `${value.slice(0, longestText)}… (${value.length} characters)`
    : value

/** A file of lines that is rotated. What cannot be written is tried again, ever slower. */
class Trail {
  readonly #waiting: string[] = []
  readonly #writing: Background
  #sizeBytes: number | undefined
  /** Whether the file ends in half a line: the machine lost its power while it was written. */
  #isUnended = false

  constructor(
    private readonly file: string,
    private readonly options: Pick<AuditOptions, 'maxBytes' | 'keep' | 'ours' | 'log'>
  ) {
    const { log } = options
    this.#writing = new Background({
      work: () => this.#write(),
      retryMs,
      failed: reason => log?.error(`the audit log cannot be written, and is tried again: ${reason}`),
      recovered: () => log?.info('the audit log is written again')
    })
  }

  /** Why lines wait, '' while none does. */
  get failure(): string {
    const { problem } = this.#writing
    return problem === '' ? '' : `the audit log cannot be written: ${problem}`
  }

  /** The last lines, the newest first; from the file before this one where this one was begun lately. */
  async last(most: number): Promise<object[]> {
    const lines: object[] = []
    for (const file of [this.file, `${this.file}.1`]) {
      if (lines.length >= most) break
      await unlessMissing(addLast(file, lines, most), undefined)
    }
    return lines
  }

  /** Resolves when they are written, or cannot be written now. */
  add(lines: readonly string[]): Promise<void> {
    // One by one: a change may touch more objects than a call takes arguments.
    for (const line of lines) this.#waiting.push(line)
    return this.#writing.run().catch(() => undefined)
  }

  /** Tries once more to write what waits, and writes no more after that. */
  async close(): Promise<void> {
    if (this.#waiting.length > 0) await this.#writing.run().catch(() => undefined)
    await this.#writing.close()
  }

  async #write(): Promise<void> {
    try {
      while (this.#waiting.length > 0) {
        const count = this.#waiting.length
        await this.#append(this.#waiting.join(''))
        this.#waiting.splice(0, count)
      }
    } catch (error) {
      // They are written with the next ones, as many as memory should hold.
      this.#waiting.splice(0, this.#waiting.length - mostWaiting)
      throw error
    }
  }

  async #append(text: string): Promise<void> {
    const { ours } = this.options
    const before = ours ? [ours] : []
    if (this.#mayRotate) {
      await realFiles.inOrder(before)
      await this.#rotate()
    }
    const sizeBytes = this.#sizeBytes ?? 0
    const written = this.#isUnended ? `\n${text}` : text
    try {
      await realFiles.inOrder([...before, { appendTo: this.file, text: written }])
    } catch (error) {
      if (error instanceof StepError && error.step < before.length) throw error
      // Half a line must not stay. When it cannot be taken back, the size of the file is looked up again.
      await cutBack(this.file, sizeBytes).catch(() => undefined)
      this.#sizeBytes = undefined
      throw error
    }
    this.#sizeBytes = sizeBytes + Buffer.byteLength(written)
    this.#isUnended = false
  }

  get #mayRotate(): boolean {
    return this.#sizeBytes === undefined || this.#sizeBytes >= this.options.maxBytes
  }

  async #rotate(): Promise<void> {
    const { file } = this
    const { maxBytes, keep } = this.options
    if (this.#sizeBytes === undefined) {
      const found = await unlessMissing(lstat(file), undefined)
      // A pipe has no size, and a link may lead anywhere.
      if (found && !found.isFile()) throw new Error(`${file} is not a regular file`)
      this.#isUnended = found !== undefined && found.size > 0 && !(await endsInNewline(file, found.size))
      this.#sizeBytes = found?.size ?? 0
    }
    if (this.#sizeBytes < maxBytes) return
    for (let i = keep; i > 0; i--)
      await unlessMissing(rename(i === 1 ? file : `${file}.${i - 1}`, `${file}.${i}`), undefined)
    if (keep === 0) await rm(file, { force: true })
    this.#sizeBytes = 0
    this.#isUnended = false
  }
}

/** Adds the last lines of a file to these, the newest first, until there are `most`; what is damaged is left out. */
async function addLast(file: string, lines: object[], most: number): Promise<void> {
  let shownBytes = 0
  for await (const line of lastLines(file)) {
    const fits = line.isWhole && shownBytes + line.bytes <= mostShownBytes
    const entry = entryOf(line, fits)
    if (entry === undefined) continue
    if (fits) shownBytes += line.bytes
    lines.push(entry)
    if (lines.length >= most) return
  }
}

/** What a line says, all of it or else who did what and how many bytes the line has; undefined for a damaged one. */
function entryOf({ text, bytes }: LastLine, all: boolean): object | undefined {
  // Quotes within a value are escaped: this is found where the keys are.
  const [head] = all ? [] : (/^\{[^\n]*?,"action":"\w+"(?:,"type":"\w+")?/.exec(text) ?? [])
  try {
    const entry: unknown = JSON.parse(all ? text : `${head},"bytes":${bytes}}`)
    return typeof entry === 'object' && entry !== null ? entry : undefined
  } catch {
    return undefined
  }
}

/** Not by its path alone: that follows a link. */
const cutBack = (file: string, sizeBytes: number): Promise<void> =>
  withOpen(open(file, APPENDING), handle => handle.truncate(sizeBytes))

const endsInNewline = (file: string, sizeBytes: number): Promise<boolean> =>
  withOpen(open(file, 'r'), async handle => {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(1), 0, 1, sizeBytes - 1)
    return bytesRead === 1 && buffer[0] === 10
  })

/** What lines say of a change, one entry each. */
function* entriesOf(changes: readonly Change[], kind: ChangeKind): Generator<void, readonly object[]> {
  if (kind === 'import') {
    const total = { action: 'import', counts: yield* counts(changes) }
    return [total, ...changes.slice(0, mostNamed).map(named)]
  }
  if (kind === 'change' && changes.length <= mostAlone) return changes.map(described)
  return yield* together(changes, kind === 'table' ? 'table' : 'set')
}

function* counts(changes: readonly Change[]) {
  const found: Record<string, { created: number; changed: number; deleted: number }> = {}
  for (const { type, before, after } of changes) {
    yield
    const count = found[type] ?? { created: 0, changed: 0, deleted: 0 }
    count[!before ? 'created' : after ? 'changed' : 'deleted']++
    found[type] = count
  }
  return found
}

/** What a line says of one object. */
interface Described {
  readonly action: string
  readonly type: string
  readonly name: string
  readonly before?: Record<string, unknown>
  readonly after?: Record<string, unknown>
}

/** What happened to which object. */
function named({ type, name, before, after }: Change) {
  return { action: !before ? 'create' : after ? 'update' : 'delete', type, name }
}

/** What the lines say of objects that were changed in the same way. */
interface Together {
  readonly action: string
  readonly type: string
  readonly names: string[]
  /** The fields that differ, with their values where they are the same for all; null where they are not. */
  before: Record<string, unknown>
  after: Record<string, unknown>
}

/**
 * One entry for each type and what happened to it, with the names of all objects as a node set; of a table one for each
 * change that is another (rules 11.4).
 */
function* together(changes: readonly Change[], kind: 'set' | 'table'): Generator<void, object[]> {
  const found = new Map<string, Together>()
  for (const change of changes) {
    yield
    const { action, type, name, before = {}, after = {} } = described(change)
    const alone = kind === 'table' ? JSON.stringify([before, after]) : ''
    const key = `${action} ${type} ${alone}`
    const entry = found.get(key)
    if (entry === undefined) found.set(key, { action, type, names: [name], before, after })
    else {
      entry.names.push(name)
      entry.before = alike(entry.before, before)
      entry.after = alike(entry.after, after)
    }
  }
  const entries: object[] = []
  for (const { names, ...entry } of found.values())
    entries.push({ ...entry, count: names.length, names: yield* folding(names) })
  return entries
}

function alike(a: Readonly<Record<string, unknown>>, b: Readonly<Record<string, unknown>>) {
  const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])]
  return Object.fromEntries(keys.map(key => [key, same(a[key], b[key]) ? a[key] : null]))
}

/** The object, and the fields that differ before and after. */
function described(change: Change): Described {
  const { type, before, after } = change
  const keys = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])].filter(
    key => !same(fieldOf(before, key), fieldOf(after, key))
  )
  const only = (doc: Readonly<Record<string, unknown>>) =>
    Object.fromEntries(keys.filter(key => doc[key] !== undefined).map(key => [key, doc[key]]))
  return {
    ...named(change),
    ...(before ? { before: only(masked(type, before)) } : {}),
    ...(after ? { after: only(masked(type, after)) } : {})
  }
}

const fieldOf = (doc: object | undefined, key: string) => (doc as Record<string, unknown> | undefined)?.[key]
const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b)

/** What is read at once. */
const blockBytes = 256 * 1024

/** From the end of a file no more is looked at: what is before that many bytes is not found. */
const mostScannedBytes = 16 * 1024 * 1024

/** A line of a file. */
interface LastLine {
  /** Without its newline; of a long line the first 256 KiB. */
  readonly text: string
  /** Of the whole line. */
  readonly bytes: number
  readonly isWhole: boolean
}

/**
 * The lines at the end of a file, the last one first, from its last 16 MiB. What comes after the last newline is none: it
 * may be on its way still. A block is read when its lines are asked for. Throws as `open` and `read` do.
 */
export async function* lastLines(file: string): AsyncGenerator<LastLine, void, undefined> {
  const handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    let { size: end } = await handle.stat()
    const from = Math.max(0, end - mostScannedBytes)
    let isEnded = false
    let line = { kept: Buffer.alloc(0), bytes: 0 }
    while (end > from) {
      const length = Math.min(end - from, blockBytes)
      end -= length
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, end)
      for (let to = bytesRead, at = to; at !== -1; to = at) {
        at = to === 0 ? -1 : buffer.lastIndexOf(10, to - 1)
        const part = buffer.subarray(at + 1, to)
        // Of a long line the beginning is kept, which comes last.
        const kept = Buffer.concat([part, line.kept]).subarray(0, blockBytes)
        line = { kept, bytes: line.bytes + part.length }
        if (at === -1) break
        if (isEnded) yield shown(line)
        isEnded = true
        line = { kept: Buffer.alloc(0), bytes: 0 }
      }
    }
    if (isEnded && end === 0) yield shown(line)
  } finally {
    await handle.close()
  }
}

const shown = ({ kept, bytes }: { kept: Buffer; bytes: number }): LastLine => ({
  text: kept.toString('utf8'),
  bytes,
  isWhole: bytes === kept.length
})
