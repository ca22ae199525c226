import type { ForwardedRequests } from '../auth/forwarded.js'
import type { Elsewhere, RequestHead } from '../http/route.js'
import { ERRANDS } from '../image/errands/errand.js'
import type { ClusterStore } from '../model/view.js'
import { FollowingError } from '../store/errors.js'
import type { ApiRoute } from './context.js'

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
