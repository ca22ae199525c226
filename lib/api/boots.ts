import { contains, parseAddress } from '../model/address.js'
import { isBmc } from '../model/cluster-index.js'
import { lackingRoot } from '../model/root-format.js'
import { unsignedKernel } from '../model/secure-boot.js'
import type { NodeDoc } from '../model/types/node.js'
import type { Facts } from '../monitor/boot-facts.js'
import type { Boot, Step } from '../monitor/boot-steps.js'
import { packOnRestart } from '../monitor/stale.js'
import { why } from '../monitor/why.js'
import { type ApiRequest, type ApiRoute, isoTime, ok, type Parts, param } from './context.js'
import { get } from './row.js'
import { at, list, object, orNull, string, time } from './schema.js'

const integer = { type: 'integer' }
const step = object({
  step: string('what was seen; docs/troubleshooting.md lists the words'),
  about: string('a file, a reason, a state'),
  from: string('the address that asked'),
  time,
  last: time,
  count: integer,
  end: orNull(string('how a file was sent: whole, part, cut, front, refused')),
  bytes: orNull(integer),
  of: orNull(integer)
})

/** The boots of a node as svcd saw them, and why it did not boot (rules 6.7). */
export function bootsRoutes(parts: Parts): ApiRoute[] {
  const { model, boots } = parts
  const nodeOf = (request: ApiRequest) => model.get('node', param(request, 'node'))
  return [
    get('/monitor/node/{node}/_boots', 'minimal', {
      limited: 'node',
      summary: 'The last 10 boots of a node, each step with its time; the oldest first',
      output: at(
        'monitor.boots.{node}',
        object({
          boots: list(object({ began: time, from: string(), omitted: integer, steps: list(step) })),
          elsewhere: list(step)
        })
      ),
      handler: request => {
        const { name } = nodeOf(request)
        const told = boots.of(name)
        const shown =
          request.caller.kind === 'anonymous'
            ? { boots: told.boots.map(({ began }) => ({ began: isoTime(began) })) }
            : { boots: told.boots.map(showBoot), elsewhere: told.elsewhere.map(showStep) }
        return ok({ monitor: { boots: { [name]: shown } } })
      }
    }),
    get('/monitor/node/{node}/_why', 'minimal', {
      limited: 'node',
      summary: 'Why the node did not boot, or how far it is: one sentence with what to do',
      output: at(
        'monitor.why.{node}',
        object({
          rule: string(),
          verdict: string(),
          see: string(),
          obstacle: orNull(string('why it could not boot if it asked now'))
        })
      ),
      handler: async request => {
        const node = nodeOf(request)
        const facts = await factsOf(parts, node)
        const { rule, verdict, see } = why(facts)
        const shown =
          request.caller.kind === 'anonymous'
            ? { rule }
            : { rule, verdict, see, obstacle: facts.obstacle() ?? null }
        return ok({ monitor: { why: { [node.name]: shown } } })
      }
    })
  ]
}

const showBoot = ({ began, from, omitted, steps }: Boot) => ({
  ...{ began: isoTime(began), from, omitted, steps: steps.map(showStep) }
})

const showStep = ({ step, about, from, time, last, count, end, bytes, bytesTotal }: Step) => ({
  ...{ step, about, from, time: isoTime(time), last: isoTime(last), count },
  ...{ end: end ?? null, bytes: bytes ?? null, of: bytesTotal ?? null }
})

async function factsOf(parts: Parts, node: NodeDoc): Promise<Facts> {
  const { model, boots, boot, trace, health, leases, control } = parts
  const { name } = node
  const { provision, prefix, settings } = model.effective(node)
  const { boots: seen, elsewhere } = boots.of(name)
  const macs = (node.interfaces ?? []).flatMap(entry =>
    entry.macaddress === undefined || isBmc(entry) ? [] : [entry.macaddress]
  )
  const isNear = (address: string) => {
    const number = parseAddress(address)
    return number !== undefined && (!prefix || contains(prefix, number))
  }
  const wrong = (service: string) => {
    const state = health.of(service)
    return state?.status === 'failed' ? state.reason : ''
  }
  const strangers = trace.unknownMachines().filter(({ from }) => isNear(from))
  return {
    node: name,
    now: parts.trace.now(),
    macs,
    address: provision?.ipaddress,
    boot: seen.at(-1),
    reportedBoot: seen.findLast(({ steps }) =>
      steps.some(({ step }) => step === 'report' || step === 'running')
    ),
    foreignSteps: elsewhere,
    state: parts.status.state(name),
    failure: parts.status.failure(name),
    obstacle: () => boot.obstacleOf(name),
    running: boots.running(name),
    wouldInstall: packOnRestart(model, name),
    netboot: settings.netboot,
    trust: parts.trust.isWanted(name) ? parts.trust.of(name) : undefined,
    needsTrust: settings.trust === 'require',
    switchedOn: control.switchedOn(name),
    unsignedKernel: unsignedKernel(model.view, model.cluster, name),
    lackingRoot: lackingRoot(model.view, model.cluster, name),
    unknownMachines: strangers,
    neverSeenCount: seen.length === 0 && strangers.length > 0 ? othersUnseen(parts, name) : 0,
    leased: await leasedTo(leases, macs),
    trackerProblem: wrong('tracker'),
    consoleLines: await parts.consoles.known(name),
    diskProblem: /disk|written/.test(wrong('svcd')) ? wrong('svcd') : ''
  }
}

function othersUnseen({ model, boots }: Parts, node: string): number {
  return model.view.names('node').filter(other => other !== node && !boots.hasSeen(other)).length
}

/** The address that the DHCP server leased to one of the MACs. Unreadable leases count as none. */
async function leasedTo(leases: Parts['leases'], macs: readonly string[]): Promise<string | undefined> {
  for (const mac of macs) {
    const lease = await leases?.of(mac).catch(() => undefined)
    if (lease) return lease.address
  }
  return undefined
}
