import { runFairly } from '../base/concurrency.js'
import { badRequest, notFound, type ServiceError } from '../base/errors.js'
import { isObject, type JsonObject, type JsonValue } from '../base/json.js'
import { FieldError } from '../store/errors.js'
import { compareNames } from '../store/order.js'
import type { Change } from '../store/types.js'
import { checkDigest, digestChanges, masked } from './differences.js'
import type { Docs, TypeName } from './docs.js'
import { objectName, secretMask, type Table } from './field.js'
import { findImpact } from './impact.js'
import { rescueProblem } from './linux-limits.js'
import { type Actor, type Model, removeObjects } from './model.js'
import type { ChangeContext } from './object-type.js'
import { checkStateSliced } from './rules.js'
import { putSecrets, readSecrets, type SecretOwner, secretsKey, secretsOf, shownSecrets } from './secrets.js'
import { effectiveSettings, putSettings, readSettings, type SettingName, settingNames } from './settings.js'
import { readStored } from './stored.js'
import { fieldFor, readTable, storedFields } from './table.js'
import { allTags, defaultTag, tagKey } from './tags.js'
import { type OsimagetagDoc, tagFields, treeProblems } from './types/osimage.js'
import { actionOf, attachedTypes, kinds, objectTypes, participles, sealedKinds, typeNames } from './types.js'
import type { VariableMap } from './variables.js'

/** The sections of a document in the order of writing. */
const sections: readonly string[] = ['cluster', ...typeNames, 'osimagetag', 'secrets']
const owners = ['group', 'node'] as const
const mostProblems = 50
/** An export is made in parts of about this many characters. */
const PART_CHARACTERS = 16_384
const maskedRefusal = "is masked: only an admin's export can be imported"

/**
 * Exports everything that an admin has configured as one document of stored values (rules 3.11), in parts of
 * JSON text. Names are in natural order, keys in table order, and each object has its own line: equal states
 * give equal bytes, and diff works. The document shows the moment of the call however slowly it is read, and
 * can be read several times. Throws 503 for a secret that cannot be decrypted.
 */
export function exportText(model: Model, isMasked: boolean): Iterable<string> {
  const { view, box } = model
  const { variables } = model.cluster
  const hasVariables = Object.keys(variables).length > 0
  const settings = Object.fromEntries(settingNames.map(name => [name, model.cluster[name]]))
  const cluster = JSON.stringify(hasVariables ? { ...settings, variables } : settings)
  // Objects are replaced and never changed, so lists of them are a snapshot.
  const objects = typeNames.map(type => [type, view.names(type).map(name => view.get(type, name))] as const)
  const tags = allTags(view)
  const secrets = view.names('secrets').map(key => [key, view.get('secrets', key)?.secrets] as const)
  function* text(): Generator<string> {
    yield `{"config":{\n"cluster":${cluster}`
    for (const [type, docs] of objects) {
      yield `,\n"${type}":`
      yield* map(docs, doc => doc && [doc.name, stored(type, doc, isMasked)])
    }
    yield ',\n"osimagetag":'
    yield* map(tags, ([key, tag]) => [key, tagEntry(tag)])
    yield ',\n"secrets":{'
    for (const [i, owner] of owners.entries()) {
      yield `${i > 0 ? ',' : ''}\n"${owner}":`
      const before = secretsKey(owner, '')
      // One pass over all secrets: a lookup for each of many nodes would take long without giving a part.
      yield* map(secrets, ([key, held]) => {
        if (!held || !key.startsWith(before)) return undefined
        const name = key.slice(before.length)
        return [name, shownSecrets(held, box, `${owner} ${name}`, isMasked)]
      })
    }
    yield '\n}\n}}\n'
  }
  return { [Symbol.iterator]: () => inParts(text(), PART_CHARACTERS) }
}

/** Joins texts to parts of at least `least` characters. */
function* inParts(texts: Iterable<string>, least: number): Generator<string> {
  let part = ''
  for (const text of texts) {
    part += text
    if (part.length < least) continue
    yield part
    part = ''
  }
  yield part
}

/** Throws 503 for a secret that cannot be decrypted; yields for each owner. */
export function* checkSecretsSliced({ view, box }: Model): Generator<void> {
  for (const owner of owners)
    for (const name of [...view.names(owner)]) {
      yield
      secretsOf(view, box, owner, name, false)
    }
}

