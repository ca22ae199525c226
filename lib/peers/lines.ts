import { jsonObjectOrEmpty, objectsIn } from '../base/json.js'
import type { Trust } from '../client/certificates.js'
import { certificateAdvice, type RequestAuth, requestController } from '../client/controllers.js'
import { NoResponseError, readWhole, TooLongError } from '../client/request.js'
import { type Audit, type AuditLines, mostRead } from '../monitor/audit.js'

/** Paths at which controllers request audit lines, and unknown machines, from each other. */
export const AUDIT_LINES = '/audit'
export const UNKNOWN_LINES = '/unknown'

/** How the other controllers are asked. */
export interface Questions {
  /** Name of this controller. */
  readonly own: string
  /** Other controllers that are up, with their URLs; a controller without a URL is not asked. */
  readonly others: () => readonly { readonly name: string; readonly url?: string }[]
  /** Names of all controllers that are up, or were lately. */
  readonly controllerNames: () => readonly string[]
  readonly trust: Trust
  readonly proofs: RequestAuth
}

/** An admin waits for the answer. */
const LIMIT_MS = 5000
/** Two files of 256 KiB each, or 4,096 unknown machines, escaped as a string within JSON. */
const LONGEST = 4 * 1024 * 1024

/** The part of an audit line that decides the order. */
type Line = object & { readonly time?: unknown }

/** Asks all other controllers for their lines at a path; also returns those that could not be asked. */
export async function linesOfOthers(questions: Questions, path: string) {
  const { own, others, controllerNames } = questions
  const there = others()
  const missing = controllerNames()
    .filter(name => name !== own && !there.some(other => other.name === name))
    .map(controller => ({ controller, reason: 'it is not there' }))
  const asked = there.map(async ({ name, url }) => {
    try {
      return [{ name, lines: await linesOf(questions, url, path) }]
    } catch (error) {
      missing.push({ controller: name, reason: (error as Error).message })
      return []
    }
  })
  return { answers: (await Promise.all(asked)).flat(), missing }
}

async function linesOf(
  { trust, proofs }: Questions,
  url: string | undefined,
  path: string
): Promise<readonly object[]> {
  if (url === undefined) throw new Error('it has no URL of its own ([store] url)')
  const headers = proofs.headersFor(path)
  try {
    const { status, body } = await requestController({ url, path, headers, tls: trust, wholeMs: LIMIT_MS })
    const text = (await readWhole(body, LONGEST)).toString()
    if (status !== 200) throw refusal(status)
    const { lines, proof } = jsonObjectOrEmpty(text)
    if (typeof lines !== 'string' || !proofs.isAnswerAuthentic(headers, lines, String(proof)))
      throw new Error('what it answers is not proved: something else answers there')
    return linesIn(lines)
  } catch (error) {
    if (error instanceof TooLongError) throw new Error('it answers with more than it may')
    if (!(error instanceof NoResponseError)) throw error
    const advice = certificateAdvice(error.code)
    throw new Error(`it cannot be asked (${error.reason})${advice === undefined ? '' : `: ${advice}`}`)
  }
}

/** Merges the audit logs of all controllers: each controller stores only the lines it wrote (rules 6.11). */
export class AuditLogs {
  constructor(private readonly options: Questions & { readonly audit: Pick<Audit, 'last'> }) {}

  /**
   * Returns the last lines, newest first, each with its controller, and the controllers that could not be
   * asked. Throws 503 when the local lines cannot be read.
   */
  async last(by: 'users' | 'machines'): Promise<AuditLines> {
    const { own, audit } = this.options
    const asking = linesOfOthers(this.options, `${AUDIT_LINES}/${by}`)
    const here = withController(own, (await audit.last(by)).lines)
    const { answers, missing } = await asking
    const there = answers.map(({ name, lines }) => withController(name, lines))
    return { lines: newestFirst([here, ...there], mostRead), missing }
  }
}

/** Lines from before there were several controllers have no controller field. */
const withController = (controller: string, lines: readonly object[]): Line[] =>
  lines.map(line => ({ controller, ...line }))

/**
 * Merges lists that are newest first. Clocks differ between controllers, so the order within a list is kept.
 */
function newestFirst(lists: readonly (readonly Line[])[], most: number): Line[] {
  const left = lists.map(list => [...list].reverse())
  const found: Line[] = []
  while (found.length < most) {
    let newest: Line[] | undefined
    for (const list of left) {
      const line = list.at(-1)
      if (line && (!newest || String(line.time) > String(newest.at(-1)?.time))) newest = list
    }
    const line = newest?.pop()
    if (!line) break
    found.push(line)
  }
  return found
}

const refusal = (status: number) =>
  new Error(
    status === 404
      ? 'it is of a release that does not send its lines'
      : status === 401
        ? 'it does not believe that a controller asks: its clock, or its token.key, is another one'
        : `it answers with ${status}: look into its log`
  )

function linesIn(text: string): object[] {
  return objectsIn(JSON.parse(text))
}
