import { isDeepStrictEqual } from 'node:util'
import { badRequest, notFound, type ServiceError } from '../errors.js'
import { isObject, type JsonObject, type JsonValue } from '../json.js'
import { FieldError } from '../store/errors.js'
import { compareNames } from '../store/order.js'
import type { Change } from '../store/types.js'
import type { TypeName } from './docs.js'
import type { Field } from './field.js'
import { hidden } from './hidden.js'
import type { Actor, Model } from './model.js'
import { fieldFor } from './request.js'
import { checkState } from './rules.js'
import { readSecrets, type SecretOwner, secretsKey, secretsOf, setSecrets } from './secrets.js'
import { putSettings, readSettings, type SettingName, settingNames } from './settings.js'
import { decodeInterface } from './stored.js'
import { interfaceFields, type OsimagetagDoc } from './tables.js'
import { allTags, removeTag, tagKey, untagged } from './tags.js'
import { abandonTrees } from './trees.js'
import { kinds, objectTypes, typeNames } from './types.js'
import type { Tx, View } from './view.js'

/** In the order they are written. */
const sections: readonly string[] = ['cluster', ...typeNames, 'osimagetag', 'secrets']
const owners = ['group', 'node'] as const
const mostProblems = 50

/**
 * Everything an admin has configured, as one document of stored values (rules 3.11), in
 * parts of JSON text: names in natural order, keys in table order, so that equal states give equal bytes.
 */
export function* exportText(model: Model, masked: boolean): Generator<string> {
  const { view } = model
  const settings = Object.fromEntries(settingNames.map(name => [name, model.cluster[name]]))
  yield `{"config":{"cluster":${JSON.stringify(settings)}`
  for (const type of typeNames) {
    yield `,"${type}":`
    yield* map(view.names(type), name => stored(view, type, name, masked))
  }
  yield ',"osimagetag":'
  const tags = new Map(allTags(view))
  yield* map([...tags.keys()], key => tagEntry(tags.get(key) as OsimagetagDoc))
  yield ',"secrets":{'
  for (const [i, type] of owners.entries()) {
    yield `${i > 0 ? ',' : ''}"${type}":`
    const names = view.names(type).filter(name => view.get('secrets', secretsKey(type, name)))
    yield* map(names, name => secretsOf(view, model.box, type, name, masked))
  }
  yield '}}}'
}

function* map(names: readonly string[], entry: (name: string) => unknown): Generator<string> {
  let part = '{'
  for (const [i, name] of [...names].entries()) {
    part += `${i > 0 ? ',' : ''}${JSON.stringify(name)}:${JSON.stringify(entry(name))}`
    if (part.length < 65_536) continue
    yield part
    part = ''
  }
  yield `${part}}`
}

function stored(view: View, type: TypeName, name: string, masked: boolean): object {
  const doc = view.get(type, name)
  const fields = JSON.parse(doc ? kinds[type].encode(doc as never) : '{}') as Record<string, unknown>
  for (const field of objectTypes[type].fields)
    if (field.secret && masked && fields[field.name] !== undefined) fields[field.name] = hidden
  return fields
}

const tagEntry = ({ tag, osimage, kernelfile, initrdfile, imagefile }: OsimagetagDoc) => ({
  name: tag,
  osimage,
  kernelfile,
  initrdfile,
  imagefile
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
      if (error instanceof FieldError) this.add([...path, ...error.path], error.message)
      else if (error instanceof Error) this.add(path, error.message)
      return undefined
    }
  }
}

/** An import, checked for its shape: what each section that is present makes of the state. */
interface Parsed {
  readonly settings: ReadonlyMap<SettingName, string | boolean | null> | undefined
  readonly objects: ReadonlyMap<TypeName, ReadonlyMap<string, object>>
  readonly tags: readonly OsimagetagDoc[] | undefined
  readonly secrets: ReadonlyMap<SecretOwner, ReadonlyMap<string, JsonValue>> | undefined
}

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
 * (rules 3.11). Throws 400 for what is not of the document's shape and 404 for rules broken, with all
 * problems up to 50; nothing is changed then.
 */
export function importDocument(model: Model, document: JsonValue, actor: Actor): Promise<ImportResult> {
  const parsed = parse(document)
  return model.importWith(actor, tx => replaceAndCheck(model, tx, parsed))
}

/** What `importDocument` would do, or the error it would throw; nothing is changed. */
export function previewImport(model: Model, document: JsonValue): Promise<ImportResult> {
  const parsed = parse(document)
  return model.preview(tx => replaceAndCheck(model, tx, parsed))
}