/** Yields the text of a map, one line per entry; values without an entry are skipped. */
function* map<V>(
  values: readonly V[],
  entry: (value: V) => readonly [name: string, value: unknown] | undefined
): Generator<string> {
  let separator = '{'
  for (const value of values) {
    const [name, made] = entry(value) ?? []
    if (name === undefined) continue
    yield `${separator}\n${JSON.stringify(name)}:${JSON.stringify(made)}`
    separator = ','
  }
  yield separator === '{' ? '{}' : '\n}'
}

function stored<K extends TypeName>(type: K, doc: Docs[K], isMasked: boolean): object {
  const fields = kinds[type].fieldsOf(doc)
  return isMasked ? masked(type, fields) : fields
}

const tagEntry = ({ tag, osimage, kernelfile, initrdfile, imagefile, kerneloptions }: OsimagetagDoc) => ({
  ...{ name: tag, osimage, kernelfile, initrdfile, imagefile, kerneloptions }
})

/** Collects the problems of an import, each with its path in the document, up to a bound. */
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

  /** Runs `read`, and records its error instead of throwing it. */
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

/** Replaces one section of the state. The shape of the section has been checked. */
type Replace = (changing: ChangeContext, problems: Problems) => Generator<void>

/** The names of created, changed and deleted objects of one type, in natural order. */
interface ChangeSummary {
  readonly created: readonly string[]
  readonly changed: readonly string[]
  readonly deleted: readonly string[]
}

/** The outcome of an import by section; sections without a change are missing. */
export type ImportResult = Readonly<Record<string, ChangeSummary>>

/**
 * Replaces each section of the document as a whole and leaves the other sections alone (rules 3.11). Throws
 * 400 for a document of the wrong shape, or if the outcome differs from the preview whose digest is
 * `expected`; 404 if rules are broken, with up to 50 problems. Nothing is changed in these cases.
 */
export async function importDocument(
  model: Model,
  document: JsonValue,
  actor: Actor,
  expected?: string
): Promise<ImportResult> {
  const replace = await runFairly(parseDocument(model, document))
  return model.changeInSteps(actor, 'import', function* (changing) {
    const changes = yield* replace(changing)
    yield* checkDigest(changes, expected, 'import')
    return summarizeChanges(changes)
  })
}

/** Returns what `importDocument` would do, its digest, and `felt`, which finds the affected nodes. */
export async function previewImport(model: Model, document: JsonValue) {
  const replace = await runFairly(parseDocument(model, document))
  return model.preview(function* (changing) {
    const changes = yield* replace(changing)
    const before = { view: model.view, cluster: model.cluster }
    const after = { view: changing.tx, cluster: effectiveSettings(changing.tx, model.ini) }
    const felt = findImpact(changes, before, after)
    return { changes: summarizeChanges(changes), mark: yield* digestChanges(changes), felt }
  })
}

/** Sorts changes by section and kind; changes of types that no document holds are left out. */
function summarizeChanges(changes: readonly Change[]): ImportResult {
  const found: Record<string, Record<keyof ChangeSummary, string[]>> = {}
  for (const change of changes) {
    const { type, name } = change
    if (!sections.includes(type)) continue
    found[type] ??= { created: [], changed: [], deleted: [] }
    found[type][participles[actionOf(change)]].push(name)
  }
  for (const lists of Object.values(found)) for (const names of Object.values(lists)) names.sort(compareNames)
  return found
}

