import { allCommands, isReading } from '../../../lib/model/bmc-commands.js'
import { ended } from '../../support/planted-request.js'
import type { Cases, Step } from './case.js'

const unknown = 'f'.repeat(32)
const noBmc = /^node n1 has no interface BMC: /

/** The power of nodes; what BMCs do is in test/control (rules 13.1, 13.2). */
export const control: Cases = {
  ...Object.fromEntries(
    allCommands.flatMap(({ part, action, command }): [string, Step[]][] => {
      const one = (node: string) => `/control/action/${part}/${node}/_${action}`
      const many = `/control/action/${part}/_${action}`
      const of = (hostlist: string) => ({ control: { [part]: { [action]: { hostlist } } } })
      return [
        [
          `GET ${one('{node}')}`,
          [
            { what: 'a node without a BMC', ask: [one('n1')], status: 404, says: noBmc },
            { what: 'an unknown one', ask: [one('n9')], status: 404, says: /node n9/ },
            { what: 'not for a node', ask: [one('n1')], by: 'n1', status: 403 }
          ]
        ],
        [
          `POST ${many}`,
          [
            {
              what: 'is queued',
              ask: [many, of('n1')],
              by: isReading(command) ? 'viewer' : 'admin',
              status: 200,
              shows: {
                message: 'queued',
                request_id: /^[\da-f]{32}$/,
                control: { [part]: { ok: {}, on: {}, off: {} }, failed: {} }
              }
            },
            { what: 'no node set', ask: [many, of('n[1')], status: 400, says: /node set n\[1/ },
            { what: 'an unknown node', ask: [many, of('n1,n9')], status: 404, says: /n9/ }
          ]
        ]
      ]
    })
  ),
  'GET /control/status/{request_id}': [
    { what: 'an unknown one', ask: [`/control/status/${unknown}`], status: 404, says: new RegExp(unknown) },
    { what: 'one about something else', ask: [`/control/status/${ended.id}`], status: 404 }
  ]
}
