import type { Test } from 'tap'
import type { Ask, Controller, Reply } from './controller.js'
import { difference, documents } from './state.js'
import { until } from './until.js'

/** What is expected of one request: the answer, and the state after it. */
export interface Expected {
  readonly what: string
  readonly status: number
  /** All that the message of the answer must say. */
  readonly says?: RegExp | readonly RegExp[]
  /** The whole body. */
  readonly body?: unknown
  /** Some of the body. */
  readonly shows?: object
  /** In the text of an answer that is not JSON. */
  readonly text?: RegExp
  /** Every file of the state that changes, with what it holds then, null when it goes. Absent: none does. */
  readonly files?: Readonly<Record<string, unknown>>
  /** Instead, where contents are not known before: which files may change. */
  readonly touches?: readonly RegExp[]
  /** What a GET shows then. */
  readonly later?: readonly [path: string, shows: object]
}

/** One request: what is asked, what is answered, and what is stored after it. */
export interface Row extends Expected {
  readonly ask: readonly [method: 'GET' | 'POST', path: string, body?: unknown]
  readonly by?: Ask
}

/**
 * State before → request → status and body (rules 1.5) → state after. `look` gives the state, which must be
 * at rest then; by default it is every stored document.
 */
export async function row(
  t: Test,
  c: Controller,
  {
    ask: [method, path, asked],
    by,
    what,
    status,
    says = [],
    body,
    shows,
    text,
    files = {},
    touches,
    later
  }: Row,
  look: (c: Controller) => Promise<Record<string, unknown>> = documents
): Promise<Reply> {
  const before = await look(c)
  const reply = await (method === 'GET'
    ? c.get(path, by)
    : c.post(path, asked === undefined ? '' : asked, by))
  t.equal(reply.status, status, `${what}: ${reply.text.slice(0, 300)}`)
  if (status === 204) t.equal(reply.text, '', `${what}: 204 has no body`)
  else if (text) t.match(reply.text, text, `${what}: text`)
  else t.equal(reply.headers['content-type'], 'application/json', `${what}: JSON`)
  if (status >= 400)
    t.same(Object.keys(reply.body ?? {}), ['message', 'code'], `${what}: an error is a message and a code`)
  for (const said of [says].flat()) t.match(String(reply.body?.message), said, what)
  if (body !== undefined) t.same(reply.body, body, `${what}: body`)
  if (shows) t.match(reply.body, shows, `${what}: body`)
  // Why a machine cannot boot reaches its journal behind the answer.
  const journal = 'node-status.journal'
  if (journal in files) await until(async () => journal in difference(before, await look(c)))
  const changes = difference(before, await look(c))
  if (touches) {
    const other = Object.keys(changes).filter(path => !touches.some(one => one.test(path)))
    t.same(other, [], `${what}: what else changed in the state`)
    t.ok(Object.keys(changes).length > 0, `${what}: something changed`)
  } else t.same(changes, files, `${what}: what changed in the state`)
  if (later) t.match((await c.get(later[0])).body, later[1], `${what}: then ${later[0]}`)
  return reply
}
