import { isObject } from '../json.js'
import { clusterFields } from '../model/settings.js'
import { changed, reader } from './change.js'
import { wrongUsage } from './failure.js'
import { objectLines } from './render.js'
import { bodyOf, type Described } from './values.js'
import { any, change, type Verb } from './verb.js'

/** What may be set of the cluster. */
export const cluster: Described = { title: 'cluster', fields: clusterFields, newName: [] }

/** What can be done with the cluster's settings. */
export const clusterVerbs: Readonly<Record<string, Verb<'cluster'>>> = {
  show: {
    operands: '',
    count: [0, 0],
    summary: 'the settings of the cluster, its controllers and its variables',
    options: ['output'],
    async run(session) {
      const { format, controller, paint } = session
      if (format === 'csv') throw wrongUsage('there is no CSV of this: -o takes text or json')
      const answer = await controller.json('GET', '/config/cluster')
      if (format === 'json') return session.json(answer)
      const { config } = answer
      const shown = isObject(config) ? config.cluster : undefined
      await session.lines(objectLines(clusterFields, isObject(shown) ? shown : {}, paint))
    }
  },
  set: {
    operands: 'FIELD=VALUE...',
    count: [1, any],
    summary: 'change settings and variables; FIELD= goes back to the ini',
    options: change,
    assigns: true,
    async run(session, _type, words) {
      const body = await bodyOf(cluster, words, reader(session))
      await changed(session, '/config/cluster', body, 'cluster updated')
    }
  },
  rm: {
    operands: 'CONTROLLER',
    count: [1, 1],
    summary: 'forget a controller that is gone',
    options: ['output'],
    async run(session, _type, [name = '']) {
      const path = `/config/cluster/${encodeURIComponent(name)}/_delete`
      await changed(session, path, undefined, `controller ${name} is forgotten`)
    }
  }
}
