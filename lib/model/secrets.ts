import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { badRequest, notFound, unavailable } from '../base/errors.js'
import { isObject, type JsonValue } from '../base/json.js'
import { firstOf } from '../base/log.js'
import { openKey, readKey } from '../disk/file.js'
import { base64, isPath, objectName, passing, path, type Stored, secretMask, type Table } from './field.js'
import type { ChangeContext } from './object-type.js'
import { type BodyField, readFields } from './request.js'
import { SecretBox } from './secret-box.js'
import { type AttachedType, docsOf, type Tx, type View } from './stored.js'
import { listOf } from './table.js'
import { account, fileMode } from './types/file.js'

export type SecretOwner = 'node' | 'group'

/** The fields that a request gives for one secret; missing fields stay as they are. */
export interface SecretPatch {
  readonly name: string
  readonly newName?: string
  readonly path?: string
  readonly content?: string
  /** null resets it to the default. */
  readonly owner?: string | null
  readonly group?: string | null
  readonly mode?: string | null
  /** The content is the mask of an answer, so it gives no content. */
  readonly masked?: true
}

/** Returns the key of an owner's secrets in the store; no type name holds a dot. */
export const secretsKey = (type: SecretOwner, owner: string) => `${type}.${owner}`

const entries = (view: View, type: SecretOwner, owner: string): SecretsDoc['secrets'] =>
  view.get('secrets', secretsKey(type, owner))?.secrets ?? []

const keyFile = (state: string) => join(state, 'secret.key')

/** Returns why the secrets of a state directory cannot be opened; undefined if no key is missing. */
export function missingKey(state: string, view: View): { file: string; message: string } | undefined {
  const owners = [...view.names('secrets')].map(key => key.replace('.', ' '))
  const file = keyFile(state)
  if (owners.length === 0 || existsSync(file)) return undefined
  const message =
    `is missing, and without it the secrets of ${firstOf(owners, 3)} cannot be ` +
    'decrypted: restore it from a backup; to give up all secrets for good, ' +
    `remove ${join(state, 'secrets')}`
  return { file, message }
}

const loss = 'loses every secret, and the passwords of BMCs and switches'

/** Opens the box of a state directory, without a key before `unlockBox`. Throws Error for a damaged key. */
export async function secretBoxOf(state: string): Promise<SecretBox> {
  const file = keyFile(state)
  return new SecretBox(existsSync(file) ? await readKey(file, loss) : undefined)
}

/**
 * Creates secret.key if it is missing. Sealed objects were not loaded without it (rules 11.8), so only
 * secrets of nodes and groups can need an older key: throws Error then (rules 5.5).
 */
export async function unlockBox(box: SecretBox, state: string, view: View): Promise<void> {
  const missing = missingKey(state, view)
  if (missing) throw new Error(`${missing.file} ${missing.message}`)
  if (!box.hasKey) box.unlock(await openKey(keyFile(state), loss))
}

/** Yields the first undecryptable secret of each owner. */
export function* unreadableSecrets(
  view: View,
  box: SecretBox
): Generator<{ type: string; name: string; message: string }> {
  for (const { name: key, secrets } of docsOf(view, 'secrets')) {
    const bad = secrets.find(({ content }) => !box.holds(content))
    if (!bad) continue
    const [type, owner] = [key.slice(0, key.indexOf('.')), key.slice(key.indexOf('.') + 1)]
    const message =
      `${type} ${owner}: secret ${bad.name} ${isUnreadable}; restore the secret.key that belongs to it ` +
      `from a backup, or give its content again (POST /config/secrets/${type}/${owner}/${bad.name})`
    yield { type: 'secrets', name: key, message }
  }
}

const isUnreadable = 'cannot be decrypted: secret.key is another one, or the file was changed'

/** Returns the owner's secrets, oldest first: decrypted (503 if the key does not fit) or masked. */
export function secretsOf(
  view: View,
  box: SecretBox,
  type: SecretOwner,
  owner: string,
  masked: boolean
): Secret[] {
  return shownSecrets(entries(view, type, owner), box, `${type} ${owner}`, masked)
}

