import { randomBytes } from 'node:crypto'
import { appendFile, rename, rm, stat, truncate } from 'node:fs/promises'
import { unlessMissing } from '../disk/missing.js'
import { hidden } from '../model/field.js'
import type { Actor } from '../model/model.js'
import { objectTypes } from '../model/types.js'
import type { Change } from '../store/types.js'
import type { Condition } from './health.js'

export interface AuditOptions {
  readonly file: string
  /** The file is rotated when it has reached this size. */
  readonly maxBytes: number
  /** How many rotated files are kept: `<file>.1` is the newest. */
  readonly keep: number
  readonly now: () => number
}

/** How many lines are kept in memory while the disk takes none. */
const mostWaiting = 10_000

/** An import names this many of the objects that it touched. */
const mostNamed = 10_000

/** Types of the store that are no objects to an admin. */
const internal = new Set(['revoked'])

/**
 * Who changed what: a JSON line in `audit.log` for each object that a change touched, written after the commit and
 * before the answer (rules 11.4). An import has one line with counts, and then the name of each object alone. A line
 * that cannot be written does not undo the change; it is reported by `health`.
 */
export class Audit {
  #waiting: string[] = []
  #running: Promise<void> | undefined
  #sizeBytes: number | undefined
  #failure = ''

  constructor(private readonly options: AuditOptions) {}

  get health(): Condition {
    return { ok: this.#failure === '', reason: this.#failure }
  }

  record(actor: Actor, changes: readonly Change[], kind: 'change' | 'import'): Promise<void> {
    const known = changes.filter(({ type }) => !internal.has(type))
    if (known.length === 0) return Promise.resolve()
    const time = new Date(this.options.now()).toISOString()
    // One change may touch many objects: its lines carry the same mark.
    const head = { time, change: randomBytes(6).toString('hex'), who: actor.who, from: actor.from }
    const entries =
      kind === 'import'
        ? [{ action: 'import', counts: counts(known) }, ...known.slice(0, mostNamed).map(named)]
        : known.map(described)
    for (const entry of entries) this.#waiting.push(`${JSON.stringify({ ...head, ...entry })}\n`)
    this.#running ??= this.#write()
    return this.#running
  }

  async #write(): Promise<void> {
    try {
      while (this.#waiting.length > 0) {
        const count = this.#waiting.length
        await this.#append(this.#waiting.join(''))
        this.#waiting.splice(0, count)
      }
      this.#failure = ''
    } catch (error) {
      this.#failure = `the audit log cannot be written: ${(error as Error).message}`
      // They are written with the next ones, as many as memory should hold.
      this.#waiting.splice(0, this.#waiting.length - mostWaiting)
    }
    this.#running = undefined
  }

  async #append(text: string): Promise<void> {
    await this.#rotate()
    const sizeBytes = this.#sizeBytes ?? 0
    try {
      await appendFile(this.options.file, text, { mode: 0o600 })
    } catch (error) {
      // Half a line must not stay. When it cannot be taken back, the size of the file is looked up again.
      await truncate(this.options.file, sizeBytes).catch(() => undefined)
      this.#sizeBytes = undefined
      throw error
    }
    this.#sizeBytes = sizeBytes + Buffer.byteLength(text)
  }

  async #rotate(): Promise<void> {
    const { file, maxBytes, keep } = this.options
    if (this.#sizeBytes === undefined) {
      const found = await unlessMissing(stat(file), undefined)
      // To append to a pipe waits for its reader.
      if (found && !found.isFile()) throw new Error(`${file} is not a regular file`)
      this.#sizeBytes = found?.size ?? 0
    }
    if (this.#sizeBytes < maxBytes) return
    for (let i = keep; i > 0; i--)
      await unlessMissing(rename(i === 1 ? file : `${file}.${i - 1}`, `${file}.${i}`), undefined)
    if (keep === 0) await rm(file, { force: true })
    this.#sizeBytes = 0
  }
}

function counts(changes: readonly Change[]) {
  const found: Record<string, { created: number; changed: number; deleted: number }> = {}
  for (const { type, before, after } of changes) {
    const count = found[type] ?? { created: 0, changed: 0, deleted: 0 }
    count[!before ? 'created' : after ? 'changed' : 'deleted']++
    found[type] = count
  }
  return found
}

/** What happened to which object. */
function named({ type, name, before, after }: Change) {
  return { action: !before ? 'create' : after ? 'update' : 'delete', type, name }
}

/** The object, and the fields that differ before and after. */
function described(change: Change): object {
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

/** The object's fields, secret ones hidden. */
function masked(type: string, doc: object): Readonly<Record<string, unknown>> {
  const fields: Record<string, unknown> = { ...doc }
  if (Object.hasOwn(objectTypes, type)) {
    for (const { name, secret } of objectTypes[type as keyof typeof objectTypes].fields)
      if (secret && fields[name] !== undefined) fields[name] = hidden
  } else if (type === 'secrets')
    fields.secrets = (fields.secrets as readonly object[]).map(entry => ({ ...entry, content: hidden }))
  return fields
}
