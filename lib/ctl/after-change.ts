import { isObject, type JsonObject, type JsonValue } from '../json.js'
import type { TypeName } from '../model/docs.js'
import { isNodeSet } from '../node-set/evaluate.js'
import { Failure } from './failure.js'
import { plain } from './render.js'
import type { Session } from './session.js'
import { clean } from './terminal.js'
import { pathOf } from './verb.js'

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

/**
 * The node of which it is asked after a change whether it can boot (rules 14.7): the node itself, or the first one of a set,
 * of a group or with an image. None where no field is set by which nodes boot. It is to be asked before the change, after
 * which a set may stand for others.
 */
export async function nodeOf(
  session: Session,
  type: TypeName,
  name: string,
  fields: JsonObject
): Promise<string | undefined> {
  if (!isTold(session) || !Object.keys(fields).some(field => ofBoot.has(field))) return undefined
  if (type === 'node') return isNodeSet(name) ? (await orNothing(session.nodes(name)))?.[0] : name
  if (type !== 'group' && type !== 'osimage') return undefined
  const answer = await orNothing(session.controller.json('GET', `${pathOf(type, name)}/_member`))
  const { members } = within(answer, 'config', type, name)
  return Array.isArray(members) && typeof members[0] === 'string' ? members[0] : undefined
}

/** The line that says why a node cannot boot; none where it can. */
export async function cannotBoot({ controller }: Session, node: string | undefined): Promise<string[]> {
  if (node === undefined) return []
  const path = `/monitor/node/${encodeURIComponent(node)}/_why`
  const answer = await orNothing(controller.json('GET', path))
  const { obstacle } = within(answer, 'monitor', 'why', node)
  return typeof obstacle === 'string' ? [clean(`warning: node ${node} cannot boot now: ${obstacle}`)] : []
}

function within(value: JsonValue | undefined, ...keys: readonly string[]): JsonObject {
  let found = value
  for (const key of keys) found = isObject(found) ? found[key] : undefined
  return isObject(found) ? found : {}
}

/** What changes on a node beside the fields that were given. `text` is of this node, `ofAll` of all where they differ. */
interface Along {
  readonly about: string
  readonly text: string
  readonly ofAll: string
}

/**
 * What goes and comes with another group: asked as a dry run, before the change is made (rules 14.7). Nothing where no
 * group was set.
 */
export async function withGroup(
  session: Session,
  path: string,
  body: JsonObject,
  fields: JsonObject
): Promise<string[]> {
  if (!isTold(session) || !Object.hasOwn(fields, 'group')) return []
  const answer = await orNothing(session.controller.json('POST', path, { dryrun: 'yes' }, body))
  const { count, first } = within(answer, 'nodes')
  const nodes = Array.isArray(first) ? first.filter(isObject) : []
  const all = nodes.map(node => alongOf(node, fields))
  const texts = new Map<string, { readonly along: Along; readonly texts: Set<string>; nodes: number }>()
  for (const along of all.flat()) {
    const same = texts.get(along.about) ?? { along, texts: new Set(), nodes: 0 }
    same.texts.add(along.text)
    same.nodes++
    texts.set(along.about, same)
  }
  if (texts.size === 0) return []
  const some =
    typeof count === 'number' && count > nodes.length ? ` (as on ${nodes.length} of ${count} nodes)` : ''
  const lead = fields.group === null ? 'without a group' : `with group ${plain(fields.group)}`
  return [
    clean(`${lead} these changed too${some}:`),
    ...[...texts.values()].map(({ along, texts, nodes: on }) => {
      const part = on < nodes.length ? ` (on ${on} of ${nodes.length} nodes)` : ''
      return clean(`  ${texts.size === 1 ? along.text : along.ofAll}${part}`)
    })
  ]
}

function alongOf({ fields }: JsonObject, given: JsonObject): Along[] {
  const differences = Array.isArray(fields) ? fields.filter(isObject) : []
  const along: Along[] = []
  // Those that come or go are told as a whole.
  const whole = new Map<string, { readonly is: 'gone' | 'new'; readonly values: string[] }>()
  for (const { field, before, after } of differences) {
    const [, name] = /^(.+)\.network$/.exec(plain(field)) ?? []
    if (name === undefined || (before !== null && after !== null)) continue
    whole.set(name, { is: after === null ? 'gone' : 'new', values: [] })
  }
  for (const { field, before, after } of differences) {
    const name = plain(field)
    const dot = name.lastIndexOf('.')
    const entry = whole.get(name.slice(0, Math.max(dot, 0)))
    const value = before === null ? after : before
    if (entry) entry.values.push(`${name.slice(dot + 1)} ${plain(value)}`)
    // The files of an image go with its name.
    else if (!Object.hasOwn(given, name) && !name.startsWith('osimage.'))
      along.push({
        about: name,
        text: `${name}: ${plain(before)} -> ${plain(after)}`,
        ofAll: `${name}: another value on each node`
      })
  }
  for (const [name, { is, values }] of whole) {
    const ofAll = `interface ${name} is ${is}`
    along.push({ about: `${is} ${name}`, text: `${ofAll}: ${values.join(', ')}`, ofAll })
  }
  return along
}