/** Returns stored secrets as `secretsOf` does; `owner` is for messages. */
export const shownSecrets = (
  secrets: SecretsDoc['secrets'],
  box: SecretBox,
  owner: string,
  masked: boolean
): Secret[] =>
  secrets.map(({ content, ...rest }) => ({
    ...rest,
    content: masked ? secretMask : opened(box, `${owner}: secret ${rest.name}`, content).toString('base64')
  }))

function opened(box: SecretBox, where: string, content: string): Buffer {
  try {
    return box.open(content)
  } catch (error) {
    throw unavailable(`${where} ${isUnreadable}`, 'unavailable', error)
  }
}

/** The path of a file, without control characters, which would break a log or shell line in two. */
const filePath = passing(
  'the absolute path of a file, without .. and control characters',
  value => isPath(value) && !value.endsWith('/') && !/[\u0000-\u001f\u007f]/.test(value)
)

const accessFields = [
  { name: 'owner', type: account, meaning: 'its user on the node, by name or number; root if it is not set' },
  {
    name: 'group',
    type: account,
    meaning: 'its group on the node, by name or number; root if it is not set'
  },
  { name: 'mode', type: fileMode, meaning: 'who may read and write it; 0600 if it is not set' }
] as const satisfies Table

/** The fields of a secret in a body (rules 5.5). An empty file is allowed. */
export const secretEntry: readonly BodyField[] = [
  { name: 'name', type: objectName, required: true, meaning: 'name' },
  { name: 'path', type: filePath, meaning: 'where the file is put' },
  { name: 'content', type: { ...base64, keepsEmpty: true }, secret: true, meaning: 'the file, in base64' },
  ...accessFields,
  {
    name: 'newsecretname',
    type: objectName,
    requestOnly: true,
    meaning: 'renames, and names the copy of a clone'
  }
]

/** Reads one secret of a request or a list of them; throws 400 naming owner and field. */
export function readSecrets(owner: string, value: JsonValue): SecretPatch[] {
  const seen = new Set<string>()
  return [value].flat().map((entry, i) => {
    const at = `${owner}: secret ${i + 1}`
    if (!isObject(entry)) throw badRequest(`${at} must be an object`, 'invalid-body')
    const where = typeof entry.name === 'string' ? `${owner}: secret ${entry.name}` : at
    const values = readFields(where, secretEntry, entry)
    for (const [key, value] of values)
      if (value === null && !accessFields.some(({ name }) => name === key))
        throw badRequest(`${where}: field "${key}" must not be empty`, 'missing-field')
    const { newsecretname, ...given } = Object.fromEntries(values) as Record<string, string>
    if (seen.has(given.name as string)) throw badRequest(`${where} is given twice`, 'given-twice')
    seen.add(given.name as string)
    return {
      ...given,
      ...(newsecretname === undefined ? {} : { newName: newsecretname }),
      ...(entry.content === secretMask ? { masked: true } : {})
    } as SecretPatch
  })
}

/** Adds or changes secrets; returns whether one is new. With `replace`, others are removed. */
export function putSecrets(
  tx: Tx,
  box: SecretBox,
  type: SecretOwner,
  owner: string,
  given: readonly SecretPatch[],
  replace = false
): boolean {
  const before = new Map(entries(tx, type, owner).map(secret => [secret.name, secret]))
  const secrets = replace ? [] : [...before.values()]
  const positions = new Map(secrets.map(({ name }, i) => [name, i]))
  for (const wanted of given) {
    const where = `${type} ${owner}: secret ${wanted.name}`
    const old = before.get(wanted.name)
    if (!old && wanted.newName !== undefined) throw notFound(`${where} does not exist`, 'no-object')
    const name = wanted.newName ?? wanted.name
    if (name !== wanted.name && positions.has(name))
      throw badRequest(`${type} ${owner}: secret ${name} exists already`, 'already-exists')
    const at = wanted.path ?? old?.path
    if (at === undefined) throw badRequest(`${where}: field "path" is missing`, 'missing-field')
    const content = wanted.content === undefined ? old?.content : sealed(box, wanted.content, old?.content)
    if (content === undefined)
      throw badRequest(
        `${where}: field "content" ` +
          `is ${wanted.masked ? 'masked, and there is no such secret yet: give the content' : 'missing'}`,
        'invalid-field'
      )
    const position = positions.get(wanted.name) ?? secrets.length
    const access = accessFields.flatMap(({ name: field, type }) => {
      const value = wanted[field] === undefined ? old?.[field] : wanted[field]
      const isDefault =
        value === null || value === undefined || value === (type === fileMode ? '0600' : 'root')
      return isDefault ? [] : [[field, value] as const]
    })
    secrets[position] = { name, path: at, content, ...Object.fromEntries(access) }
    positions.delete(wanted.name)
    positions.set(name, position)
  }
  write(tx, type, owner, secrets)
  return given.some(({ name }) => !before.has(name))
}

