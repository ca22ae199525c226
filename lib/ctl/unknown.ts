import { runSync } from '../base/concurrency.js'
import { ServiceError } from '../base/errors.js'
import { isObject, type JsonObject, objectsIn, within } from '../base/json.js'
import { parseMac } from '../model/names.js'
import { countObjects } from '../model/types.js'
import { evaluate, isLike } from '../node-set/evaluate.js'
import { fold } from '../node-set/hostlist.js'
import { awaitResult, dryRunOfTable, importTable } from './change.js'
import { dryRunLines } from './render.js'
import { csvCell, listOptions, type Session, type Verbs } from './session.js'
import { clean, refused, wrongUsage } from './terminal.js'

/** The orders in which machines get their names, by these fields; the list has the order of arrival. */
const orders: Readonly<Record<string, readonly string[]>> = {
  time: ['first'],
  serial: ['serial', 'mac'],
  port: ['switch', 'port', 'mac'],
  mac: ['mac']
}

const textOf = (machine: JsonObject, field: string) => String(machine[field] ?? '')

export const unknownVerbs: Verbs<string> = {
  list: {
    operands: '',
    alias: 'ls',
    summary: 'the machines that asked for a boot script and belong to no node',
    options: listOptions,
    async run(session) {
      await session.rendered('/monitor/unknown', {})
      session.showWarnings()
    }
  },
  adopt: {
    operands: 'SELECTOR as NODES',
    summary: 'make nodes of them: MACs, serials, patterns, network=NAME or all; shows a table and asks',
    options: ['output', 'dryrun', 'yes', 'group', 'order'],
    run: (session, _type, [selector = '', as, nodes = '']) => {
      if (as !== 'as') throw wrongUsage("usage: svcctl unknown adopt SELECTOR as 'node[001-050]'")
      return adopt(session, selector, nodes)
    }
  },
  scan: {
    operands: 'NETWORK --bmcsetup NAME',
    summary: 'ask the BMCs of a network for their machines, by Redfish, with the password of that BMC set-up',
    count: [1, 1],
    options: ['output', 'bmcsetup'],
    async run(session, _type, [network = '']) {
      const { bmcsetup: bmcsetupname } = session.options
      if (bmcsetupname === undefined)
        throw wrongUsage(`usage: svcctl unknown scan ${network || 'NETWORK'} --bmcsetup NAME`)
      const path = '/monitor/unknown/_scan'
      const asked = await session.controller.json('POST', path, {}, { network, bmcsetupname })
      const { lines, ...rest } = await awaitResult(session, asked)
      if (session.format === 'json') return session.json({ ...rest, lines: lines ?? [] })
      await session.lines((Array.isArray(lines) ? lines : []).map(line => clean(String(line))))
    }
  }
}

/** Creates nodes for unknown machines in one transaction (rules 4.37). Throws Failure 1 or 2. */
async function adopt(session: Session, selector: string, nodes: string): Promise<void> {
  const { controller, options, terminal } = session
  const { order = 'time' } = options
  const fields = orders[order]
  if (!fields) throw wrongUsage(`--order must be one of ${Object.keys(orders).join(', ')}, not ${order}`)
  const names = namesOf(nodes)
  const unknown = within(await controller.json('GET', '/monitor/unknown'), 'monitor', 'unknown')
  session.showWarnings()
  const all = Object.values(unknown).filter(isObject)
  const ordered = inOrder(selected(all, selector, names, session), fields)
  if (ordered.length === 0)
    throw refused(`${clean(selector)} selects no machine without a conflict; nothing was changed`)
  const machines = ordered.filter(machine => !names.includes(textOf(machine, 'node')))
  for (const [i, name] of names.entries())
    machines.splice(i, 0, ...ordered.filter(({ node }) => node === name))
  const unordered = machines.find(machine => textOf(machine, fields[0] as string) === '')
  if (unordered && order !== 'mac')
    throw refused(`--order ${order}: machine ${idOf(unordered)} has no ${order}; nothing was changed`)
  if (machines.length !== names.length)
    throw refused(
      `${clean(selector)} selects ${machines.length} machine${machines.length === 1 ? '' : 's'}, and ` +
        `${clean(nodes)} names ${countObjects('node', names.length)}: give as many names; nothing was changed`
    )
  const table = Buffer.from(tableOf(machines, names, options.group))
  const told = await dryRunOfTable(session, table)
  const there = objectsIn(told.changes).filter(({ type, action }) => type === 'node' && action === 'update')
  await refuseTaken(session, machines, names, there)
  if (options.dryrun) return importTable(session, table, '')
  if (!options.yes) {
    const old = dryRunLines({ ...told, changes: there, files: [] }, session.paint)
    terminal.err([...shownTable(machines, names), ...old, ''].join('\n'))
    const verb = there.length === 0 ? 'Create' : there.length < names.length ? 'Create or change' : 'Change'
    const what = names.length === 1 ? 'this node' : 'these nodes'
    await session.confirm(`${verb} ${what}?`, 'nothing was changed')
  }
  await importTable(session, table, 'adopted', told)
}

