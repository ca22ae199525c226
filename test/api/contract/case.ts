import { readFileSync } from 'node:fs'
import type { Test } from 'tap'
import type { ApiRoute } from '../../../lib/api/context.js'
import type { Reply } from '../../support/controller.js'
import { plainFiles, type Stage, type Who } from './world.js'

/** A row of the table of all requests, contract.json. */
export interface Row {
  /** `GET /config/group/{group}` */
  readonly key: string
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly token: 'none' | 'needed' | 'node' | 'admin' | 'minimal' | 'source' | 'files'
  readonly body: string
  readonly success: readonly number[]
  readonly errors: readonly number[]
}

/** One request of a row, on the world as world.ts has it: answer, and state after it. */
export interface Step {
  readonly what: string
  /** Posted before it, as an admin: the world of this step alone. */
  readonly before?: readonly (readonly [path: string, body: unknown])[]
  readonly ask: readonly [path: string, body?: unknown]
  readonly by?: Who
  /** The address it comes from. */
  readonly source?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly status: number
  readonly says?: RegExp
  /** The whole body. */
  readonly body?: unknown
  /** Some of the body. */
  readonly shows?: object
  /** In the answer's text. */
  readonly text?: RegExp
  /** Every file of the state that changes, with what it holds then, null when it goes. Absent: none does. */
  readonly files?: Readonly<Record<string, unknown>>
  /** Instead, where contents are not known before: which files may change. */
  readonly touches?: readonly RegExp[]
  /** What a GET shows then. */
  readonly later?: readonly [path: string, shows: object]
}

/** The cases of some rows, by their key. */
export type Cases = Readonly<Record<string, readonly Step[]>>

interface Table {
  readonly columns: readonly string[]
  readonly rows: readonly (readonly unknown[])[]
  readonly everywhere: Readonly<Record<string, string>>
  readonly never: Readonly<Record<string, string>>
  readonly later: Readonly<Record<string, string>>
  readonly fields: Readonly<Record<string, readonly string[]>>
}

export const contract: Table = JSON.parse(readFileSync(new URL('contract.json', import.meta.url), 'utf8'))

export const rows: readonly Row[] = contract.rows.map(cells => {
  const row = Object.fromEntries(contract.columns.map((name, i) => [name, cells[i]]))
  return { ...row, key: `${row.method} ${row.path}` } as Row
})

/** The same for two paths that differ in the names of their parameters alone. */
export const shape = (key: string) => key.replace(/\{\w+\}/g, '{}')
export const keyOf = (route: ApiRoute) => `${route.method} ${route.path}`

/** Sends one request of a row. */
export async function send(stage: Stage, row: Row, step: Step, ask = {}): Promise<Reply> {
  const { c } = stage
  const body = step.ask[1]
  const path = await stage.path(step.ask[0])
  return row.method === 'GET' ? c.get(path, ask) : c.post(path, body ?? '', ask)
}

/**
 * What differs between two states: path → what the file holds now, null when it is gone; of a journal, which has a list
 * of records, those that have come.
 */
export function difference(before: Record<string, unknown>, after: Record<string, unknown>) {
  const found: Record<string, unknown> = {}
  for (const path of new Set([...Object.keys(before), ...Object.keys(after)]))
    if (JSON.stringify(before[path]) !== JSON.stringify(after[path])) {
      const now = after[path]
      found[path] = Array.isArray(now) ? added(before[path] ?? [], now) : (now ?? null)
    }
  return found
}

/** What stands behind what was there before; all of it where that is there no more. */
function added(before: unknown, after: readonly unknown[]): readonly unknown[] {
  const first = Array.isArray(before) ? before.length : 0
  return JSON.stringify(after.slice(0, first)) === JSON.stringify(before) ? after.slice(first) : after
}

/** State before → request → status and body (rules 1.5) → state after. Returns the status. */
export async function check(t: Test, stage: Stage, row: Row, step: Step): Promise<number> {
  const { c } = stage
  const what = `${row.key}: ${step.what}`
  for (const [path, body] of step.before ?? []) {
    const { status, text } = await c.post(path, body)
    if (status >= 300) t.fail(`${what}: before it, ${path}: ${text}`)
  }
  await stage.idle()
  const before = await plainFiles(c)
  const { status, text, body, headers } = await send(stage, row, step, {
    ...stage.as(step.by ?? 'admin', step.source),
    ...(step.headers ? { headers: step.headers } : {})
  })
  await stage.idle()
  t.equal(status, step.status, `${what}: ${text.slice(0, 300)}`)
  if (status === 204) t.equal(text, '', `${what}: 204 has no body`)
  if (status >= 400) {
    t.equal(headers['content-type'], 'application/json', `${what}: an error is JSON`)
    t.same(Object.keys(body ?? {}), ['message'], `${what}: an error is a message`)
  }
  if (step.says) t.match(body?.message, step.says, what)
  if (step.body !== undefined) t.same(body, step.body, `${what}: body`)
  if (step.shows) t.match(body, step.shows, `${what}: body`)
  if (step.text) t.match(text, step.text, `${what}: text`)
  const changes = difference(before, await plainFiles(c))
  const { touches } = step
  if (touches) {
    const other = Object.keys(changes).filter(path => !touches.some(one => one.test(path)))
    t.same(other, [], `${what}: what else changed in the state`)
    t.ok(Object.keys(changes).length > 0, `${what}: something changed`)
  } else t.same(changes, step.files ?? {}, `${what}: what changed in the state`)
  if (step.later) t.match((await c.get(step.later[0])).body, step.later[1], `${what}: then ${step.later[0]}`)
  if (step.before || step.files || touches) await stage.reset()
  return status
}
