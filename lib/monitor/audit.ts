import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { lstat, open, rename, rm } from 'node:fs/promises'
import { Background } from '../base/background.js'
import { runSliced, runSync } from '../base/concurrency.js'
import { escapeControls, type Log } from '../base/log.js'
import { unlessMissing, withOpen } from '../disk/file.js'
import { APPENDING, type DiskStep, realFiles, StepError } from '../disk/steps.js'
import { masked } from '../model/differences.js'
import type { Actor, ChangeKind } from '../model/model.js'
import { actionOf, participles } from '../model/types.js'
import { fold, foldSliced } from '../node-set/hostlist.js'
import type { Change } from '../store/types.js'
import type { Condition } from './health.js'
import { NodeRate } from './node-rate.js'

interface AuditOptions {
  /** Name of this controller, written to each line; set where several controllers share the objects. */
  readonly controller?: string | undefined
  /** For changes by users. */
  readonly file: string
  /** For changes by machines: by nodes, at their consoles, and by svcd for a node that boots. */
  readonly machinesFile: string
  /** Size at which a file is rotated. */
  readonly maxBytes: number
  /** Number of rotated files kept of each file; `<file>.1` is the newest. */
  readonly keep: number
  readonly now: () => number
  /** Fails when this process no longer owns the directory (rules 11.3). */
  readonly ownershipCheck?: DiskStep
  readonly log?: Pick<Log, 'error' | 'info'>
  /** Called with the head of each line as it is written; must not throw. */
  readonly onLine?: (line: object) => void
}

const retryMs = { first: 1000, longest: 2000 }

/** Lines kept in memory while writes fail. */
const mostWaiting = 10_000

/** A change of more objects gets one line for each type, as that of a node set. */
const ungroupedMax = 1000

/** Objects that an import names. */
const mostNamed = 10_000

/** Lines of one change that subscribers get, without values. */
const publishedLinesMax = 20
const values = { before: undefined, after: undefined }

/** Lines returned at once, and their bytes from each file. */
export const mostRead = 200
const mostShownBytes = 256 * 1024

const longestText = 4096

/** Lines of the audit log that a client asked for. */
export interface AuditLines {
  /** Newest first. */
  readonly lines: readonly object[]
  /** Controllers whose lines are missing; set where several controllers share the objects. */
  readonly missing?: readonly { readonly controller: string; readonly reason: string }[]
}

/** Interval of the lines that count omitted changes. */
const omittedReportMs = 60_000

/** Types in the store that admins do not know as objects. */
const internal = new Set(['revoked'])

/**
 * Logs who changed what: one JSON line for each changed object, written after the commit and before the
 * answer (rules 11.4). Users and machines have separate files, so that a machine cannot push out the changes
 * of an admin. A very large change gets one line for each type, an import one line with counts and then the
 * names, a table one line for all objects that it changed alike. A failed write does not undo the change.
 */
export class Audit {
  readonly #users: RotatedLog
  readonly #machines: RotatedLog
  /** Changes of an object by machines. */
  readonly #rate = new NodeRate()
  #omitted: { count: number; readonly names: Set<string>; readonly timer: NodeJS.Timeout } | undefined

  constructor(private readonly options: AuditOptions) {
    this.#users = new RotatedLog(options.file, options)
    this.#machines = new RotatedLog(options.machinesFile, options)
  }

  get health(): Condition {
    const reason = this.#users.failure || this.#machines.failure
    return { ok: reason === '', reason }
  }