/** Parses a document; the result replaces its sections, checks the new state and returns the changes. */
function* parseDocument(
  model: Model,
  document: JsonValue
): Generator<void, (changing: ChangeContext) => Generator<void, readonly Change[]>> {
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
    const inState = yield* checkStateSliced(tx, cluster, mostProblems)
    const broken = [...inState, ...treeProblems(tx, cluster.imageDirectory)]
    for (const { type, name, message } of broken) problems.add(['config', type, name], message)
    for (const name of tx.names('node')) {
      yield
      const node = tx.get('node', name)
      const why = node && rescueProblem(tx, node, cluster)
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
  // A section replaces the whole: missing settings go back to the ini.
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
  // Object.entries would make as many arrays and block the event loop four times as long.
  for (const name of Object.keys(content)) {
    yield
    const entry = content[name]
    const path = ['config', type, name]
    const before = problems.count
    for (const [key, value] of isObject(entry) ? Object.entries(entry) : [])
      if (value === secretMask && fieldFor(objectTypes[type].fields, key, value)?.secret)
        problems.add([...path, key], `field "${key}" ${maskedRefusal}`)
    const doc = readStored(objectTypes[type], name, entry, (at, message) =>
      problems.add([...path, ...at], `${objectTypes[type].title} ${name}: ${message}`)
    )
    if (problems.count === before) docs.set(name, doc)
  }
  return function* (changing) {
    const gone = changing.tx.names(type).filter(name => !docs.has(name))
    // Removing an image searches all tags, so all images go in one step.
    const atOnce = type === 'node' ? NODES_REMOVED_AT_ONCE : gone.length
    for (let i = 0; i < gone.length; i += atOnce)
      yield removeObjects(changing, type, gone.slice(i, i + atOnce))
    for (const [name, doc] of docs) yield changing.tx.put(type, name, doc)
  }
}

/** A tag in the form of an export. */
const tagTable: Table = [
  { name: 'name', type: objectName, required: true, meaning: 'tag' },
  ...tagFields.filter(({ name }) => name !== 'tag' && name !== 'order')
]

function* parseTags(content: JsonObject, problems: Problems): Generator<void, Replace> {
  const docs = new Map<string, OsimagetagDoc>()
  const holders = new Map<string, number>()
  // The plain key belongs to the oldest image with that tag name, so plain keys come first.
  const entries = Object.entries(content).sort(
    ([a], [b]) => Number(a.includes(':')) - Number(b.includes(':'))
  )
  for (const [key, entry] of entries) {
    yield
    problems.attempt(['config', 'osimagetag', key], () => {
      const { name: tag, osimage } = isObject(entry) ? entry : {}
      if (!isObject(entry) || typeof tag !== 'string' || typeof osimage !== 'string')
        throw badRequest('must be an object with "name" and "osimage"', 'invalid-body')
      if (tag === defaultTag) throw badRequest(`tag ${defaultTag} cannot be set`, 'invalid-field')
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
        problems.attempt(['config', 'secrets', type, owner, i], () =>
          checkCompleteSecret(`${type} ${owner}`, entry)
        )
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

const NODES_REMOVED_AT_ONCE = 200

/** Checks a secret of a document, which has to be complete, unlike one of a request. */
function checkCompleteSecret(owner: string, entry: JsonValue): void {
  for (const { name, newName, path, content, masked } of readSecrets(owner, [entry]))
    if (masked)
      throw badRequest(`${owner}: secret ${name}: field "content" ${maskedRefusal}`, 'invalid-field')
    else if (path === undefined || content === undefined || newName !== undefined)
      throw badRequest(
        `${owner}: secret ${name} must have "name", "path" and "content" alone`,
        'invalid-body'
      )
}

/** Characters of an answer made in one turn of the event loop. */
const PIECE_CHARACTERS = 65_536

/**
 * Returns all objects of this moment with sealed secrets (rules 11.12): a JSON object in pieces, from the
 * path in the state directory to the text of the file. Later changes do not appear in it.
 */
export function snapshot({ view, box }: Model): Iterable<string> {
  const kinds = sealedKinds(box)
  const types = [...typeNames, ...Object.keys(attachedTypes)] as (keyof Docs)[]
  // Objects are replaced and never changed, so lists of them are a snapshot.
  const all = types.flatMap(type => view.names(type).map(name => [type, name, view.get(type, name)] as const))
  const encode = (type: keyof Docs, doc: object) =>
    (kinds[type] as { encode(doc: object): string }).encode(doc)
  function* text(): Generator<string> {
    let separator = ''
    yield '{"snapshot":{'
    for (const [type, name, doc] of all) {
      if (!doc) continue
      yield `${separator}${JSON.stringify(`${type}/${name}.json`)}:${JSON.stringify(encode(type, doc))}`
      separator = ','
    }
    yield '}}'
  }
  return { [Symbol.iterator]: () => inParts(text(), PIECE_CHARACTERS) }
}
