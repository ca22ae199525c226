import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isShared } from '../../lib/backup/state-names.js'
import { isLeftover } from '../../lib/disk/file.js'
import { SecretBox } from '../../lib/model/secret-box.js'
import { sealedKinds } from '../../lib/model/types.js'
import type { StoredFiles } from '../../lib/store/files/stored.js'
import { recordKinds } from '../../lib/store/record-kinds.js'
import type { Controller } from './controller.js'
import { storedTexts } from './stored-texts.js'

/**
 * Every file in the state directory but the audit log, the boots of nodes and who logged in, which are
 * written behind the answers: path → bytes. What the log promises counts as written. `files`: as just read.
 */
export async function stored(c: Controller, files?: StoredFiles): Promise<Record<string, string>> {
  const state = join(c.directory, 'state')
  const found: Record<string, string> = {}
  const texts = c.elsewhere ? await c.elsewhere() : storedTexts(state, files)
  for (const [path, text] of Object.entries(texts))
    if (!path.startsWith('node-boots.')) found[path] = Buffer.from(text).toString('latin1')
  for (const entry of readdirSync(state, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name)
    const path = file.slice(state.length + 1)
    if (!entry.isFile() || isOfMedium(c, path) || isLeftover(entry.name)) continue
    if (!/^(holder\.json|audit(-machines)?\.log|\.?logins\.json)/.test(entry.name))
      found[path] = readFileSync(file, 'latin1')
  }
  return Object.fromEntries(Object.entries(found).sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** Whether a file is one of the medium, whose contents `storedTexts` gives. */
function isOfMedium(c: Controller, path: string): boolean {
  const [first = ''] = path.split('/', 1)
  return isShared(first) || (!c.elsewhere && first in recordKinds)
}

/** Returns a function that makes a value of each file of a controller, once for each content. */
function remembered<T>(make: (c: Controller, path: string, bytes: string) => T) {
  const known = new WeakMap<Controller, Map<string, { bytes: string; value: T }>>()
  return (c: Controller, path: string, bytes: string): T => {
    const files = known.get(c) ?? new Map()
    known.set(c, files)
    if (files.get(path)?.bytes !== bytes) files.set(path, { bytes, value: make(c, path, bytes) })
    return files.get(path).value
  }
}

const documentOf = remembered((c, path, bytes) => keyed(c).json(path, bytes))

/** What is stored, secret fields of objects in the clear, without the notes of which tokens are void. */
export async function documents(c: Controller): Promise<Record<string, unknown>> {
  const files = Object.entries(await stored(c)).filter(([path]) => !path.startsWith('revoked/'))
  return Object.fromEntries(files.map(([path, bytes]) => [path, documentOf(c, path, bytes)]))
}

/** The box of a controller, and its files with secret fields of objects in the clear. */
function keyed(c: Controller) {
  const box = new SecretBox(readFileSync(join(c.directory, 'state', 'secret.key')))
  const kinds = new Map(Object.entries(sealedKinds(box)))
  const json = (path: string, bytes: string): ReturnType<typeof JSON.parse> => {
    const [type = '', name = ''] = path.replace(/\.json$/, '').split('/')
    const doc = kinds.get(type)?.decode(name, parsed(path, bytes)) ?? parsed(path, bytes)
    if (type !== 'handover') return doc
    const times = Object.entries(doc).map(([key, value]) => [
      key,
      typeof value === 'number' ? 'a time' : value
    ])
    return Object.fromEntries(times)
  }
  return { box, json }
}

/** JSON as it is, of a journal its records without their times, a report each, of all else the text. */
function parsed(path: string, bytes: string) {
  const text = Buffer.from(bytes, 'latin1').toString('utf8')
  if (path.endsWith('.json')) return JSON.parse(text)
  if (!path.endsWith('.journal')) return text
  const records = text.split('\n').filter(line => line !== '')
  return records.flatMap(record => {
    const { time: _, history, ...rest } = JSON.parse(record)
    return history?.map(({ state }: { state: string }) => ({ ...rest, state })) ?? [rest]
  })
}

/** The files of objects alone. */
export async function objectFiles(c: Controller): Promise<Record<string, string>> {
  const files = Object.entries(await stored(c))
  return Object.fromEntries(files.filter(([path]) => path.endsWith('.json') && !path.startsWith('revoked/')))
}

/**
 * What is stored of objects and nodes, secrets in the clear: without the records of requests, the notes of
 * services, the list of the files that svcd made or fetched, ssh keys and void tokens.
 */
export async function plainFiles(c: Controller, files?: StoredFiles): Promise<Record<string, unknown>> {
  const found: Record<string, unknown> = {}
  for (const [path, bytes] of Object.entries(await stored(c, files))) {
    if (/^(revoked|filler|jobs|services|ssh|copies)\b/.test(path)) continue
    const doc = plainOf(c, path, bytes)
    if (Array.isArray(doc) && doc.length === 0) continue
    found[path] = doc
  }
  return found
}

const plainOf = remembered((c, path, bytes) => {
  const { box, json } = keyed(c)
  const doc = json(path, bytes)
  if (path.startsWith('secrets/'))
    for (const secret of doc.secrets) secret.content = box.open(secret.content).toString()
  return doc
})

/**
 * What differs between two states: path → what the file holds now, null when it is gone; of a journal those
 * records that have come.
 */
export function difference(before: Record<string, unknown>, after: Record<string, unknown>) {
  const found: Record<string, unknown> = {}
  for (const path of new Set([...Object.keys(before), ...Object.keys(after)]))
    if (before[path] !== after[path] && JSON.stringify(before[path]) !== JSON.stringify(after[path])) {
      const now = after[path]
      found[path] = Array.isArray(now) ? added(before[path] ?? [], now) : (now ?? null)
    }
  return found
}

/** What has come to what was there before, which has to be in its order still; all of it where it is not. */
function added(before: unknown, after: readonly unknown[]): readonly unknown[] {
  const left = Array.isArray(before) ? before.map(record => JSON.stringify(record)) : []
  const more = after.filter(record => {
    const isOld = JSON.stringify(record) === left[0]
    if (isOld) left.shift()
    return !isOld
  })
  return left.length === 0 ? more : after
}

/** One object as an admin reads it. */
export async function read(c: Controller, type: string, name: string): Promise<Record<string, unknown>> {
  return (await c.get(`/config/${type}/${name}`)).body?.config[type][name]
}
