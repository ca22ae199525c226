import { join } from 'node:path'
import type { ControllerQuestions, ForwardedRequests } from '../auth/controller-proof.js'
import { exists } from '../disk/file.js'
import { notFound, unavailable } from '../errors.js'
import type { Elsewhere, RequestHead } from '../http/route.js'
import type { Checksums } from '../image/copies/checksums.js'
import { checksumText } from '../image/copies/download.js'
import type { Errands } from '../image/errands/errand.js'
import { ERRANDS, errandIn } from '../image/errands/errand.js'
import { isServed, packOf } from '../image/publish.js'
import type { ClusterStore } from '../model/stored.js'
import { isBootFileOfPacks } from '../model/types/osimage.js'
import type { Audit } from '../monitor/audit.js'
import { AUDIT_LINES, answerWithLines } from '../monitor/audit-logs.js'
import { FollowingError } from '../store/errors.js'
import { type ApiRequest, type ApiRoute, ok, type Parts, param } from './context.js'
import { get, post } from './row.js'
import { bytes, object, plainText, string } from './schema.js'

/** An errand has names, a path and a URL. */
const MOST_BYTES = 8192

/**
 * Work that is done here at once: `[jobs] parallel` has 100 at most, and what was begun for another controller that wrote before may
 * still be ending.
 */
const MOST_WORK = 256
/** The same of checks: a client waits for each, and work has places of its own beside them. */
const MOST_CHECKS = 64

/**
 * Work on directories that are here, for the controller that writes (rules 9.15). The route is loaded only where there may be other
 * controllers, and stands in no document: who asks has to prove to be that controller.
 */
export function errandRoutes(errands: Errands, questions: ControllerQuestions): ApiRoute[] {
  return [
    post(ERRANDS, {
      access: 'anyone',
      refuses: [401],
      summary: 'Work on the directory of an image, for the controller that writes',
      // It is read before anybody has proved anything.
      maxBody: MOST_BYTES,
      body: {
        schema: { type: 'object' },
        read: ({ body, headers }: ApiRequest) => {
          questions.check(JSON.stringify(body), headers)
          return errandIn(body)
        }
      },
      output: plainText,
      handler: ({ headers }, errand) => ({
        status: 200,
        type: 'application/x-ndjson',
        headers: { 'Cache-Control': 'no-store', 'X-Accel-Buffering': 'no' },
        feed: errands.feed(errand, said => questions.proofOf(headers, said)),
        // Watchers of events do not keep it waiting. No user has such a name.
        follower: errand.task.check
          ? { name: 'checks for the controller that writes', first: true, most: MOST_CHECKS }
          : { name: 'pieces of work for the controller that writes', first: true, most: MOST_WORK }
      })
    })
  ]
}

/** What machines read to boot, what a person looks at first, and a token for it. */
const answered =
  /^\/(?:(?:boot|kickstart|files|copies|audit|page|version|openapi\.json|metrics|token|monitor\/(?:primary|service|status))(?:\/|$)|$)/

/**
 * Whether a controller answers a route by itself while another one writes: most of the others change something, or tell of
 * what it does not have. Errands are of the one that writes.
 */
const isAnswered = ({ path, effect }: Pick<ApiRoute, 'path' | 'effect'>) =>
  path === ERRANDS || (answered.test(path) && (effect === 'reads' || path === '/token'))

interface StandbyOptions {
  readonly store: Pick<ClusterStore, 'isFollowing' | 'writer'>
  readonly requests: ForwardedRequests
  readonly trust: Elsewhere['trust']
  /** Told why the controller at a URL could not be asked; '' when it answers. */
  readonly told: (url: string, failure: string) => void
}

/**
 * Who answers a request in the place of this controller while another one writes; undefined where it answers itself. Throws 503
 * where nobody can be asked, or another controller has handed the request on already.
 */
export function writerFor(
  { store, requests, trust, told }: StandbyOptions,
  route: Pick<ApiRoute, 'path' | 'effect'>,
  { method, headers, source, headOnly, target }: RequestHead
): Elsewhere | undefined {
  if (!store.isFollowing || isAnswered(route)) return undefined
  const { writer } = store
  if (source.isHandedOn)
    throw new FollowingError('another controller has handed this on, and this one does not write')
  if (!writer) throw new FollowingError('no controller that writes is known for the moment')
  const head = { method: headOnly ? 'HEAD' : method, target, headers }
  return {
    ...{
      ...writer,
      trust,
      headersFor: body => requests.headersFor(writer.right, head, source.address, body)
    },
    told: failure => told(writer.url, failure)
  }
}

/**
 * The files of images, for the other controllers that share the objects (rules 11.19). They are loaded only where there may be
 * others, and stand in no document: who asks has to prove to be a controller.
 */
export function copyRoutes(
  { model, config }: Pick<Parts, 'model' | 'config'>,
  questions: ControllerQuestions,
  checksums: Checksums
): ApiRoute[] {
  const asked = async (request: ApiRequest) => {
    questions.check(request.target, request.headers)
    const name = param(request, 'file')
    const file = join(config.paths.files, name)
    if (isServed(model.view.index, name)) return { name, file }
    // The asker has heard of an image that names it; this controller may hear it later.
    if (await exists(file)) throw unavailable(`no OS image names the file ${name} so far`, 'image-unusable')
    throw notFound(`no OS image names the file ${name}`, 'no-file')
  }
  /** Whether svcd made it: such a file gets its name when it is whole. */
  const isPacked = (name: string) =>
    model.view.get('pack', packOf(name)) !== undefined || isBootFileOfPacks(model.view, name)
  return [
    get('/copies/{file}', {
      access: 'anyone',
      answers: [200, 206],
      refuses: [401, 416],
      summary: 'A file of an image, for another controller',
      output: bytes,
      handler: async request => ({ status: 200, file: (await asked(request)).file })
    }),
    get('/copies/{file}/checksum', {
      access: 'anyone',
      refuses: [401],
      summary: 'Its size and its checksum, for another controller',
      output: object({ bytes: { type: 'integer' }, sha256: string(), proof: string() }),
      handler: async request => {
        const { name, file } = await asked(request)
        const { bytes, sha256 } = await checksums.of(file, isPacked(name))
        return ok({
          bytes,
          sha256,
          proof: questions.proofOf(request.headers, checksumText({ bytes, sha256 }))
        })
      }
    })
  ]
}

/**
 * The lines of this controller's audit logs, for the one that writes (rules 6.11). The routes are loaded only where there may be other
 * controllers, and stand in no document: who asks has to prove to be a controller.
 */
export function auditLineRoutes(audit: Pick<Audit, 'last'>, questions: ControllerQuestions): ApiRoute[] {
  return (['users', 'machines'] as const).map(by =>
    get(`${AUDIT_LINES}/${by}`, {
      access: 'anyone',
      refuses: [401],
      summary: `The last lines of the audit log of ${by} of this controller, for another one`,
      output: object({ lines: string(), proof: string() }),
      handler: async ({ target, headers }) => {
        questions.check(target, headers)
        return ok(await answerWithLines(audit, by, text => questions.proofOf(headers, text)))
      }
    })
  )
}
