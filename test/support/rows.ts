import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Ask, Controller, Reply } from './controller.js'
import { until } from './until.js'

/** One request: what is asked, what is answered, and what is stored after it. */
export interface Row {
  readonly what: string
  readonly ask: readonly [method: 'GET' | 'POST', path: string, body?: unknown]
  readonly by?: Ask
  readonly status: number
  /** All that the message of the answer must say. */
  readonly says?: RegExp | readonly RegExp[]
  /** The whole body. */
  readonly body?: unknown
  /** Every file of the state that changes, with what it holds then, null when it goes. Absent: none does. */
  readonly files?: Readonly<Record<string, object | null>>
}

/** Every file in the state directory but the audit log, path → bytes, when nothing is on its way to the disk. */
export async function stored(c: Controller): Promise<Record<string, string>> {
  const state = join(c.directory, 'state')
  await until(() => readdirSync(join(state, 'intents')).length === 0)
  const found: Record<string, string> = {}
  for (const entry of readdirSync(state, { recursive: true, withFileTypes: true }))
    if (entry.isFile() && entry.name !== 'holder.json' && !entry.name.startsWith('audit.log')) {
      const file = join(entry.parentPath, entry.name)
      found[file.slice(state.length + 1)] = readFileSync(file, 'latin1')
    }
  return found
}

/**
 * What differs between two states: path → what the file holds now, null when it is gone. Which tokens were made void
 * is left out.
 */
export function changed(before: Record<string, string>, after: Record<string, string>) {
  const found: Record<string, unknown> = {}
  for (const path of new Set([...Object.keys(before), ...Object.keys(after)]))
    if (before[path] !== after[path] && !path.startsWith('revoked/'))
      found[path] = after[path] === undefined ? null : parsed(after[path])
  return found
}

function parsed(bytes: string): unknown {
  const text = Buffer.from(bytes, 'latin1').toString('utf8')
  return text.startsWith('{') && text.endsWith('}\n') ? JSON.parse(text) : text
}

/** The files of objects alone, without the notes of which tokens are void. */
export async function objectFiles(c: Controller): Promise<Record<string, string>> {
  const files = Object.entries(await stored(c))
  return Object.fromEntries(files.filter(([path]) => path.endsWith('.json') && !path.startsWith('revoked/')))
}

/** Asks, and checks the answer and the state against the row. */
export async function row(t: Test, c: Controller, given: Row): Promise<Reply> {
  const [method, path, body] = given.ask
  const before = await stored(c)
  const reply = await (method === 'GET' ? c.get(path, given.by) : c.post(path, body, given.by))
  t.equal(reply.status, given.status, `${given.what}: ${reply.text}`)
  if (given.status === 204) t.equal(reply.text, '', `${given.what}: 204 has no body`)
  else t.equal(reply.headers['content-type'], 'application/json', `${given.what}: JSON`)
  const message = String(reply.body?.message)
  if (given.status >= 400) t.same(Object.keys(reply.body ?? {}), ['message'], `${given.what}: error body`)
  for (const said of [given.says ?? []].flat()) t.match(message, said, given.what)
  if (given.body !== undefined) t.same(reply.body, given.body, `${given.what}: body`)
  t.same(changed(before, await stored(c)), given.files ?? {}, `${given.what}: what changed on disk`)
  return reply
}

/** One object as an admin reads it. */
export async function read(c: Controller, type: string, name: string): Promise<Record<string, unknown>> {
  return (await c.get(`/config/${type}/${name}`)).body?.config[type][name]
}
