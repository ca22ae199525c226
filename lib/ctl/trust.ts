import { isObject, type JsonObject, within } from '../base/json.js'
import { makeChange } from './change.js'
import { changeOptions, pathOf, type Session, type Verb } from './session.js'
import { clean, refused, wrongUsage } from './terminal.js'

/** Enrols the machines of nodes that showed their TPM, or forgets them (rules 15.2). */
export const trust: Verb = {
  operands: 'SET',
  summary:
    'show what the machines of nodes proved, and accept those that wait for it; asks; --forget: no more',
  options: [...changeOptions, 'yes', 'forget', 'firmware'],
  onlyTypes: ['node'],
  async run(session, _type, [set = '']) {
    const { options, format } = session
    if (options.firmware && !options.forget) throw wrongUsage('--firmware goes with --forget alone')
    if (options.forget) return forget(session, set)
    const answer = await session.controller.json('GET', '/config/trust', { nodes: set })
    const nodes = Object.values(within(answer, 'config', 'trust')).filter(isObject)
    if (format === 'json' && !options.yes) return session.json(answer)
    if (nodes.length === 0)
      throw refused(`no node of ${set} proves anything: svcctl node set '${set}' trust=report, and start it`)
    const pending = nodes.filter(node => node.pending === true)
    if (format === 'text') await session.lines(nodes.flatMap(linesOf))
    if (pending.length === 0 || options.dryrun) return
    const replaced = pending.filter(({ enrolled, ek }) => enrolled !== null && enrolled !== ek)
    const names = replaced.map(({ name }) => name).join(', ')
    // A stranger with the address of a node gets so far by himself.
    if (replaced.length > 0 && options.yes)
      throw refused(
        `nothing was changed: another TPM is enrolled for ${clean(names)}: answer the question ` +
          'without --yes, or forget it first: svcctl node trust SET --forget'
      )
    const place = replaced.length === 0 ? '' : `, in the place of another TPM: ${clean(names)}`
    const machines = pending.length === 1 ? 'this machine' : `these ${pending.length} machines`
    await session.confirm(`Trust ${machines}${place}?`, 'nothing was changed')
    for (const node of pending) {
      const { name, ek = null, ak = null, seen = null } = node
      const path = `${pathOf('node', String(name))}/_trust`
      await makeChange(session, path, { ek, ak, seen }, `node ${name}: its machine is trusted`)
    }
  }
}

async function forget(session: Session, set: string): Promise<void> {
  const names = await session.nodes(set)
  if (!session.options.dryrun) await session.confirm(`Forget the TPM of ${set}?`, 'nothing was changed')
  for (const name of names) {
    const body = { firmware: session.options.firmware === true }
    await makeChange(session, `${pathOf('node', name)}/_distrust`, body, `node ${name}: its TPM is forgotten`)
  }
}

/** The lines that an admin has to see before a machine is trusted. */
function linesOf(node: JsonObject): string[] {
  const { name, verdict, secureboot, ek, enrolled } = node
  const waits = node.pending === true
  const lines = [
    `${name}: trust ${node.trust}, ${verdict ?? 'no quote yet'}${waits ? ', waits for you' : ''}`
  ]
  if (verdict === null) return lines.map(clean)
  lines.push(`  ${node.reason} (${node.time})`)
  const secure = secureboot === null ? 'unknown' : secureboot === true ? 'on' : 'off'
  lines.push(`  machine   ${node.firmware}, Secure Boot ${secure}`)
  if (enrolled !== null && enrolled !== ek) lines.push(`  enrolled  EK ${enrolled}`)
  lines.push(`  ${enrolled === ek ? 'its TPM ' : 'new TPM '}  EK ${ek}`, `            AK ${node.ak}`)
  for (const [pcr, value] of Object.entries(waits ? within(node.pcrs) : {}))
    lines.push(`  PCR ${pcr.padEnd(5)} ${value}`)
  return lines.map(clean)
}
