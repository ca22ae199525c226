import { assertStorable } from '../medium.js'
import type { Client } from './client.js'

/** The options that all parts of the medium share. */
export interface Etcd {
  readonly client: Client
  readonly keys: Keys
  readonly log: (level: 'warn' | 'info', message: string) => void
}

/** The keys of a store, all below one prefix. */
export type Keys = ReturnType<typeof keysBelow>

/** Returns the keys below a prefix. Throws TypeError for one that is not like /svcd/. */
export function keysBelow(prefix: string) {
  if (!/^\/([\w.-]+\/)+$/.test(prefix))
    throw new TypeError(`${JSON.stringify(prefix)} is no prefix of keys; one is like /svcd/`)
  const [objects, staged, records] = [`${prefix}objects/`, `${prefix}staged/`, `${prefix}records/`]
  const stagedPrefix = (id: string) => `${staged}${id}/`
  return {
    /** Ends in a slash. */
    prefix,
    /** The leadership key, bound to the leader's lease; every commit compares it. */
    leader: `${prefix}writer`,
    /** Number and fencing token of the last commit; every commit advances it. */
    head: `${prefix}head`,
    /** The committed change that is not carried out yet: id and number of its staged writes. */
    intent: `${prefix}intent`,
    /** Fingerprints of the keys that all controllers share in their state directories. */
    keyFingerprints: `${prefix}keys`,
    /** Each controller registers itself below it. */
    controllers: `${prefix}controllers/`,
    /** Records, which are no objects: a key per kind, and below it one per name. */
    records,
    objects,
    /** Prefix of the staged writes of changes too large for one transaction. */
    staged,
    /** The key of a record; without a name, the head of the records of a kind. */
    record: (kind: string, name?: string) => records + (name === undefined ? kind : `${kind}/${name}`),
    object: (type: string, name: string) => `${objects}${type}/${name}`,
    /** Prefix of the staged writes of one change. */
    stagedPrefix,
    /** The id of the change of a staged key. */
    changeIdOf: (key: string) => key.slice(staged.length).split('/', 1)[0] as string,
    stagedObject: (id: string, type: string, name: string) => `${stagedPrefix(id)}${type}/${name}`
  }
}

/** Parses type and name of a key after its first `skip` characters. Throws Error if it names no object. */
export function objectIn(key: string, skip: number): { type: string; name: string } {
  const rest = key.slice(skip)
  const slash = rest.indexOf('/')
  if (slash < 1) throw new Error('the key names no object')
  const [type, name] = [rest.slice(0, slash), rest.slice(slash + 1)]
  assertStorable(name)
  return { type, name }
}
