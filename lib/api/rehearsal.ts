import { objectName } from '../model/field.js'
import { type ApiRoute, actorOf, type Parts, param } from './context.js'
import { acknowledgement, answerWhenDone } from './jobs.js'
import { bodyOf, post } from './row.js'

const body = bodyOf(
  { about: 'node {node}', at: 'config.node.{node}' },
  {
    osimage: { type: objectName, meaning: 'another OS image than that of the node' },
    osimagetag: {
      type: objectName,
      meaning: 'another tag; with another image default, else that of the node'
    }
  }
)

/** Rehearsals of boots (rules 16.1). */
export const rehearsalRoutes = ({ rehearsals }: Parts): ApiRoute[] => [
  post('/config/node/{node}/_rehearse', {
    access: 'user',
    summary:
      'Boot in a virtual machine on the controller what the node would get next; ' +
      'Prefer: respond-async as for _pack',
    body,
    output: acknowledgement,
    handler: async (request, { osimage, osimagetag }) => {
      const name = param(request, 'node')
      const override = { image: osimage ?? undefined, tag: osimagetag ?? undefined }
      const job = await rehearsals.submit(name, override, actorOf(request))
      return answerWhenDone(request, job, 200, `node ${name} was rehearsed: well`)
    }
  })
]
