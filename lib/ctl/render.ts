import { isObject, type JsonObject, type JsonValue, objectsIn, strictUtf8, within } from '../base/json.js'
import { addTo, groupBy } from '../base/lists.js'
import type { TypeName } from '../model/docs.js'
import { base64, type Table } from '../model/field.js'
import { describeObject, objectTypes, participles } from '../model/types.js'
import { isNodeSet } from '../node-set/evaluate.js'
import { fold } from '../node-set/hostlist.js'
import { pathOf, type Session } from './session.js'
import { clean, cleanLines, Failure, type Paint } from './terminal.js'

/** Yields a line for each field, with its source where known. The lines are safe to show. */
export function* objectLines(table: Table, object: JsonObject, paint: Paint): Generator<string> {
  const { interfaces, ...fields } = object
  // The source of a field is shown behind its value; `_source` is that of an OS image.
  const shown = Object.entries(fields).filter(([key]) => key === '_source' || !key.endsWith('_source'))
  const width = shown.reduce((most, [key]) => Math.max(most, clean(key).length), 0)
  for (const [key, value] of shown) {
    const label = clean(key)
    const lead = `${paint('bold', label)}${' '.repeat(width - label.length)}  `
    const text = shownValue(table, key, value)
    const source = fields[`_${key.replace(/^_/, '')}_source`]
    const from = typeof source === 'string' ? ` ${paint('dim', `(${clean(source)})`)}` : ''
    if (text.includes('\n')) {
      yield `${lead}${from.trim()}`.trimEnd()
      yield* indented(text)
    } else if (isObject(value)) {
      const sources = isObject(source) ? source : {}
      if (Object.keys(value).length === 0) yield `${lead}-`
      else yield lead.trimEnd()
      for (const [name, one] of Object.entries(value)) {
        const who = sources[name]
        const told = typeof who === 'string' ? ` ${paint('dim', `(${clean(who)})`)}` : ''
        yield `    ${clean(name)} = ${clean(formatted(one))}${told}`
      }
    } else yield `${lead}${clean(text)}${from}`
  }
  for (const { interface: name, ...rest } of objectsIn(interfaces)) {
    const told = Object.entries(rest).filter(([, value]) => value !== null && value !== '')
    yield `${paint('bold', clean(formatted(name)))}  ` +
      `${told.map(([key, value]) => `${clean(key)}=${clean(formatted(value))}`).join('  ')}`
  }
}

function* indented(text: string): Generator<string> {
  for (const line of text.replace(/\n$/, '').split('\n')) yield `    ${clean(line)}`
}

const tableOf = (type: string): Table =>
  Object.hasOwn(objectTypes, type) ? objectTypes[type as TypeName].fields : []

/** Decodes scripts, which are stored in base64. */
function shownValue(table: Table, key: string, value: JsonValue): string {
  const isScript = table.some(({ name, type }) => name === key && type === base64)
  const text = formatted(value)
  return isScript && typeof value === 'string' && value !== ''
    ? (strictUtf8(Buffer.from(value, 'base64')) ?? text)
    : text
}