  /** Returns the last 200 lines, newest first (rules 6.11). Throws 503 when they cannot be read. */
  async last(by: 'users' | 'machines'): Promise<AuditLines> {
    return { lines: await (by === 'users' ? this.#users : this.#machines).last() }
  }

  /** Logs what was omitted, and tries once more to write the waiting lines. */
  async close(): Promise<void> {
    this.#logOmitted()
    await Promise.all([this.#users.close(), this.#machines.close()])
  }

  record(actor: Actor, changes: readonly Change[], kind: ChangeKind): Promise<void> {
    const known = changes.filter(({ type }) => !internal.has(type))
    if (known.length === 0) return Promise.resolve()
    if (isByMachine(actor) && !this.#isWithinRate(known)) return Promise.resolve()
    const head = this.#head(actor)
    const trail = isByMachine(actor) ? this.#machines : this.#users
    const { onLine } = this.options
    const lines = function* () {
      const made: string[] = []
      for (const entry of yield* entriesOf(known, kind)) {
        if (made.length < publishedLinesMax) onLine?.({ ...head, ...entry, ...values })
        yield void made.push(lineOf({ ...head, ...entry }))
      }
      return made
    }
    // Small changes are formatted in one turn of the event loop: their lines keep the order of commits.
    if (kind === 'change' && known.length <= ungroupedMax) return trail.add(runSync(lines()))
    return runSliced(lines()).then(made => trail.add(made))
  }

  /** Logs an action on BMCs before they are asked: no changed object would give it a line. */
  async recordAction(actor: Actor, nodes: readonly string[], part: string, action: string): Promise<void> {
    const [name] = nodes
    const which =
      nodes.length === 1 ? { name } : { count: nodes.length, names: await runSliced(foldSliced(nodes)) }
    const line = { ...this.#head(actor), action: part, type: 'node', ...which }
    this.options.onLine?.(line)
    await this.#users.add([lineOf({ ...line, after: { [part]: action } })])
  }

  /** All lines of one change carry the same change ID. */
  #head({ who, from }: Pick<Actor, 'who' | 'from'>) {
    const { controller, now } = this.options
    return {
      ...{ time: new Date(now()).toISOString(), change: randomBytes(6).toString('hex') },
      ...(controller === undefined ? {} : { controller }),
      ...{ who, from }
    }
  }

  /** Returns whether changes by a machine are logged: at least one of the objects is within its rate. */
  #isWithinRate(changes: readonly Change[]): boolean {
    let may = false
    for (const { type, name } of changes) may = this.#rate.take(`${type} ${name}`) || may
    if (!may) this.#countOmitted(changes)
    return may
  }

  #countOmitted(changes: readonly Change[]): void {
    const timer = () => setTimeout(() => this.#logOmitted(), omittedReportMs).unref()
    this.#omitted ??= { count: 0, names: new Set(), timer: timer() }
    this.#omitted.count += changes.length
    for (const { name } of changes)
      if (this.#omitted.names.size < publishedLinesMax) this.#omitted.names.add(name)
  }

  #logOmitted(): void {
    if (!this.#omitted) return
    const { count, names, timer } = this.#omitted
    clearTimeout(timer)
    this.#omitted = undefined
    const entry = { action: 'omit', count, names: fold(names) }
    this.#machines.add([lineOf({ ...this.#head({ who: 'svcd', from: '-' }), ...entry })])
  }
}

/** Formats one line. Invisible characters are escaped as in JSON, since people read the file. */
const lineOf = (entry: object) => `${escapeControls(JSON.stringify(entry, clipped))}\n`

/** Whether a machine asked for the change or caused it: neither a user nor svcd on its own account. */
export const isByMachine = ({ who, from }: Actor) => !who.startsWith('user ') && from !== '-'

/** The names of a node set are never clipped, as no other line has them. */
const clipped = (key: string, value: unknown) =>
  typeof value === 'string' && value.length > longestText && key !== 'names'
    ? `${value.slice(0, longestText)}… (${value.length} characters)`
    : value

/** A rotated file of lines. Failed writes are retried with backoff. */
class RotatedLog {
  readonly #waiting: string[] = []
  readonly #writing: Background
  #sizeBytes: number | undefined
  /** Whether the file ends in half a line, left by a power failure during a write. */
  #endsInHalfLine = false

  constructor(
    private readonly file: string,
    private readonly options: Pick<AuditOptions, 'maxBytes' | 'keep' | 'ownershipCheck' | 'log'>
  ) {
    const { log } = options
    this.#writing = new Background({
      work: () => this.#write(),
      retryMs,
      onFailure: reason => log?.error(`the audit log cannot be written, and is tried again: ${reason}`),
      onRecovery: () => log?.info('the audit log is written again')
    })
  }

  /** Why lines wait; '' when none does. */
  get failure(): string {
    const { problem } = this.#writing
    return problem === '' ? '' : `the audit log cannot be written: ${problem}`
  }

  async last(): Promise<object[]> {
    const lines: object[] = []
    for (const file of [this.file, `${this.file}.1`])
      if (lines.length < mostRead) await unlessMissing(addLast(file, lines), undefined)
    return lines
  }

  /** Resolves when the lines are written, or the write has failed. */
  add(lines: readonly string[]): Promise<void> {
    // Not with a spread: a change may touch more objects than a call takes arguments.
    for (const line of lines) this.#waiting.push(line)
    return this.#writing.run().catch(() => undefined)
  }

  /** Tries once more to write the waiting lines; nothing is written after that. */
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
      // Retried together with the next lines; the oldest are dropped to bound memory.
      this.#waiting.splice(0, this.#waiting.length - mostWaiting)
      throw error
    }
  }

  async #append(text: string): Promise<void> {
    const { ownershipCheck } = this.options
    const before = ownershipCheck ? [ownershipCheck] : []
    if (this.#sizeBytes === undefined || this.#sizeBytes >= this.options.maxBytes) {
      await realFiles.runSteps(before)
      await this.#rotate()
    }
    const sizeBytes = this.#sizeBytes ?? 0
    const written = this.#endsInHalfLine ? `\n${text}` : text
    try {
      await realFiles.runSteps([...before, { appendTo: this.file, text: written }])
    } catch (error) {
      if (error instanceof StepError && error.step < before.length) throw error
      // Half a line must not stay. If it cannot be truncated, the size is read again from the disk.
      await cutBack(this.file, sizeBytes).catch(() => undefined)
      this.#sizeBytes = undefined
      throw error
    }
    this.#sizeBytes = sizeBytes + Buffer.byteLength(written)
    this.#endsInHalfLine = false
  }

