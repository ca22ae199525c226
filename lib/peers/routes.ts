import { join } from 'node:path'
import { type ApiRequest, type ApiRoute, ok, type Parts, param } from '../api/context.js'
import { get } from '../api/row.js'
import { bytes, object, string } from '../api/schema.js'
import { notFound, unavailable } from '../base/errors.js'
import { jsonObjectOrEmpty, objectsIn } from '../base/json.js'
import type { Trust } from '../client/certificates.js'
import { certificateAdvice, type RequestAuth, requestController } from '../client/controllers.js'
import { NoResponseError, readWhole, TooLongError } from '../client/request.js'
import { exists } from '../disk/file.js'
import type { Checksums } from '../image/copies/checksums.js'
import { checksumText } from '../image/copies/download.js'
import { isServed, packOf } from '../image/publish.js'
import { isBootFileOfPacks } from '../model/types/osimage.js'
import { type Audit, type AuditLines, mostRead } from '../monitor/audit.js'
import type { ControllerAuth } from './proofs.js'

/**
 * Files of images for other controllers (rules 11.19). Loaded only with etcd and not documented: only a
 * controller can prove that it asks.
 */
export function copyRoutes(
  { model, config }: Pick<Parts, 'model' | 'config'>,
  questions: ControllerAuth,
  checksums: Checksums
): ApiRoute[] {
  const asked = async (request: ApiRequest) => {
    questions.verifyRequest(request.target, request.headers)
    const name = param(request, 'file')
    const file = join(config.paths.files, name)
    if (isServed(model.view.index, name)) return { name, file }
    // The other controller may know an image that this one will hear of later.
    if (await exists(file)) throw unavailable(`no OS image names the file ${name} so far`, 'image-unusable')
    throw notFound(`no OS image names the file ${name}`, 'no-file')
  }
  /** Whether svcd made the file, which got its name when it was whole. */
  const isPacked = (name: string) =>
    model.view.get('pack', packOf(name)) !== undefined || isBootFileOfPacks(model.view, name)
  return [
    get('/copies/{file}', 'anyone', {
      answers: [200, 206],
      refuses: [401, 416],
      summary: 'A file of an image, for another controller',
      output: bytes,
      handler: async request => ({ status: 200, file: (await asked(request)).file })
    }),
    get('/copies/{file}/checksum', 'anyone', {
      refuses: [401],
      summary: 'Its size and its checksum, for another controller',
      output: object({ bytes: { type: 'integer' }, sha256: string(), proof: string() }),
      handler: async request => {
        const { name, file } = await asked(request)
        const { bytes, sha256 } = await checksums.of(file, isPacked(name))
        return ok({
          bytes,
          sha256,
          proof: questions.signAnswer(request.headers, checksumText({ bytes, sha256 }))
        })
      }
    })
  ]
}

/** The lines that this controller gives to another one, by path. */
export type Lines = Readonly<Record<string, () => Promise<readonly object[]>>>

/**
 * Lines of this controller for the leader: of its audit logs (rules 6.11), and its unknown machines (rules
 * 4.37). Loaded only with etcd and not documented: only a controller can prove that it asks.
 */
export function lineRoutes(told: Lines, questions: ControllerAuth): ApiRoute[] {
  return Object.entries(told).map(([path, linesOf]) =>
    get(path, 'anyone', {
      refuses: [401],
      summary: `The lines of this controller at ${path}, for another one`,
      output: object({ lines: string(), proof: string() }),
      handler: async ({ target, headers }) => {
        questions.verifyRequest(target, headers)
        const lines = JSON.stringify(await linesOf())
        return ok({ lines, proof: questions.signAnswer(headers, lines) })
      }
    })
  )
}

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
    if (status !== 200) throw new Error(REFUSALS[status] ?? `it answers with ${status}: look into its log`)
    const { lines, proof } = jsonObjectOrEmpty(text)
    if (typeof lines !== 'string' || !proofs.isAnswerAuthentic(headers, lines, String(proof)))
      throw new Error('what it answers is not proved: something else answers there')
    return objectsIn(JSON.parse(lines))
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

/** The reasons of a controller that sends no lines, by status. */
const REFUSALS: Readonly<Record<number, string>> = {
  401: 'it does not believe that a controller asks: its clock, or its token.key, is another one',
  404: 'it is of a release that does not send its lines'
}
