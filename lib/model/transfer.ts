import { inTurns } from '../concurrency.js'
import { badRequest, notFound, type ServiceError } from '../errors.js'
import { isObject, type JsonObject, type JsonValue } from '../json.js'
import { FieldError } from '../store/errors.js'
import { compareNames } from '../store/order.js'
import type { Change } from '../store/types.js'
import type { Docs, TypeName } from './docs.js'
import { feltBy } from './felt.js'
import { hidden, objectName, type Table } from './field.js'
import { badRescue } from './lengths.js'
import { marked } from './mark.js'
import { type Actor, type Model, removeObjects } from './model.js'
import type { Changing } from './object-type.js'
import { checkingState } from './rules.js'
import { putSecrets, readSecrets, type SecretOwner, secretsKey, secretsOf, shownSecrets } from './secrets.js'
import { putSettings, readSettings, type SettingName, settingNames, settingsInForce } from './settings.js'
import { readStored } from './stored.js'
import { fieldFor, readTable, storedFields } from './table.js'
import { allTags, tagKey, untagged } from './tags.js'
import { type OsimagetagDoc, tagFields, treeProblems } from './types/osimage.js'
import { attachedTypes, kinds, objectTypes, sealedKinds, typeNames } from './types.js'
import type { VariableMap } from './variables.js'

/** In the order they are written. */
const sections: readonly string[] = ['cluster', ...typeNames, 'osimagetag', 'secrets']
const owners = ['group', 'node'] as const
const mostProblems = 50
/** An export comes in parts of about so many characters. */
const PART_CHARACTERS = 16_384
const isMasked = "is masked: only an admin's export can be imported"

/**
 * Everything an admin has configured, as one document of stored values (rules 3.11), in
 * parts of JSON text: names in natural order, keys in table order, so that equal states give equal bytes, and each object on a
 * line of its own, for diff. All of it is of
 * the moment of the call, however long it takes to read; it can be read several times. Throws 503 for a secret that cannot
 * be decrypted.
 */
export function exportText(model: Model, masked: boolean): Iterable<string> {
  const { view, box } = model
  const { variables } = model.cluster
  const hasVariables = Object.keys(variables).length > 0
  const settings = Object.fromEntries(settingNames.map(name => [name, model.cluster[name]]))
  const cluster = JSON.stringify(hasVariables ? { ...settings, variables } : settings)
  // Objects are never changed, only replaced: a list of them is the whole state.
  const objects = typeNames.map(type => [type, view.names(type).map(name => view.get(type, name))] as const)
  const tags = allTags(view)
  const secrets = view.names('secrets').map(key => [key, view.get('secrets', key)?.secrets] as const)
  return {
    *[Symbol.iterator]() {
      yield `{"config":{\n"cluster":${cluster}`
      for (const [type, docs] of objects) {
        yield `,\n"${type}":`
        yield* map(docs, doc => doc && [doc.name, stored(type, doc, masked)])
      }
      yield ',\n"osimagetag":'
      yield* map(tags, ([key, tag]) => [key, tagEntry(tag)])
      yield ',\n"secrets":{'
      for (const [i, owner] of owners.entries()) {
        yield `${i > 0 ? ',' : ''}\n"${owner}":`
        const before = secretsKey(owner, '')
        // Not by the owners: to look for those of each of very many nodes takes long, and comes to no piece.
        yield* map(secrets, ([key, held]) => {
          if (!held || !key.startsWith(before)) return undefined
          const name = key.slice(before.length)
          return [name, shownSecrets(held, box, `${owner} ${name}`, masked)]
        })
      }
      yield '\n}\n}}\n'
    }
  }
}

/** Throws 503 for a secret that cannot be decrypted. */
export function* checkingSecrets({ view, box }: Model): Generator<void> {
  for (const owner of owners)
    for (const name of [...view.names(owner)]) {
      yield
      secretsOf(view, box, owner, name, false)
    }
}

/** The entries of a map, each on a line of its own, in pieces; nothing for what is undefined. */
function* map<V>(
  values: readonly V[],
  entry: (value: V) => readonly [name: string, value: unknown] | undefined
): Generator<string> {
  let part = '{'
  let separator = ''
  for (const value of values) {
    const [name, made] = entry(value) ?? []
    if (name === undefined) continue
    part += `${separator}\n${JSON.stringify(name)}:${JSON.stringify(made)}`
    separator = ','
    if (part.length < PART_CHARACTERS) continue
    yield part
    part = ''
  }
  yield separator === '' ? `${part}}` : `${part}\n}`
}

