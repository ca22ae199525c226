import { runningPacks } from '../monitor/stale.js'
import { type ApiRoute, config, ok, type Parts, param } from './context.js'
import { get } from './row.js'
import { at, list, object, string } from './schema.js'

/** Which packs of an image run where (rules 6.8). */
export function runningRoutes({ model, boots }: Parts): ApiRoute[] {
  return [
    get('/config/osimage/{osimage}/_running', {
      access: 'user',
      summary: 'How many nodes run each pack of the OS image',
      output: at(
        'config.osimage.{osimage}',
        object({
          running: list(
            object({
              pack: string(),
              sha256: string(),
              nodes: { type: 'integer' },
              current: { type: 'boolean', description: 'the pack that the image names now' }
            })
          )
        })
      ),
      handler: request => {
        const { name } = model.get('osimage', param(request, 'osimage'))
        return ok(config('osimage', { [name]: { running: runningPacks(model, boots, name) } }))
      }
    })
  ]
}
