import { isObject, type JsonObject, type JsonValue } from '../json.js'
import type { TypeName } from '../model/docs.js'
import { objectTypes } from '../model/types.js'
import { isNodeSet } from '../node-set/evaluate.js'
import { fold } from '../node-set/fold.js'
import { plain } from './render.js'
import { pathOf, type Session } from './session.js'
import { clean, Failure } from './terminal.js'

/** The fields by which nodes boot, or do not. */
const ofBoot: ReadonlySet<string> = new Set([
  ...['group', 'osimage', 'osimagetag', 'netboot', 'provision_interface', 'interfaces'],
  ...['kernelfile', 'initrdfile', 'imagefile']
])

/** Whether the answer has to be told of: a program reads what the controller answers, and a dry run tells it all. */
const isTold = ({ format, options }: Session) => format === 'text' && !options.dryrun

/** What is only told beside a change stops nothing: the change itself tells what is wrong. */
async function orNothing<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked
  } catch (error) {
    if (error instanceof Failure) return undefined
    throw error
  }
}

/** So many nodes of a set are looked at. */
const mostNodes = 20
/** Characters of a value that is told. */
const mostCharacters = 100

/**
 * Looks at the nodes that a change will be told of (rules 14.7), and gives what looks again after the change: it tells what
 * went and came with another group, and which nodes cannot boot. The lines are safe to show. `isNew`: the change creates it.
 */
export async function watched(
  session: Session,
  type: TypeName,
  name: string,
  fields: JsonObject,
  isNew = false
): Promise<() => Promise<string[]>> {
  const isOfBoot = (isNew && type === 'node') || Object.keys(fields).some(field => ofBoot.has(field))
  if (!isTold(session) || !isOfBoot) return async () => []
  // After the change a set may stand for others.
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
    return [...withGroup(pairs, nodes.length, fields), ...lines]
  }
}

/** The nodes that a change of an object is told of: itself, those of a set, of a group, or with an image. */
async function nodesOf(session: Session, type: TypeName, name: string): Promise<readonly string[]> {
  if (type === 'node') return isNodeSet(name) ? ((await orNothing(session.nodes(name))) ?? []) : [name]
  if (type !== 'group' && type !== 'osimage') return []
  const answer = await orNothing(session.controller.json('GET', `${pathOf(type, name)}/_member`))
  const { members } = within(answer, 'config', type, name)
  return Array.isArray(members) ? members.filter(node => typeof node === 'string') : []
}

/** The lines that say which nodes cannot boot, and why; none where all can. `count`: how many there are beside these. */
async function cannotBoot(
  { controller }: Session,
  nodes: readonly string[],
  count: number
): Promise<string[]> {
  const stopped = new Map<string, { readonly names: string[]; readonly ofOne: string }>()
  for (const node of nodes) {
    const path = `/monitor/node/${encodeURIComponent(node)}/_why`
    const answer = await orNothing(controller.json('GET', path))
    const { obstacle } = within(answer, 'monitor', 'why', node)
    if (typeof obstacle !== 'string') continue
    const ofMany = obstacle.replace(`node ${node} has `, 'they have ')
    const same = stopped.get(ofMany) ?? { names: [], ofOne: obstacle }
    same.names.push(node)
    stopped.set(ofMany, same)
  }
  const looked = count > nodes.length ? ` (of the first ${nodes.length} of ${count})` : ''
  return [...stopped].map(([ofMany, { names, ofOne }]) => {
    const obstacle = names.length === 1 ? ofOne : ofMany
    // An image that is packed says what it lacks: to pack it once more would not help.
    const [, image] = /^OS image (\S+) has no /.exec(obstacle) ?? []
    const wayOut = image === undefined ? '' : `; type: svcctl osimage pack ${image}`
    const who = `${names.length === 1 ? 'node' : 'nodes'} ${fold(names)}${looked}`
    return clean(`warning: ${who} cannot boot now: ${obstacle}${wayOut}`)
  })
}

function within(value: JsonValue | undefined, ...keys: readonly string[]): JsonObject {
  let found = value
  for (const key of keys) found = isObject(found) ? found[key] : undefined
  return isObject(found) ? found : {}
}

type Values = ReadonlyMap<string, JsonValue>

/** What is in force for a node. */
interface State {
  readonly fields: Values
  readonly interfaces: ReadonlyMap<string, Values>
}