function sealed(box: SecretBox, content: string, before: string | undefined): string {
  const plain = Buffer.from(content, 'base64')
  return before !== undefined && box.holds(before, plain) ? before : box.seal(plain)
}

/** Copies a secret under a new name. */
export function cloneSecret(tx: Tx, type: SecretOwner, owner: string, name: string, copy: string): void {
  const secrets = entries(tx, type, owner)
  const source = secrets.find(secret => secret.name === name)
  if (!source) throw notFound(`${type} ${owner} has no secret ${name}`, 'no-object')
  if (secrets.some(secret => secret.name === copy))
    throw badRequest(`${type} ${owner}: secret ${copy} exists already`, 'already-exists')
  write(tx, type, owner, [...secrets, { ...source, name: copy }])
}

/** Removes a secret; throws 404 if the owner has no such secret. */
export function removeSecret(tx: Tx, type: SecretOwner, owner: string, name: string): void {
  const secrets = entries(tx, type, owner)
  const left = secrets.filter(secret => secret.name !== name)
  if (left.length === secrets.length) throw notFound(`${type} ${owner} has no secret ${name}`, 'no-object')
  write(tx, type, owner, left)
}

/** Carries secrets along when their owner is cloned, renamed or deleted. */
export const ownsSecrets = (type: SecretOwner) => ({
  copied({ tx }: ChangeContext, from: string, to: string): void {
    write(tx, type, to, entries(tx, type, from))
  },
  renamed({ tx }: ChangeContext, from: string, to: string): void {
    write(tx, type, to, entries(tx, type, from))
    write(tx, type, from, [])
  },
  removed({ tx }: ChangeContext, names: readonly string[]): void {
    for (const name of names) write(tx, type, name, [])
  }
})

function write(tx: Tx, type: SecretOwner, owner: string, secrets: SecretsDoc['secrets']): void {
  const name = secretsKey(type, owner)
  if (secrets.length > 0) tx.put('secrets', name, { name, secrets })
  else if (tx.get('secrets', name)) tx.remove('secrets', name)
}

const secretFields = [
  { name: 'name', type: objectName, required: true, meaning: 'name' },
  { name: 'path', type: path, required: true, meaning: 'where the file is put' },
  { name: 'content', type: base64, required: true, meaning: 'the file, encrypted' },
  ...accessFields
] as const satisfies Table

/** A file that the installation puts on a node: its path, and its content in base64 (rules 5.5). */
export type Secret = Stored<typeof secretFields>

const secretsType = listOf<Secret>('secret', secretFields)
const fields = [
  { name: 'secrets', type: secretsType, required: true, meaning: 'secrets of the owner' }
] as const satisfies Table

/** The encrypted secrets of one owner, named `node.<name>` or `group.<name>`. */
type SecretsDoc = { readonly name: string } & Stored<typeof fields>

declare module './docs.js' {
  interface AttachedShapes {
    secrets: SecretsDoc
  }
}

export const secrets: AttachedType<SecretsDoc> = {
  title: 'secrets of',
  fields,
  *checks(view, { name }) {
    const owner = (['node', 'group'] as const).find(type => name.startsWith(secretsKey(type, '')))
    if (!owner || !view.get(owner, name.slice(owner.length + 1))) yield 'its node or group does not exist'
  }
}
