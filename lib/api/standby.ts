import type { ApiRoute } from './context.js'

/** What machines read to boot, what a person looks at first, and a token for it. */
const answered =
  /^\/(?:(?:boot|kickstart|files|page|version|openapi\.json|metrics|token|monitor\/(?:service|status))(?:\/|$)|$)/

/** Whether a controller answers a route by itself while another one writes: most of the others change something, or tell of what it does not have. */
export const isAnswered = ({ path, effect }: Pick<ApiRoute, 'path' | 'effect'>) =>
  answered.test(path) && (effect === 'reads' || path === '/token')