/** The nodes as they are now; none where one of them is not there. */
async function statesOf({ controller }: Session, names: readonly string[]): Promise<Map<string, State>> {
  if (names.length === 0) return new Map()
  const nodes = await orNothing(controller.json('GET', '/config/node', { nodes: names.join(',') }))
  // A node shows its own files alone.
  const groups = await orNothing(controller.json('GET', '/config/group', { fields: 'files' }))
  return new Map(
    Object.entries(within(nodes, 'config', 'node')).flatMap(([name, node]) => {
      if (!isObject(node)) return []
      const ofGroup = within(groups, 'config', 'group', plain(node.group)).files
      return [[name, stateOf({ ...node, files: [...entries(ofGroup), ...entries(node.files)] })]]
    })
  )
}

const entries = (value: JsonValue | undefined) => (Array.isArray(value) ? value : [])

/** What changes by itself is left out, and what is told elsewhere: who sets a value, the MAC of an interface. */
const untold: ReadonlySet<string> = new Set(['name', 'status', 'macaddr', '_override', '_running', '_stale'])

/** A node, or what is to be set of one. */
function stateOf(node: JsonObject): State {
  const { interfaces, variables, ...rest } = node
  const isShown = (key: string) => !untold.has(key) && !key.endsWith('_source')
  const fields = Object.entries(rest).filter(([key]) => isShown(key))
  for (const [key, value] of Object.entries(isObject(variables) ? variables : {}))
    fields.push([`variables.${key}`, value])
  return {
    fields: new Map(fields),
    interfaces: new Map(
      entries(interfaces)
        .filter(isObject)
        .map(({ interface: name, ...values }) => [plain(name), new Map(Object.entries(values))])
    )
  }
}

/** What changed on a node beside the fields that were given. `text` is of this node, `ofAll` of all where they differ. */
interface Along {
  readonly about: string
  readonly text: string
  readonly ofAll: string
}

/** What went and came with another group, on nodes before and after it; `count`: how many nodes got it. */
function withGroup(
  nodes: readonly (readonly [was: State, is: State])[],
  count: number,
  given: JsonObject
): string[] {
  const texts = new Map<string, { readonly along: Along; readonly texts: Set<string>; nodes: number }>()
  for (const along of nodes.flatMap(([was, is]) => alongOf(was, is, stateOf(given)))) {
    const same = texts.get(along.about) ?? { along, texts: new Set(), nodes: 0 }
    same.texts.add(along.text)
    same.nodes++
    texts.set(along.about, same)
  }
  if (texts.size === 0) return []
  const some = count > nodes.length ? ` (on the first ${nodes.length} of ${count} nodes)` : ''
  const lead = given.group === null ? 'Without a group' : `With group ${plain(given.group)}`
  return [
    clean(`${lead}, these changed too${some}:`),
    ...[...texts.values()].map(({ along, texts, nodes: on }) => {
      const part = on < nodes.length ? ` (on ${on} of ${nodes.length} nodes)` : ''
      return clean(`  ${texts.size === 1 ? along.text : along.ofAll}${part}`)
    })
  ]
}

function alongOf(was: State, is: State, given: State): Along[] {
  const along = changedValues(was.fields, is.fields, given.fields, '')
  const names = new Set([...was.interfaces.keys(), ...is.interfaces.keys()])
  for (const name of names) {
    const [before, after] = [was.interfaces.get(name), is.interfaces.get(name)]
    if (before && after)
      along.push(...changedValues(before, after, given.interfaces.get(name) ?? new Map(), `${name}.`))
  }
  // Those that come or go are told as a whole, behind the others.
  for (const name of names) {
    const [before, after] = [was.interfaces.get(name), is.interfaces.get(name)]
    if (before && after) continue
    const ofAll = `interface ${name} is ${after ? 'new' : 'gone'}`
    const values = [...(after ?? before ?? [])].flatMap(([key, value]) =>
      plain(value) === '-' ? [] : [`${key} ${plain(value)}`]
    )
    along.push({ about: ofAll, text: `${ofAll}: ${values.join(', ')}`, ofAll })
  }
  return along
}

/** The values that differ and were not given; `lead` stands before their names. */
function changedValues(was: Values, is: Values, given: Values, lead: string): Along[] {
  return [...new Set([...was.keys(), ...is.keys()])].flatMap(key => {
    const [before, after] = [plain(was.get(key)), plain(is.get(key))]
    if (before === after || given.has(key)) return []
    const about = `${lead}${key}`
    const isLong = Math.max(before.length, after.length) > mostCharacters
    const text = isLong ? `${about}: another value` : `${about}: ${before} -> ${after}`
    return [{ about, text, ofAll: `${about}: another value on each node` }]
  })
}