  async #rotate(): Promise<void> {
    const { file } = this
    const { maxBytes, keep } = this.options
    if (this.#sizeBytes === undefined) {
      const found = await unlessMissing(lstat(file), undefined)
      // A pipe has no size, and a symbolic link may point anywhere.
      if (found && !found.isFile()) throw new Error(`${file} is not a regular file`)
      this.#endsInHalfLine = found !== undefined && found.size > 0 && !(await endsInNewline(file, found.size))
      this.#sizeBytes = found?.size ?? 0
    }
    if (this.#sizeBytes < maxBytes) return
    for (let i = keep; i > 0; i--)
      await unlessMissing(rename(i === 1 ? file : `${file}.${i - 1}`, `${file}.${i}`), undefined)
    if (keep === 0) await rm(file, { force: true })
    this.#sizeBytes = 0
    this.#endsInHalfLine = false
  }
}

/** Adds the last lines of a file, newest first, up to 200; damaged lines are skipped. */
async function addLast(file: string, lines: object[]): Promise<void> {
  let shownBytes = 0
  for await (const line of lastLines(file)) {
    const fits = line.isWhole && shownBytes + line.bytes <= mostShownBytes
    const entry = entryOf(line, fits)
    if (entry === undefined) continue
    if (fits) shownBytes += line.bytes
    lines.push(entry)
    if (lines.length >= mostRead) return
  }
}

/** Parses a line, or with `all` false only its head; undefined for a damaged one. */
function entryOf({ text, bytes }: LastLine, all: boolean): object | undefined {
  // Quotes within a value are escaped, so this matches keys only.
  const [head] = all ? [] : (/^\{[^\n]*?,"action":"\w+"(?:,"type":"\w+")?/.exec(text) ?? [])
  try {
    const entry: unknown = JSON.parse(all ? text : `${head},"bytes":${bytes}}`)
    return typeof entry === 'object' && entry !== null ? entry : undefined
  } catch {
    return undefined
  }
}

/** Truncates by handle: a path would follow a symbolic link. */
const cutBack = (file: string, sizeBytes: number): Promise<void> =>
  withOpen(open(file, APPENDING), handle => handle.truncate(sizeBytes))

const endsInNewline = (file: string, sizeBytes: number): Promise<boolean> =>
  withOpen(open(file, 'r'), async handle => {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(1), 0, 1, sizeBytes - 1)
    return bytesRead === 1 && buffer[0] === 10
  })

