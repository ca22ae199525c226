import { runFairly } from '../base/concurrency.js'
import { badRequest, notFound } from '../base/errors.js'
import { MOST_NODES, type NodeResult } from '../control/control.js'
import { allCommands, type Command, commands, isReading, type Part } from '../model/bmc-commands.js'
import { freeText } from '../model/field.js'
import { type ApiRoute, actorOf, ok, type Parts, param } from './context.js'
import { maySeeJob, running, userOf } from './jobs.js'
import { nodesFor } from './node-sets.js'
import { bodyOf, get, post } from './row.js'
import { at, map, object, type Schema, string } from './schema.js'

/** Bytes of a list of 10,000 nodes, all named. */
const LONGEST_HOSTLIST = 1024 * 1024

const texts: Readonly<Record<Command, string>> = {
  'power status': 'Whether a node is switched on',
  'power on': 'Switch a node on',
  'power off': 'Switch a node off, at once',
  'power soft': 'Shut down the system of a node, and wait until the node is off',
  'power cycle': 'Switch a node off and on again',
  'power reset': 'Reset a node',
  'power boot': 'Switch a node on, or power-cycle it if it is on',
  'chassis identify': 'Turn on the identify light of a node',
  'chassis noidentify': 'Turn that light off',
  'chassis netboot': 'Have a node boot from the network the next time, once',
  'chassis diskboot': 'Have a node boot from its disk the next time, once',
  'sel list': 'The system event log of a node, a line for each event',
  'sel clear': 'Empty the system event log of a node'
}

/** The results by node, under the keys that luna's clients read. */
const outcomes = (part: Schema) =>
  object({
    request_id: string(),
    ...running,
    control: object({ ...part, failed: map(string('why')) })
  })
const group = object({
  on: map(string('switched on')),
  off: map(string('switched off')),
  ok: map(string('done; for sel list the log'))
})

/** Power, lights and event logs of nodes, through their BMCs (rules 13.1, 13.2). */
export function controlRoutes(parts: Parts): ApiRoute[] {
  const { control, jobs, model } = parts
  const actions = allCommands.flatMap(({ part, action, command }) => [
    get(`/control/action/${part}/{node}/_${action}`, 'user', {
      operator: true,
      limited: 'node',
      ...(isReading(command)
        ? { output: at(`control.${part}`, string()) }
        : { changes: true, answers: [204] }),
      summary: texts[command],
      handler: async request => {
        const text = await control.act(param(request, 'node'), command, actorOf(request))
        return isReading(command) ? ok({ control: { [part]: text } }) : { status: 204 }
      }
    }),
    // Viewers may read.
    post(`/control/action/${part}/_${action}`, isReading(command) ? 'reader' : 'user', {
      operator: true,
      limited: 'filtered',
      summary: `${texts[command]}: of many nodes, by an asynchronous request`,
      refuses: [404],
      maxBody: LONGEST_HOSTLIST,
      body: bodyOf(
        { about: command, at: `control.${part}.${action}` },
        { hostlist: { type: freeText, required: true, meaning: 'a node set' } }
      ),
      output: object({ message: string('queued'), ...(outcomes({ [part]: group }).properties as Schema) }),
      handler: async (request, { hostlist }) => {
        const nodes = await runFairly(nodesFor(parts, request.caller, hostlist, model.view), request)
        checkCount(nodes.length, command)
        const job = await control.submit(nodes, command, actorOf(request))
        return ok({
          message: 'queued',
          ...grouped(job.id, part, command, { state: 'queued', progress: 0, results: [] })
        })
      }
    })
  ])
  return [
    ...actions,
    // It records what it has reported, so it does not answer HEAD.
    get('/control/status/{request_id}', 'reader', {
      limited: 'filtered',
      changes: true,
      summary: "The results of such a request since this user's last call; 404 after its end",
      output: outcomes(Object.fromEntries(Object.keys(commands).map(part => [part, group]))),
      handler: async request => {
        const [id, user] = [param(request, 'request_id'), userOf(request)]
        const job = jobs.summary(id)
        const asked = maySeeJob(request, job) && allCommands.find(({ command }) => command === job?.kind)
        const poll = asked && (await jobs.pollResults(id, user))
        if (!poll)
          throw notFound(
            `there is no request ${id} about the power of nodes, or this user has read its end already`,
            'no-job'
          )
        return ok(grouped(id, asked.part, asked.command, poll))
      }
    })
  ]
}

function checkCount(count: number, command: Command): void {
  if (count > 0 && count <= MOST_NODES) return
  const what = count === 0 ? 'no node' : `${count} nodes; at most ${MOST_NODES} are allowed`
  throw badRequest(`${command}: field "hostlist" names ${what}`, 'invalid-set')
}

type Poll = NonNullable<Awaited<ReturnType<Parts['jobs']['pollResults']>>>

type Names = Record<string, string>

function grouped(id: string, part: Part, command: Command, { state, progress, results }: Poll) {
  const [ok, on, off, failed] = [{}, {}, {}, {}] as [Names, Names, Names, Names]
  const of = ({ state, message }: NodeResult) => {
    if (state === 'failed') return failed
    return command !== 'power status' ? ok : message === 'on' ? on : off
  }
  for (const [node, value] of results) {
    const result = value as unknown as NodeResult
    of(result)[node] = result.message
  }
  return { request_id: id, state, progress, control: { [part]: { ok, on, off }, failed } }
}
