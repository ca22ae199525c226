import { readFileSync } from 'node:fs'
import type { Test } from 'tap'
import type { ApiRoute } from '../../../lib/api/context.js'
import type { Reply } from '../../support/controller.js'
import { type Expected, row } from '../../support/rows.js'
import { plainFiles } from '../../support/state.js'
import type { Stage, Who } from './world.js'

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

/** One request of a row of the table, on the world as world.ts has it. */
export interface Step extends Expected {
  /** Posted before it, as an admin: the world of this step alone. */
  readonly before?: readonly (readonly [path: string, body: unknown])[]
  readonly ask: readonly [path: string, body?: unknown]
  readonly by?: Who
  /** The address it comes from. */
  readonly source?: string
  readonly headers?: Readonly<Record<string, string>>
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
 * State before → request → status and body → state after, which is the world's again then. Returns the
 * status.
 */
export async function check(t: Test, stage: Stage, of: Row, step: Step): Promise<number> {
  const { c } = stage
  const what = `${of.key}: ${step.what}`
  if (step.before) stage.left = undefined
  let last: Awaited<ReturnType<typeof plainFiles>> | undefined
  for (const [path, body] of step.before ?? []) {
    const { status, text } = await c.post(path, body)
    if (status >= 300) t.fail(`${what}: before it, ${path}: ${text}`)
  }
  const { by = 'admin', source, headers, ask, ...expected } = step
  const { status } = await row(
    t,
    c,
    {
      ...expected,
      what,
      ask: [of.method, await stage.path(ask[0]), ask[1]],
      by: { ...stage.as(by, source), ...(headers ? { headers } : {}) }
    },
    async c => {
      const { left } = stage
      stage.left = undefined
      if (left) return left
      last = await plainFiles(c, await stage.idle())
      return last
    }
  )
  stage.left = last
  if (step.before || step.files || step.touches) await stage.reset()
  return status
}
