import { fileURLToPath } from 'node:url'
import type { Parts } from '../../../lib/api/context.js'
import { routes } from '../../../lib/api/routes.js'
import { loadConfig } from '../../../lib/config/load.js'
import { type Cases, keyOf, type Row, type Step, shape } from './case.js'
import { cluster } from './cluster.js'
import { control } from './control.js'
import { group } from './group.js'
import { images } from './images.js'
import { jobs } from './jobs.js'
import { node } from './node.js'
import { objects } from './objects.js'
import { osimage } from './osimage.js'
import { monitor, secrets } from './secrets.js'
import { service } from './service.js'
import { services } from './services.js'

/** All cases, by the key of their row. */
export const cases: Cases = {
  ...service,
  ...group,
  ...node,
  ...cluster,
  ...objects,
  ...osimage,
  ...images,
  ...secrets,
  ...monitor,
  ...jobs,
  ...services,
  ...control
}
const config = loadConfig(fileURLToPath(new URL('../../../etc/svcd.ini', import.meta.url)), [])
/** The routes that svcd has. */
export const table = routes({ config } as Parts)
export const routeOf = (row: Row) => table.find(route => shape(keyOf(route)) === shape(row.key))
/** The cases of a row. */
export const steps = (row: Row): readonly Step[] => cases[row.key] ?? []
/** The first of them that is well, in the world as it is. */
export const succeeding = (row: Row) => steps(row).find(step => step.status < 300 && !step.before)

/** What is refused to who sends no token, a bad one, or a viewer's. */
export function refusals(row: Row): Step[] {
  const { ask } = succeeding(row) ?? steps(row)[0] ?? {}
  if (!ask) return []
  const needed = ['needed', 'node', 'admin'].includes(row.token)
  const refused: [boolean, 'nobody' | 'garbage' | 'viewer', number][] = [
    [needed, 'nobody', 401],
    [needed || row.token === 'minimal', 'garbage', 401],
    [needed && row.errors.includes(403) && routeOf(row)?.effect === 'changes', 'viewer', 403],
    [row.token === 'admin', 'viewer', 403]
  ]
  return refused.flatMap(([applies, by, status]) => (applies ? [{ what: `by ${by}`, ask, by, status }] : []))
}
