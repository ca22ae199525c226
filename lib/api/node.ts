import { badRequest } from '../base/errors.js'
import { saveEach } from '../model/bulk.js'
import { boolean, objectName } from '../model/field.js'
import { countObjects, objectTypes } from '../model/types.js'
import { type ApiRequest, type ApiRoute, actorOf, config, done, ok, type Parts, param } from './context.js'
import { type Line, Refusals, readTable } from './csv.js'
import { dryRunQuery, isDryRun } from './dry-run.js'
import { acknowledge, acknowledgement, answerWhenDone } from './jobs.js'
import { findWarnings, MOST_CHECKED, withWarnings } from './objects.js'
import { bodyOf, get, post, script } from './row.js'
import { at, csv, list, object, ref, string, word } from './schema.js'

/** Body of a grab or a push: a dry run by `dryrun` or `nodry` (rules 1.6). */
const transferOf = (type: 'node' | 'group') =>
  bodyOf(
    { about: `${type} {${type}}`, at: `config.${type}.{${type}}` },
    {
      osimage: { type: objectName, required: true, meaning: 'OS image' },
      dryrun: { type: boolean, meaning: 'only report the changes' },
      nodry: { type: boolean, meaning: 'the opposite of dryrun' }
    },
    ({ osimage, dryrun, nodry }, about) => {
      if (dryrun !== null && dryrun === nodry)
        throw badRequest(
          `${about}: field "dryrun" and field "nodry" say the opposite of each other`,
          'invalid-field'
        )
      return { osimage, dryrun: dryrun === true || nodry === false }
    }
  )

/** A grab or a push, as an asynchronous request; its query can ask for a dry run too (rules 12.7). */
const transfer = (type: 'node' | 'group', verb: string, summary: string, ask: Parts['images']['grab']) =>
  post(`/config/${type}/{${type}}/${verb}`, 'user', {
    summary,
    query: dryRunQuery,
    body: transferOf(type),
    output: acknowledgement,
    handler: async (request, { osimage, dryrun }) => {
      const isDry = isDryRun(request) || dryrun
      const job = await ask(param(request, type), osimage, isDry, actorOf(request), request.signal)
      return acknowledge(request, job)
    }
  })

const nodeOf = (request: ApiRequest) => param(request, 'node')

/** Nodes from a table. */
const tableRoute = (parts: Parts) =>
  post('/config/node', 'user', {
    answers: [200],
    summary:
      'Create and change nodes by the lines of a table, all or none; ' +
      'expect=MARK only if the changes are those of the dry run',
    query: { format: word('csv'), expect: string('the "mark" from the answer of a dry run') },
    body: { schema: csv, text: true, read: request => String(request.body) },
    handler: async (request, text) => {
      if (request.query.get('format') !== 'csv')
        throw badRequest(
          'POST /config/node takes a table, with ?format=csv; one node is posted to its own path',
          'invalid-body'
        )
      const refusals = new Refusals()
      const lines = await readTable(text, objectTypes.node, refusals)
      refusals.check()
      const refused = ({ line }: Line, why: string) => refusals.add(line, why)
      const expected = request.query.get('expect') ?? undefined
      const refuse = () => refusals.check()
      const names = request.dryRun ? [] : lines.map(({ name }) => name)
      const fields = lines.slice(0, MOST_CHECKED).flatMap(({ given }) => [...given.values.keys()])
      const found = findWarnings(parts, 'node', names, new Set(fields))
      const saved = await saveEach(parts.model, 'node', lines, actorOf(request), refused, refuse, expected)
      const { created, changed } = saved
      return withWarnings(
        done(200, `${countObjects('node', created)} created, ${changed} changed`),
        await found()
      )
    }
  })

/** Previews of what a node boots (rules 4.12). */
const previewRoutes = ({ model, boot, install, nodeFiles }: Parts): ApiRoute[] => [
  ...(['boot', 'install', 'kickstart', 'partscript'] as const).map(what =>
    script(`/config/node/{node}/_render/${what}`, 'admin', {
      summary:
        what === 'partscript'
          ? 'The partscript that the node would run, its own or that of its disk layout'
          : `The ${what} script that the node would get, secrets masked`,
      text: request => {
        const { name } = model.get('node', nodeOf(request))
        return what === 'boot' ? boot.preview(name) : install.preview(what, name)
      }
    })
  ),
  get('/config/node/{node}/_render/files', 'admin', {
    summary: 'The files that the node would get, with their texts, secrets masked',
    output: at('config.node.{node}', object({ files: list({ type: 'object' }) })),
    handler: async request => {
      const { name } = model.get('node', nodeOf(request))
      return ok(config('node', { [name]: { files: await nodeFiles.preview(name) } }))
    }
  })
]

/** The takeover of a node by another machine. */
const takeoverRoutes = ({ handover }: Parts): ApiRoute[] => [
  get('/config/node/{node}/_release', 'admin', {
    changes: true,
    summary: 'Allow one other machine to take over the node at the console within an hour',
    output: ref('message'),
    handler: async request => {
      const name = nodeOf(request)
      const until = await handover.release(name, actorOf(request))
      return done(200, `node ${name} can be taken over by one machine until ${until}`)
    }
  }),
  get('/config/node/{node}/_seen', 'admin', {
    changes: true,
    summary: 'Acknowledge the takeover of a node: it disappears from /monitor/status',
    output: ref('message'),
    handler: async request => {
      const name = nodeOf(request)
      await handover.seen(name, actorOf(request))
      return done(200, `node ${name}: seen`)
    }
  })
]

/** File systems of running nodes, to and from an OS image (rules 2.4). */
const transferRoutes = ({ images }: Parts): ApiRoute[] => [
  transfer('node', '_osgrab', "Take a node's file systems as the directory of an OS image", (...asked) =>
    images.grab(...asked)
  ),
  transfer('node', '_ospush', 'Make a running node like the directory of an OS image', (node, ...asked) =>
    images.push({ node }, ...asked)
  ),
  transfer(
    'group',
    '_ospush',
    'Make the running nodes of a group like the directory of an OS image',
    (group, ...asked) => images.push({ group }, ...asked)
  )
]

/** Work on running nodes and groups, and previews of what a node boots (rules 2.4, 4.12). */
export function nodeRoutes(parts: Parts): ApiRoute[] {
  return [tableRoute(parts), ...previewRoutes(parts), ...takeoverRoutes(parts), ...transferRoutes(parts)]
}

const rehearsalBody = bodyOf(
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
  post('/config/node/{node}/_rehearse', 'user', {
    summary:
      'Boot in a virtual machine on the controller what the node would get next; ' +
      'Prefer: respond-async as for _pack',
    body: rehearsalBody,
    output: acknowledgement,
    handler: async (request, { osimage, osimagetag }) => {
      const name = nodeOf(request)
      const override = { image: osimage ?? undefined, tag: osimagetag ?? undefined }
      const job = await rehearsals.submit(name, override, actorOf(request))
      return answerWhenDone(request, job, 200, `node ${name} was rehearsed: well`)
    }
  })
]
