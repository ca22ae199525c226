import { assertStorable } from '../medium.js'

/** The keys of a store, all below one prefix. */
export class Keys {
  /** Ends in a slash. */
  readonly prefix: string

  /** Throws TypeError for a prefix that is not like /svcd/. */
  constructor(prefix: string) {
    if (!/^\/([\w.-]+\/)+$/.test(prefix))
      throw new TypeError(`${JSON.stringify(prefix)} is no prefix of keys; one is like /svcd/`)
    this.prefix = prefix
  }

  /** The leadership key, bound to the leader's lease; every commit compares it. */
  get leader(): string {
    return `${this.prefix}writer`
  }

  /** Number and fencing token of the last commit; every commit advances it. */
  get head(): string {
    return `${this.prefix}head`
  }

  /** The committed change that is not carried out yet: id and number of its staged writes. */
  get intent(): string {
    return `${this.prefix}intent`
  }

  /** Fingerprints of the keys that all controllers share in their state directories. */
  get keyFingerprints(): string {
    return `${this.prefix}keys`
  }

  /** Each controller registers itself below it. */
  get controllers(): string {
    return `${this.prefix}controllers/`
  }

  /** Records, which are no objects: a key per kind, and below it one per name. */
  get records(): string {
    return `${this.prefix}records/`
  }

  get objects(): string {
    return `${this.prefix}objects/`
  }

  /** Prefix of the staged writes of changes too large for one transaction. */
  get staged(): string {
    return `${this.prefix}staged/`
  }

  /** The head of the records of a kind; their keys are below it. */
  recordsOf(kind: string): string {
    return `${this.records}${kind}`
  }

  object(type: string, name: string): string {
    return `${this.objects}${type}/${name}`
  }

  /** Prefix of the staged writes of one change. */
  stagedPrefix(id: string): string {
    return `${this.staged}${id}/`
  }

  /** The id of the change of a staged key. */
  changeIdOf(key: string): string {
    return key.slice(this.staged.length).split('/', 1)[0] as string
  }

  stagedObject(id: string, type: string, name: string): string {
    return `${this.stagedPrefix(id)}${type}/${name}`
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