/** Expands the names of new nodes, in the order in which they are written. Throws Failure 2. */
function namesOf(nodes: string): string[] {
  const none = () => {
    throw wrongUsage(`${clean(nodes)}: new nodes have names such as node[001-050], and no group or pattern`)
  }
  try {
    return [...runSync(evaluate(nodes, none))]
  } catch (error) {
    throw error instanceof ServiceError ? wrongUsage(error.message) : error
  }
}

const idOf = (machine: JsonObject) => clean(textOf(machine, 'mac') || textOf(machine, 'bmc'))

const searched = ['mac', 'serial', 'uuid', 'asset', 'maker', 'product', 'bmc']

/**
 * Returns the machines that a selector names. One with a conflict is taken only by its MAC, so that nobody
 * names it by mistake, or as the node with its serial number. Throws Failure 1 for a word that selects none.
 */
function selected(
  all: readonly JsonObject[],
  selector: string,
  names: readonly string[],
  { terminal }: Session
): JsonObject[] {
  const found = new Set<JsonObject>()
  const left = new Set<JsonObject>()
  for (const word of selector.split(',').map(one => one.trim())) {
    const mac = parseMac(word)
    // A serial number of 12 digits reads like a MAC.
    const [itself] = all.filter(machine => mac !== undefined && machine.mac === mac)
    const hits = itself ? [itself] : all.filter(machine => isSelected(machine, word))
    if (word === '' || hits.length === 0)
      throw refused(`${clean(word) || 'an empty word'} selects no unknown machine; type: svcctl unknown list`)
    for (const hit of hits) {
      const isSure = hit.conflict === null || names.includes(textOf(hit, 'node'))
      ;(isSure || itself ? found : left).add(hit)
    }
  }
  for (const machine of left)
    if (!found.has(machine)) {
      const hint = textOf(machine, 'node') === '' ? '; name its MAC to take it' : ''
      terminal.err(`left out: ${idOf(machine)}: ${clean(textOf(machine, 'conflict'))}${hint}\n`)
    }
  return [...found]
}

function isSelected(machine: JsonObject, word: string): boolean {
  const [, network] = /^network=(.+)$/.exec(word) ?? []
  if (network !== undefined) return machine.network === network
  return (
    word === 'all' || searched.some(field => isLike(word.toLowerCase(), textOf(machine, field).toLowerCase()))
  )
}

const inOrder = (machines: readonly JsonObject[], fields: readonly string[]) =>
  [...machines].sort((a, b) => {
    for (const field of fields) {
      const order = textOf(a, field).localeCompare(textOf(b, field), 'en', { numeric: true })
      if (order !== 0) return order
    }
    return 0
  })

/** The table of the new nodes, as `svcctl import` takes it. */
function tableOf(machines: readonly JsonObject[], names: readonly string[], group: string | undefined) {
  const fields = {
    ...{ macaddr: 'mac', serial: 'serial', uuid: 'uuid', vendor: 'maker', assettag: 'asset' },
    'BMC.macaddress': 'bmc_mac'
  }
  const ofGroup = (text: string) => (group === undefined ? [] : [text])
  const rows = machines.map((machine, i) => [
    ...[names[i] ?? '', ...ofGroup(group ?? '')],
    ...Object.values(fields).map(field => textOf(machine, field))
  ])
  const head = ['name', ...ofGroup('group'), ...Object.keys(fields)]
  return [head, ...rows].map(row => `${row.map(csvCell).join(',')}\n`).join('')
}

/** The fields that say which machine a node is. */
const ofMachine = /^(?:serial|uuid|.*\.macaddress)$/
const bare = (value: unknown) =>
  String(value ?? '')
    .replace(/\s/g, '')
    .toLowerCase()

/** Throws Failure 1 for a node of these changes that has a machine, or another serial number, UUID or MAC. */
async function refuseTaken(
  { controller }: Session,
  machines: readonly JsonObject[],
  names: readonly string[],
  there: readonly JsonObject[]
): Promise<void> {
  if (there.length === 0) return
  const asked = { nodes: fold(there.map(({ name }) => String(name))), fields: 'macaddr' }
  const found = within(await controller.json('GET', '/config/node', asked), 'config', 'node')
  for (const [name, node] of Object.entries(found)) {
    const has = isObject(node) ? node.macaddr : null
    if (has !== null && has !== machines[names.indexOf(name)]?.mac)
      throw refused(`node ${name} has a machine already, ${String(has)}: nothing was changed`)
  }
  for (const { name, fields } of there)
    for (const { field, before, after } of objectsIn(fields))
      if (ofMachine.test(String(field)) && bare(before) !== '' && bare(before) !== bare(after))
        throw refused(
          clean(
            `node ${name} has ${field} ${before}, and the machine ${after}: name another node, or type ` +
              `svcctl node set ${name} ${field}= first; nothing was changed`
          )
        )
}

function* shownTable(machines: readonly JsonObject[], names: readonly string[]): Generator<string> {
  const columns = ['mac', 'serial', 'maker', 'product', 'address', 'bmc', 'switch', 'port'] as const
  const rows = machines.map((machine, i) => [
    names[i] ?? '',
    ...columns.map(field => clean(textOf(machine, field)) || '-')
  ])
  const all = [['node', ...columns], ...rows]
  const widths = all[0]?.map((_, i) => Math.max(...all.map(row => row[i]?.length ?? 0))) ?? []
  for (const row of all)
    yield row
      .map((text, i) => text.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()
}