function stored<K extends TypeName>(type: K, doc: Docs[K], masked: boolean): object {
  const fields: Record<string, unknown> = kinds[type].fieldsOf(doc)
  for (const field of objectTypes[type].fields)
    if (field.secret && masked && fields[field.name] !== undefined) fields[field.name] = hidden
  return fields
}

const tagEntry = ({ tag, osimage, kernelfile, initrdfile, imagefile, kerneloptions }: OsimagetagDoc) => ({
  ...{ name: tag, osimage, kernelfile, initrdfile, imagefile, kerneloptions }
})

/** What an import found wrong: all of it is told, up to a bound, each with its path in the document. */
class Problems {
  readonly #found: string[] = []

  add(path: readonly (string | number)[], message: string): void {
    if (this.#found.length < mostProblems) this.#found.push(`${path.join('.')}: ${message}`)
  }

  get count(): number {
    return this.#found.length
  }

  throwAs(make: (message: string) => ServiceError): void {
    if (this.#found.length > 0) throw make(`import refused: ${this.#found.join('; ')}`)
  }

  /** What one reading throws is added, and the rest is read on. */
  attempt<R>(path: readonly (string | number)[], read: () => R): R | undefined {
    try {
      return read()
    } catch (error) {
      const at = error instanceof FieldError ? error.path : []
      this.add([...path, ...at], (error as Error).message)
      return undefined
    }
  }
}

/** What a section of an import makes of the state; its shape has been checked. */
type Replace = (changing: Changing, problems: Problems) => Generator<void>

/** The objects of one type that a change created, changed and deleted: their names in natural order. */
export interface Touched {
  readonly created: readonly string[]
  readonly changed: readonly string[]
  readonly deleted: readonly string[]
}

/** What an import did, by section of the document; a section where nothing changed is missing. */
export type ImportResult = Readonly<Record<string, Touched>>

/**
 * Replaces each section that is present, as a whole, and leaves the others; the result must keep every rule
 * (rules 3.11). Throws 400 for what is not of the document's shape, and where it would not do what the preview with the
 * mark `expected` told; 404 for rules broken, with all problems up to 50. Nothing is changed then.
 */
export async function importDocument(
  model: Model,
  document: JsonValue,
  actor: Actor,
  expected?: string
): Promise<ImportResult> {
  const replace = await inTurns(parsing(model, document))
  return model.inSteps(actor, 'import', function* (changing) {
    const changes = yield* replace(changing)
    if (expected !== undefined) (yield* marked(changes)).check(expected)
    return touched(changes)
  })
}

/**
 * Tells what `importDocument` would do, with a mark of what it would replace; throws as that does. `felt`
 * finds the nodes.
 */
export async function previewImport(model: Model, document: JsonValue) {
  const replace = await inTurns(parsing(model, document))
  return model.preview(function* (changing) {
    const changes = yield* replace(changing)
    const before = { view: model.view, cluster: model.cluster }
    const after = { view: changing.tx, cluster: settingsInForce(changing.tx, model.ini) }
    const felt = feltBy(changes, before, after)
    return { changes: touched(changes), mark: (yield* marked(changes)).text, felt }
  })
}

/** Sorts changes by section and by what happened to the object; changes of what no document holds are left out. */
export function touched(changes: readonly Change[]): ImportResult {
  const found: Record<string, Record<keyof Touched, string[]>> = {}
  for (const { type, name, before, after } of changes) {
    if (!sections.includes(type)) continue
    found[type] ??= { created: [], changed: [], deleted: [] }
    found[type][!before ? 'created' : after ? 'changed' : 'deleted'].push(name)
  }
  for (const lists of Object.values(found)) for (const names of Object.values(lists)) names.sort(compareNames)
  return found
}

/** Reads a document; gives what replaces its sections, checks the result, and tells what was changed. */
function* parsing(
  model: Model,
  document: JsonValue
): Generator<void, (changing: Changing) => Generator<void, readonly Change[]>> {
  const problems = new Problems()
  const replacements = new Map<string, Replace>()
  if (!isObject(document))
    throw badRequest('import refused: the body must be an object of sections', 'invalid-body')
  if (Object.keys(document).length === 0)
    throw badRequest('import refused: the document holds no section', 'invalid-import')
  for (const [section, content] of Object.entries(document)) {
    const type = typeNames.find(name => name === section)
    if (!isObject(content)) problems.add(['config', section], 'must be an object')
    else if (section === 'cluster') replacements.set(section, parseSettings(model, content, problems))
    else if (section === 'osimagetag') replacements.set(section, yield* parseTags(content, problems))
    else if (section === 'secrets') replacements.set(section, yield* parseSecrets(model, content, problems))
    else if (type) replacements.set(section, yield* parseObjects(type, content, problems))
    else problems.add(['config', section], 'there is no such section')
  }
  problems.throwAs(badRequest)
  return function* (changing) {
    for (const section of sections) yield* replacements.get(section)?.(changing, problems) ?? []
    const { tx, cluster } = changing
    const inState = yield* checkingState(tx, cluster, mostProblems)
    const broken = [...inState, ...treeProblems(tx, cluster.imageDirectory)]
    for (const { type, name, message } of broken) problems.add(['config', type, name], message)
    for (const name of tx.names('node')) {
      yield
      const node = tx.get('node', name)
      const why = node && badRescue(tx, node, cluster)
      if (why !== undefined) problems.add(['config', 'node', name], why)
    }
    problems.throwAs(notFound)
    return changing.tx.changes()
  }
}

function parseSettings(model: Model, content: JsonObject, problems: Problems): Replace {
  const settings = new Map<SettingName | 'variables', string | boolean | VariableMap | null>()
  for (const [key, value] of Object.entries(content))
    problems.attempt(['config', 'cluster', key], () => {
      for (const [name, read] of readSettings({ [key]: value })) settings.set(name, read)
    })
  // A section replaces the whole: a setting that it does not hold is the ini's again.
  return function* ({ tx }) {
    yield putSettings(tx, model.ini, settings, true)
  }
}

function* parseObjects<K extends TypeName>(
  type: K,
  content: JsonObject,
  problems: Problems
): Generator<void, Replace> {
  const docs = new Map<string, Docs[K]>()
  // Their entries at once would be as many lists, and hold the event loop four times as long.
  for (const name of Object.keys(content)) {
    yield
    const entry = content[name]
    const path = ['config', type, name]
    const before = problems.count
    for (const [key, value] of isObject(entry) ? Object.entries(entry) : [])
      if (value === hidden && fieldFor(objectTypes[type].fields, key, value)?.secret)
        problems.add([...path, key], `field "${key}" ${isMasked}`)
    const doc = readStored(objectTypes[type], name, entry, (at, message) =>
      problems.add([...path, ...at], `${objectTypes[type].title} ${name}: ${message}`)
    )
    if (problems.count === before) docs.set(name, doc)
  }
  return function* (changing) {
    const gone = changing.tx.names(type).filter(name => !docs.has(name))
    // What goes with an image is looked for among all tags: once for all images.
    const atOnce = type === 'node' ? NODES_REMOVED_AT_ONCE : gone.length
    for (let i = 0; i < gone.length; i += atOnce)
      yield removeObjects(changing, type, gone.slice(i, i + atOnce))
    for (const [name, doc] of docs) yield changing.tx.put(type, name, doc)
  }
}

/** A tag as an export has it. */
const tagTable: Table = [
  { name: 'name', type: objectName, required: true, meaning: 'tag' },
  ...tagFields.filter(({ name }) => name !== 'tag' && name !== 'order')
]

function* parseTags(content: JsonObject, problems: Problems): Generator<void, Replace> {
  const docs = new Map<string, OsimagetagDoc>()
  const holders = new Map<string, number>()
  // The plain key belongs to the oldest image with a tag of that name, so it is counted first.
  const entries = Object.entries(content).sort(
    ([a], [b]) => Number(a.includes(':')) - Number(b.includes(':'))
  )
  for (const [key, entry] of entries) {
    yield
    problems.attempt(['config', 'osimagetag', key], () => {
      const { name: tag, osimage } = isObject(entry) ? entry : {}
      if (!isObject(entry) || typeof tag !== 'string' || typeof osimage !== 'string')
        throw badRequest('must be an object with "name" and "osimage"', 'invalid-body')
      if (tag === untagged) throw badRequest(`tag ${untagged} cannot be set`, 'invalid-field')
      if (key !== tag && key !== tagKey(osimage, tag))
        throw badRequest(`field "name" is ${tag}, field "osimage" is ${osimage}`, 'invalid-field')
      const name = tagKey(osimage, tag)
      if (docs.has(name)) throw badRequest(`tag ${tag} of ${osimage} is given twice`, 'given-twice')
      const values = readTable(tagTable, entry, (path, message) => {
        throw new FieldError(path, `OS image tag ${name}: ${message}`)
      })
      const order = (holders.get(tag) ?? 0) + 1
      holders.set(tag, order)
      docs.set(name, { name, tag, order, ...storedFields(tagFields, values) } as object as OsimagetagDoc)
    })
  }
  return function* ({ tx }, problems) {
    for (const name of [...tx.names('osimagetag')]) if (!docs.has(name)) yield tx.remove('osimagetag', name)
    for (const doc of docs.values()) {
      yield
      if (tx.get('osimage', doc.osimage)) tx.put('osimagetag', doc.name, doc)
      else problems.add(['config', 'osimagetag', doc.tag], `OS image ${doc.osimage} does not exist`)
    }
  }
}

function* parseSecrets(model: Model, content: JsonObject, problems: Problems): Generator<void, Replace> {
  const secrets = new Map<string, { type: SecretOwner; owner: string; entries: JsonValue }>()
  for (const [key, entries] of Object.entries(content)) {
    const type = owners.find(name => name === key)
    if (!type || !isObject(entries)) {
      problems.add(['config', 'secrets', key], 'must be an object of owners below "group" or "node"')
      continue
    }
    for (const [owner, list] of Object.entries(entries)) {
      yield
      for (const [i, entry] of (Array.isArray(list) ? list : [list]).entries())
        problems.attempt(['config', 'secrets', type, owner, i], () => readWhole(`${type} ${owner}`, entry))
      secrets.set(secretsKey(type, owner), { type, owner, entries: list })
    }
  }
  return function* ({ tx }, problems) {
    for (const key of [...tx.names('secrets')]) if (!secrets.has(key)) yield tx.remove('secrets', key)
    for (const { type, owner, entries } of secrets.values()) {
      yield
      const path = ['config', 'secrets', type, owner]
      if (!tx.get(type, owner)) problems.add(path, `${type} ${owner} does not exist`)
      else
        problems.attempt(path, () =>
          putSecrets(tx, model.box, type, owner, readSecrets(`${type} ${owner}`, entries), true)
        )
    }
  }
}

/** So many nodes are removed in one step. */
const NODES_REMOVED_AT_ONCE = 200

/** A secret that is whole, unlike those of a request. */
function readWhole(owner: string, entry: JsonValue): void {
  for (const { name, newName, path, content, masked } of readSecrets(owner, [entry]))
    if (masked) throw badRequest(`${owner}: secret ${name}: field "content" ${isMasked}`, 'invalid-field')
    else if (path === undefined || content === undefined || newName !== undefined)
      throw badRequest(`${owner}: secret ${name} must have "name", "path" and "content" alone`)
}

/** A piece of an answer is made in one turn of the event loop. */
const PIECE_CHARACTERS = 65_536

/**
 * All objects of this moment, as their files hold them: secrets sealed (rules 11.12). A JSON object in pieces: the path of
 * the file in the state directory → its text. What is changed later is not in it, however long it takes to send.
 */
export function snapshot({ view, box }: Model): Iterable<string> {
  const kinds = sealedKinds(box)
  const types = [...typeNames, ...Object.keys(attachedTypes)] as (keyof Docs)[]
  // Objects are never changed, only replaced: a list of them is the whole state.
  const all = types.flatMap(type => view.names(type).map(name => [type, name, view.get(type, name)] as const))
  const encode = (type: keyof Docs, doc: object) =>
    (kinds[type] as { encode(doc: object): string }).encode(doc)
  return {
    *[Symbol.iterator]() {
      let piece = '{"snapshot":{'
      let separator = ''
      for (const [type, name, doc] of all) {
        if (!doc) continue
        piece += `${separator}${JSON.stringify(`${type}/${name}.json`)}:${JSON.stringify(encode(type, doc))}`
        separator = ','
        if (piece.length < PIECE_CHARACTERS) continue
        yield piece
        piece = ''
      }
      yield `${piece}}}`
    }
  }
}