function replaceAndCheck(model: Model, tx: Tx, parsed: Parsed): ImportResult {
  const problems = new Problems()
  replace(model, tx, parsed, problems)
  for (const { type, name, message } of checkState(tx, model.cluster, mostProblems))
    problems.add(['config', type, name], message)
  problems.throwAs(notFound)
  return touched(tx.changes())
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

function replace(model: Model, tx: Tx, parsed: Parsed, problems: Problems): void {
  if (parsed.settings) putSettings(tx, model.ini, parsed.settings)
  for (const [type, docs] of parsed.objects) {
    for (const name of [...tx.names(type)]) {
      if (docs.has(name)) continue
      tx.remove(type, name)
      if (type === 'node') model.revoke(tx, name)
    }
    for (const [name, doc] of docs) tx.put(type, name, doc as never)
  }
  if (parsed.tags) replaceTags(tx, parsed.tags, problems)
  if (parsed.secrets) replaceSecrets(model, tx, parsed.secrets, problems)
  dropOrphans(tx)
}

function replaceTags(tx: Tx, tags: readonly OsimagetagDoc[], problems: Problems): void {
  const names = new Set(tags.map(({ name }) => name))
  for (const name of [...tx.names('osimagetag')]) if (!names.has(name)) tx.remove('osimagetag', name)
  for (const doc of tags) {
    if (tx.get('osimage', doc.osimage)) tx.put('osimagetag', doc.name, doc)
    else problems.add(['config', 'osimagetag', doc.tag], `OS image ${doc.osimage} does not exist`)
  }
}

function replaceSecrets(
  model: Model,
  tx: Tx,
  secrets: NonNullable<Parsed['secrets']>,
  problems: Problems
): void {
  for (const type of owners) {
    const given = secrets.get(type)
    for (const key of [...tx.names('secrets')])
      if (key.startsWith(`${type}.`) && !given?.has(key.slice(type.length + 1))) tx.remove('secrets', key)
    for (const [owner, entries] of given ?? []) {
      const path = ['config', 'secrets', type, owner]
      if (!tx.get(type, owner)) problems.add(path, `${type} ${owner} does not exist`)
      else
        problems.attempt(path, () =>
          setSecrets(tx, model.box, type, owner, readSecrets(`${type} ${owner}`, entries))
        )
    }
  }
}

/** Tags, directories and secrets of what an import took away go with it, as they do on a delete. */
function dropOrphans(tx: Tx): void {
  const tags = [...tx.names('osimagetag')].flatMap(name => tx.get('osimagetag', name) ?? [])
  for (const { osimage, tag } of tags) if (!tx.get('osimage', osimage)) removeTag(tx, osimage, tag)
  for (const key of [...tx.names('secrets')]) {
    const type = key.startsWith('node.') ? 'node' : 'group'
    if (!tx.get(type, key.slice(type.length + 1))) tx.remove('secrets', key)
  }
  for (const name of [...tx.names('tree')]) {
    const osimage = tx.get('tree', name)?.osimage
    if (osimage !== undefined && !tx.get('osimage', osimage)) abandonTrees(tx, osimage)
  }
}

function parse(document: JsonValue): Parsed {
  const problems = new Problems()
  const objects = new Map<TypeName, Map<string, object>>()
  let settings: Parsed['settings']
  let tags: Parsed['tags']
  let secrets: Parsed['secrets']
  if (!isObject(document)) throw badRequest('import refused: the body must be an object of sections')
  if (Object.keys(document).length === 0) throw badRequest('import refused: the document holds no section')
  for (const [section, content] of Object.entries(document)) {
    const type = typeNames.find(name => name === section)
    if (!isObject(content)) problems.add(['config', section], 'must be an object')
    else if (section === 'cluster') settings = parseSettings(content, problems)
    else if (section === 'osimagetag') tags = parseTags(content, problems)
    else if (section === 'secrets') secrets = parseSecrets(content, problems)
    else if (type) objects.set(type, parseObjects(type, content, problems))
    else problems.add(['config', section], 'there is no such section')
  }
  problems.throwAs(badRequest)
  return { settings, objects, tags, secrets }
}

function parseSettings(content: JsonObject, problems: Problems): Parsed['settings'] {
  // A section replaces the whole: a setting that it does not hold is the ini's again.
  const settings = new Map<SettingName, string | boolean | null>(settingNames.map(name => [name, null]))
  for (const [key, value] of Object.entries(content))
    problems.attempt(['config', 'cluster', key], () => {
      for (const [name, read] of readSettings({ [key]: value })) settings.set(name, read)
    })
  return settings
}

function parseObjects(type: TypeName, content: JsonObject, problems: Problems): Map<string, object> {
  const docs = new Map<string, object>()
  for (const [name, entry] of Object.entries(content)) {
    const path = ['config', type, name]
    const stored = problems.attempt(path, () => normal(type, name, entry))
    if (stored === undefined) continue
    try {
      docs.set(name, kinds[type].decode(name, stored))
    } catch (error) {
      addEach(problems, path, type, name, stored, error)
    }
  }
  return docs
}

/** What is wrong with an object: each of its fields is read for itself, since reading it whole ends at the first. */
function addEach(
  problems: Problems,
  path: readonly string[],
  type: TypeName,
  name: string,
  stored: JsonValue,
  error: unknown
): void {
  const before = problems.count
  for (const [key, value] of isObject(stored) ? Object.entries(stored) : []) {
    if ((type === 'group' || type === 'node') && key === 'interfaces' && Array.isArray(value))
      for (const [i, entry] of value.entries())
        problems.attempt([...path, key, i], () => decodeInterface(type, entry, [], `${type} ${name}`))
    else problems.attempt(path, () => kinds[type].decode(name, { name, [key]: value }))
  }
  if (problems.count > before) return
  problems.attempt(path, () => {
    throw error
  })
}

/** The entry in its stored form: other spellings, nulls and read-only keys are understood as in a request. */
function normal(type: TypeName, name: string, entry: JsonValue): JsonValue {
  if (!isObject(entry)) return entry
  const clean: JsonObject = { name }
  for (const [key, value] of Object.entries(entry)) {
    const field = fieldFor(objectTypes[type], key, value)
    const torrent = type === 'osimage' && key === 'torrent'
    if (isUnset(key, value, field) || field?.derived || torrent) continue
    const stored = field?.name ?? key
    if (field?.secret && value === hidden)
      throw badRequest(`field "${key}" is masked: only an admin's export can be imported`)
    if (stored !== 'name' && Object.hasOwn(clean, stored) && !isDeepStrictEqual(clean[stored], value))
      throw badRequest(`field "${key}" is given twice with different values`)
    clean[stored] = key === 'interfaces' && Array.isArray(value) ? value.map(normalInterface) : value
  }
  return clean
}

const normalInterface = (entry: JsonValue): JsonValue =>
  isObject(entry)
    ? Object.fromEntries(
        Object.entries(entry).filter(
          ([key, value]) =>
            !isUnset(
              key,
              value,
              interfaceFields.find(({ name }) => name === key)
            )
        )
      )
    : entry

/** Read-only, null, an empty list of interfaces, a default, or an empty text where that says nothing. */
function isUnset(key: string, value: JsonValue, field: Field | undefined): boolean {
  if (key.startsWith('_') || value === null) return true
  if ((key === 'interfaces' || key === 'removed') && Array.isArray(value) && value.length === 0) return true
  // As in a request: a default is left out, so that an object's file depends on its values alone.
  if (field && !field.inherited && isDeepStrictEqual(value, field.default)) return true
  return value === '' && field !== undefined && !field.type.keepsEmpty
}

function parseTags(content: JsonObject, problems: Problems): OsimagetagDoc[] {
  const docs: OsimagetagDoc[] = []
  // The plain key belongs to the oldest image with a tag of that name, so it is counted first.
  const entries = Object.entries(content).sort(
    ([a], [b]) => Number(a.includes(':')) - Number(b.includes(':'))
  )
  for (const [key, entry] of entries) {
    const doc = problems.attempt(['config', 'osimagetag', key], () => {
      const { name: tag, osimage, ...given } = isObject(entry) ? entry : {}
      if (typeof tag !== 'string' || typeof osimage !== 'string')
        throw badRequest('must be an object with "name" and "osimage"')
      if (tag === untagged) throw badRequest(`tag ${untagged} cannot be set`)
      if (key !== tag && key !== tagKey(osimage, tag))
        throw badRequest(`field "name" is ${tag}, field "osimage" is ${osimage}`)
      const files = Object.fromEntries(Object.entries(given).filter(([, file]) => file !== null))
      const order = docs.filter(other => other.tag === tag).length + 1
      const name = tagKey(osimage, tag)
      if (docs.some(other => other.name === name)) throw badRequest(`tag ${tag} of ${osimage} is given twice`)
      return kinds.osimagetag.decode(name, { name, osimage, tag, order, ...files })
    })
    if (doc) docs.push(doc)
  }
  return docs
}

function parseSecrets(content: JsonObject, problems: Problems): Parsed['secrets'] {
  const secrets = new Map<SecretOwner, Map<string, JsonValue>>()
  for (const [key, entries] of Object.entries(content)) {
    const type = owners.find(name => name === key)
    if (!type || !isObject(entries)) {
      problems.add(['config', 'secrets', key], 'must be an object of owners below "group" or "node"')
      continue
    }
    for (const [owner, list] of Object.entries(entries))
      for (const [i, entry] of (Array.isArray(list) ? list : [list]).entries())
        problems.attempt(['config', 'secrets', type, owner, i], () => readWhole(`${type} ${owner}`, entry))
    secrets.set(type, new Map(Object.entries(entries)))
  }
  return secrets
}

/** A secret that is whole, unlike those of a request. */
function readWhole(owner: string, entry: JsonValue): void {
  for (const { name, newName, path, content } of readSecrets(owner, [entry]))
    if (path === undefined || content === undefined || newName !== undefined)
      throw badRequest(`${owner}: secret ${name} must have "name", "path" and "content" alone`)
}