function* entriesOf(changes: readonly Change[], kind: ChangeKind): Generator<void, readonly object[]> {
  if (kind === 'import') {
    const total = { action: 'import', counts: yield* counts(changes) }
    return [total, ...changes.slice(0, mostNamed).map(objectEntry)]
  }
  if (kind === 'change' && changes.length <= ungroupedMax) return changes.map(changeEntry)
  return yield* groupedEntries(changes, kind === 'table' ? 'table' : 'set')
}

function* counts(changes: readonly Change[]) {
  const found: Record<string, { created: number; changed: number; deleted: number }> = {}
  for (const change of changes) {
    yield
    const { type } = change
    found[type] ??= { created: 0, changed: 0, deleted: 0 }
    found[type][participles[actionOf(change)]]++
  }
  return found
}

const objectEntry = (change: Change) => ({ action: actionOf(change), type: change.type, name: change.name })

interface GroupedEntry {
  readonly action: string
  readonly type: string
  readonly names: string[]
  /** Changed fields; null where the values differ between the objects. */
  before: Record<string, unknown>
  after: Record<string, unknown>
}

/** Groups changes by type and action, those of a table also by the values (rules 11.4). */
function* groupedEntries(changes: readonly Change[], kind: 'set' | 'table'): Generator<void, object[]> {
  const found = new Map<string, GroupedEntry>()
  for (const change of changes) {
    yield
    const { action, type, name, before = {}, after = {} } = changeEntry(change)
    const alone = kind === 'table' ? JSON.stringify([before, after]) : ''
    const key = `${action} ${type} ${alone}`
    const entry = found.get(key)
    if (entry === undefined) found.set(key, { action, type, names: [name], before, after })
    else {
      entry.names.push(name)
      entry.before = commonValues(entry.before, before)
      entry.after = commonValues(entry.after, after)
    }
  }
  const entries: object[] = []
  for (const { names, ...entry } of found.values())
    entries.push({ ...entry, count: names.length, names: yield* foldSliced(names) })
  return entries
}

function commonValues(a: Readonly<Record<string, unknown>>, b: Readonly<Record<string, unknown>>) {
  const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])]
  return Object.fromEntries(keys.map(key => [key, same(a[key], b[key]) ? a[key] : null]))
}

/** Returns the entry of one object, with only the fields that differ. */
function changeEntry(change: Change) {
  const { type, before, after } = change
  const keys = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])].filter(
    key => !same(fieldOf(before, key), fieldOf(after, key))
  )
  const only = (doc: Readonly<Record<string, unknown>>) =>
    Object.fromEntries(keys.filter(key => doc[key] !== undefined).map(key => [key, doc[key]]))
  return {
    ...objectEntry(change),
    before: before && only(masked(type, before)),
    after: after && only(masked(type, after))
  }
}

const fieldOf = (doc: object | undefined, key: string) => (doc as Record<string, unknown> | undefined)?.[key]
const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b)

/** Bytes of one read. */
const blockBytes = 256 * 1024

/** Lines are searched no further from the end of a file. */
const mostScannedBytes = 16 * 1024 * 1024

interface LastLine {
  /** Without its newline; only the first 256 KiB of a long line. */
  readonly text: string
  readonly bytes: number
  readonly isWhole: boolean
}

/** Yields the whole lines in the last 16 MiB of a file, last one first. Throws as `open` and `read` do. */
export async function* lastLines(file: string): AsyncGenerator<LastLine, void, undefined> {
  const handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    let { size: end } = await handle.stat()
    const from = Math.max(0, end - mostScannedBytes)
    // Text after the last newline is skipped, as it may still be being written.
    let isEnded = false
    let line = { kept: Buffer.alloc(0), bytes: 0 }
    while (end > from) {
      const length = Math.min(end - from, blockBytes)
      end -= length
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, end)
      for (let to = bytesRead, at = to; at !== -1; to = at) {
        at = to === 0 ? -1 : buffer.lastIndexOf(10, to - 1)
        const part = buffer.subarray(at + 1, to)
        // Reading goes backwards, so the beginning of a long line comes last, and is what is kept.
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