function formatted(value: JsonValue | undefined): string {
  if (value === null || value === undefined || value === '') return '-'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (Array.isArray(value) && value.every(one => typeof one !== 'object')) return value.join(',') || '-'
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

interface PlannedChange {
  readonly type: string
  readonly name: string
  readonly be: string
  readonly fields: readonly string[]
}

const byField = (change: JsonObject, side: 'before' | 'after') =>
  new Map(objectsIn(change.fields).map(one => [formatted(one.field), formatted(one[side])]))

/** Describes the change of one object. A new or deleted object has one value per field. */
function plannedChangeOf(change: JsonObject): PlannedChange {
  const [type, name, action] = [formatted(change.type), formatted(change.name), formatted(change.action)]
  const side = action === 'create' ? 'after' : action === 'delete' ? 'before' : undefined
  const fields = objectsIn(change.fields).flatMap(one => {
    const field = formatted(one.field)
    // The interfaces of a new node without a group are its own in any case.
    if (action === 'create' && /\.own$/.test(field)) return []
    const text = (of: 'before' | 'after') => shownValue(tableOf(type), field, one[of] ?? null)
    const [before, after] = [text('before'), text('after')]
    if (/\n/.test(before + after)) return [`${field}:`, ...lineChanges(before, after)].join('\n')
    return side && type !== 'cluster' ? `${field}: ${text(side)}` : `${field}: ${before} -> ${after}`
  })
  return { type, name, be: type === 'cluster' ? 'changed' : (participles[action] ?? action), fields }
}

/** Lists removed and added lines of a longer text; blank lines are omitted. */
const lineChanges = (before: string, after: string) =>
  [['-', before, after] as const, ['+', after, before] as const].flatMap(([sign, text, other]) => {
    const unchanged = new Set([...other.split('\n'), '-', ''])
    return text.split('\n').flatMap(line => (unchanged.has(line) ? [] : [`  ${sign} ${line}`]))
  })

/** Describes a rename, which the controller reports as a delete and a create. */
function renameOf(gone: JsonObject, made: JsonObject): PlannedChange {
  const [before, after] = [byField(gone, 'before'), byField(made, 'after')]
  const fields = [...new Set([...before.keys(), ...after.keys()])]
    .filter(field => before.get(field) !== after.get(field))
    .map(field => `${field}: ${before.get(field) ?? '-'} -> ${after.get(field) ?? '-'}`)
  return {
    type: formatted(gone.type),
    name: formatted(gone.name),
    be: `renamed to ${formatted(made.name)}`,
    fields
  }
}

/** Yields each changed object once, with the two halves of a rename joined. */
function* plannedChanges(changes: readonly JsonObject[]): Generator<PlannedChange> {
  const of = (type: JsonValue | undefined, action: string) =>
    changes.filter(change => change.type === type && change.action === action)
  const types = new Map(
    [...new Set(changes.map(({ type }) => type))].map(type => {
      const [made, gone] = [of(type, 'create'), of(type, 'delete')]
      return [type, made.length > 0 && made.length === gone.length ? { made, gone } : undefined]
    })
  )
  for (const change of changes) {
    const renamed = change.action === 'update' ? undefined : types.get(change.type)
    const at = renamed?.made.indexOf(change) ?? -1
    if (!renamed) yield plannedChangeOf(change)
    // Secrets follow their renamed owner.
    else if (at >= 0 && change.type !== 'secrets') yield renameOf(renamed.gone[at] as JsonObject, change)
  }
}

const isMove = ({ type, action, fields }: JsonObject) =>
  type === 'node' && action === 'update' && objectsIn(fields).some(({ field }) => field === 'group')

/** Adds the values that come and go with a node's other group, if it is one of `first` (rules 14.7). */
function withInherited(change: JsonObject, first: JsonValue | undefined): JsonObject {
  if (!isMove(change)) return change
  const own = objectsIn(change.fields)
  const names = new Set(own.map(({ field }) => field))
  const all = objectsIn(objectsIn(first).find(({ name }) => name === change.name)?.fields)
  // Values of an image are shown by its name, and derived ones by what they come from.
  const isShown = (field: string) => field === '_kerneloptions' || !/^(_|osimage\.)/.test(field)
  const more = all.filter(({ field = '' }) => !names.has(field) && isShown(String(field)))
  return { ...change, fields: [...own, ...more] }
}

/** Yields the lines of a dry run. Nodes with the same change are folded. */
export function* dryRunLines(answer: JsonObject, paint: Paint): Generator<string> {
  const { message, changes, files } = answer
  yield clean(formatted(message))
  const { first } = within(answer, 'nodes')
  const whole = objectsIn(changes).map(change => withInherited(change, first))
  // A new address differs from node to node, so such nodes are not folded.
  const alike = groupBy(plannedChanges(whole), ({ type, name, be, fields }) =>
    JSON.stringify([type === 'node' ? type : [type, name], be, fields])
  )
  for (const those of alike.values()) {
    const [{ type, be, fields }] = those
    const names = those.map(({ name }) => name)
    const who = names.length > 1 ? `nodes ${fold(names)}` : describeObject(type, names[0] ?? '')
    yield paint('bold', clean(`${who} would be ${be}${fields.length > 0 ? ':' : ''}`))
    for (const line of fields.flatMap(field => field.split('\n'))) yield `  ${clean(line)}`
  }
  const moved = whole.filter(isMove)
  const looked = objectsIn(first).length
  if (moved.length > looked)
    yield `values that come and go with the group are shown for the first ${looked} of ${moved.length} nodes`
  for (const { service, path, diff, problem } of objectsIn(files)) {
    if (typeof problem === 'string') {
      yield paint('bold', clean(`${formatted(service)}: its files could not be made: ${problem}`))
      continue
    }
    yield paint('bold', clean(`${formatted(service)}: the file ${formatted(path)} would change:`))
    for (const line of formatted(diff).replace(/\n$/, '').split('\n')) {
      const colour = line.startsWith('+') ? 'green' : line.startsWith('-') ? 'red' : undefined
      yield `  ${colour ? paint(colour, clean(line)) : clean(line)}`
    }
  }
}

/** Yields the boots of a node and their steps. */
export function* bootLines(node: string, told: JsonValue | undefined, paint: Paint): Generator<string> {
  const { boots, elsewhere } = within(told)
  const step = (one: JsonObject) => {
    const { step: what, about, from, time, count, end, bytes } = one
    const parts = [time, what, about, end, typeof bytes === 'number' ? `${bytes} bytes` : null]
    const often = typeof count === 'number' && count > 1 ? [`${count} times`] : []
    const words = [...parts.filter(part => (part ?? '') !== '').map(formatted), ...often]
    return clean(`  ${words.join('  ')}${(from ?? '') === '' ? '' : `  from ${formatted(from)}`}`)
  }
  if (objectsIn(boots).length === 0) yield `node ${clean(node)}: no boot was seen`
  for (const { began, from, steps, omitted } of objectsIn(boots)) {
    yield paint('bold', clean(`node ${node}: boot of ${formatted(began)} from ${formatted(from)}`))
    for (const one of objectsIn(steps)) yield step(one)
    if (typeof omitted === 'number' && omitted > 0) yield `  and ${omitted} more steps`
  }
  if (objectsIn(elsewhere).length > 0)
    yield paint('bold', clean(`node ${node}: from addresses that are not its own`))
  for (const one of objectsIn(elsewhere)) yield step(one)
}

/** Replaces the node's name and addresses, so that equal outcomes of many nodes can be folded. */
const withoutName = (message: string, node: string) =>
  message
    .replace(/(?:\bnode )?([\w-]+(?:\.[\w-]+)*)/g, (text, word) => (word === node ? 'the node' : text))
    // Commands to type keep a placeholder.
    .replace('svcctl node set the node ', 'svcctl node set NODE ')
    .replace(/\b\d+(?:\.\d+){3}\b|\b[\da-f]*:[\da-f:]*:[\da-f]*\b/gi, 'ADDRESS')
    .replace(/^failed: ADDRESS: /, 'failed: ')

/** Yields the outcome of each node, equal ones folded. A log of several lines is not folded. */
export function* outcomeLines(
  outcomes: ReadonlyMap<string, { readonly failed: boolean; readonly message: string }>,
  paint: Paint
): Generator<string> {
  const all = [...outcomes].map(([node, { failed, message }]) => {
    const text = `${failed ? 'failed: ' : ''}${message}`
    return { node, text, gist: failed ? withoutName(text, node) : text }
  })
  for (const [gist, those] of groupBy(all, one => one.gist)) {
    const text = those.every(one => one.text === those[0].text) ? those[0].text : gist
    const colour = text.startsWith('failed: ') ? 'red' : 'bold'
    const lead = paint(colour, clean(fold(those.map(({ node }) => node))))
    if (text.trimEnd().includes('\n')) {
      yield `${lead}:`
      yield* indented(cleanLines(text))
    } else yield `${lead}: ${clean(text.trimEnd())}`
  }
}

/** Formats an entry of the audit log on one line. */
export function auditLine(line: JsonObject): string {
  const { time, who, from, action, type, name, names, before, after, counts } = line
  const [was, is] = [within(before), within(after)]
  const fields = [...new Set([...Object.keys(was), ...Object.keys(is)])].filter(key => key !== 'name')
  const value = (key: string) => {
    const text = (of: JsonObject) => shownValue(tableOf(String(type)), key, of[key] ?? null)
    const [first, last] = [text(was), text(is)].map(one => one.slice(0, mostCharacters))
    return `${key}: ${key in was ? `${first} -> ` : ''}${last}`
  }
  const told = [...fields.map(value), ...(counts === undefined ? [] : [JSON.stringify(counts)])].join(', ')
  return clean([time, who, from, action, type, names ?? name, told].filter(Boolean).join('  '))
}

/** The fields that decide how a node boots. */
const ofBoot: ReadonlySet<string> = new Set([
  ...['group', 'osimage', 'osimagetag', 'netboot', 'provision_interface', 'interfaces'],
  ...['kernelfile', 'initrdfile', 'imagefile', 'provision_method']
])

/** Whether a person sees the answer. A dry run already tells everything. */
const isTold = ({ format, options }: Session) => format === 'text' && !options.dryrun

/** Ignores a failed query: it must not stop the change. */
const ignoringFailure = <T>(asked: Promise<T>): Promise<T | undefined> =>
  asked.catch(error => {
    if (error instanceof Failure) return undefined
    throw error
  })

/** Nodes of a set that are compared. */
const mostNodes = 20
/** Characters of a value that is shown. */
const mostCharacters = 100

/**
 * Reads the affected nodes before a change; the returned function reads them again after it (rules 14.7). It
 * returns which values another group changed, and which nodes cannot boot. The lines are safe to show.
 */
export async function watchNodes(
  session: Session,
  type: TypeName,
  name: string,
  fields: JsonObject,
  isNew = false
): Promise<() => Promise<string[]>> {
  const isOfBoot = (isNew && type === 'node') || Object.keys(fields).some(field => ofBoot.has(field))
  if (!isTold(session) || !isOfBoot) return async () => []
  // After the change the set may contain other nodes.
  const nodes = await nodesOf(session, type, name)
  const moves = type === 'node' && !isNew && Object.hasOwn(fields, 'group')
  const first = moves ? nodes.slice(0, mostNodes) : []
  const before = await statesOf(session, first)
  const newName = objectTypes.node.newName.map(key => fields[key]).find(value => typeof value === 'string')
  const now = (node: string) => (type === 'node' && typeof newName === 'string' ? newName : node)
  return async () => {
    const after = await statesOf(session, first.map(now))
    const pairs = first.flatMap(node => {
      const [was, is] = [before.get(node), after.get(now(node))]
      return was && is ? [[was, is] as const] : []
    })
    const lines = await cannotBoot(session, nodes.slice(0, mostNodes).map(now), nodes.length)
    return [...sideEffectLines(pairs, nodes.length, fields), ...lines]
  }
}

/** Returns the nodes that a change of an object affects. */
async function nodesOf(session: Session, type: TypeName, name: string): Promise<readonly string[]> {
  if (type === 'node') return isNodeSet(name) ? ((await ignoringFailure(session.nodes(name))) ?? []) : [name]
  if (type !== 'group' && type !== 'osimage') return []
  const answer = await ignoringFailure(session.controller.json('GET', `${pathOf(type, name)}/_member`))
  const { members } = within(answer, 'config', type, name)
  return Array.isArray(members) ? members.filter(node => typeof node === 'string') : []
}

/** Returns a warning for each reason why nodes cannot boot; `nodes` are the first of `count`. */
async function cannotBoot({ controller }: Session, nodes: readonly string[], count: number) {
  const stopped = new Map<string, { readonly node: string; readonly obstacle: string }[]>()
  for (const node of nodes) {
    const path = `/monitor/node/${encodeURIComponent(node)}/_why`
    const answer = await ignoringFailure(controller.json('GET', path))
    const { obstacle } = within(answer, 'monitor', 'why', node)
    if (typeof obstacle !== 'string') continue
    addTo(stopped, obstacle.replace(`node ${node} has `, 'they have '), { node, obstacle })
  }
  const looked = count > nodes.length ? ` (of the first ${nodes.length} of ${count})` : ''
  return [...stopped].map(([ofMany, those]) => {
    const [one, ...others] = those
    const obstacle = one && others.length === 0 ? one.obstacle : ofMany
    // A packed image already warns of what it lacks; packing again would not help.
    const [, image] = /^OS image (\S+) has no [^:]*$/.exec(obstacle) ?? []
    const wayOut = image === undefined ? '' : `; type: svcctl osimage pack ${image}`
    const who = `${others.length === 0 ? 'node' : 'nodes'} ${fold(those.map(({ node }) => node))}${looked}`
    return clean(`warning: ${who} cannot boot now: ${obstacle}${wayOut}`)
  })
}

type Values = ReadonlyMap<string, JsonValue>

interface State {
  readonly fields: Values
  readonly interfaces: ReadonlyMap<string, Values>
}

/** Reads the nodes; returns none if one of them does not exist. */
async function statesOf({ controller }: Session, names: readonly string[]): Promise<Map<string, State>> {
  if (names.length === 0) return new Map()
  const nodes = await ignoringFailure(controller.json('GET', '/config/node', { nodes: names.join(',') }))
  // A node's answer lacks the files of its group.
  const groups = await ignoringFailure(controller.json('GET', '/config/group', { fields: 'files' }))
  return new Map(
    Object.entries(within(nodes, 'config', 'node')).flatMap(([name, node]) => {
      if (!isObject(node)) return []
      const ofGroup = within(groups, 'config', 'group', formatted(node.group)).files
      return [[name, stateOf({ ...node, files: [...entries(ofGroup), ...entries(node.files)] })]]
    })
  )
}

const entries = (value: JsonValue | undefined) => (Array.isArray(value) ? value : [])

/** Fields that change by themselves, or are shown elsewhere. */
const ignoredFields = ['name', 'status', 'macaddr', '_override', '_running', '_stale']

/** Splits a node, or the body of a change, into its values. */
function stateOf(node: JsonObject): State {
  const { interfaces, variables, ...rest } = node
  const isShown = (key: string) => !ignoredFields.includes(key) && !key.endsWith('_source')
  const fields = Object.entries(rest)
    .filter(([key]) => isShown(key))
    .map(([key, value]): [string, JsonValue] => [key, shownValue(objectTypes.node.fields, key, value)])
  const ofVariables = Object.entries(within(variables)).map(([key, value]): [string, JsonValue] => [
    `variables.${key}`,
    value
  ])
  const ofInterfaces = objectsIn(interfaces).map(
    ({ interface: name, ...values }) => [formatted(name), new Map(Object.entries(values))] as const
  )
  return { fields: new Map([...fields, ...ofVariables]), interfaces: new Map(ofInterfaces) }
}

/** A side effect of a change of the group. `text` is of this node; `ofAll` is used if nodes differ. */
interface SideEffect {
  readonly about: string
  readonly text: string
  readonly ofAll: string
}

/** Compares nodes before and after a change of their group. `count`: all nodes that changed. */
function sideEffectLines(
  nodes: readonly (readonly [was: State, is: State])[],
  count: number,
  given: JsonObject
): string[] {
  const all = nodes.flatMap(([was, is]) => sideEffectsOf(was, is, stateOf(given)))
  if (all.length === 0) return []
  const some = count > nodes.length ? ` (on the first ${nodes.length} of ${count} nodes)` : ''
  const lead = given.group === null ? 'Without a group' : `With group ${formatted(given.group)}`
  return [
    clean(`${lead}, these changed too${some}:`),
    ...[...groupBy(all, ({ about }) => about).values()].map(those => {
      const [{ text, ofAll }] = those
      const part = those.length < nodes.length ? ` (on ${those.length} of ${nodes.length} nodes)` : ''
      return clean(`  ${those.every(one => one.text === text) ? text : ofAll}${part}`)
    })
  ]
}

function sideEffectsOf(was: State, is: State, given: State): SideEffect[] {
  const along = changedValues(was.fields, is.fields, given.fields, '')
  const names = new Set([...was.interfaces.keys(), ...is.interfaces.keys()])
  const whole: SideEffect[] = []
  for (const name of names) {
    const [before, after] = [was.interfaces.get(name), is.interfaces.get(name)]
    if (before && after) {
      along.push(...changedValues(before, after, given.interfaces.get(name) ?? new Map(), `${name}.`))
      continue
    }
    const ofAll = `interface ${name} is ${after ? 'new' : 'gone'}`
    const values = [...(after ?? before ?? [])].flatMap(([key, value]) =>
      formatted(value) === '-' ? [] : [`${key} ${formatted(value)}`]
    )
    whole.push({ about: ofAll, text: `${ofAll}: ${values.join(', ')}`, ofAll })
  }
  return [...along, ...whole]
}

/** Returns the changed values that were not given; `lead` is put before their names. */
function changedValues(was: Values, is: Values, given: Values, lead: string): SideEffect[] {
  return [...new Set([...was.keys(), ...is.keys()])].flatMap(key => {
    const [before, after] = [formatted(was.get(key)), formatted(is.get(key))]
    if (before === after || given.has(key)) return []
    const about = `${lead}${key}`
    const isLong = Math.max(before.length, after.length) > mostCharacters || /\n/.test(before + after)
    const text = isLong ? `${about}: another value` : `${about}: ${before} -> ${after}`
    return [{ about, text, ofAll: `${about}: another value on each node` }]
  })
}
