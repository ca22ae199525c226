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

  /** Who may write: it goes with their lease, and every commit compares it. */
  get writer(): string {
    return `${this.prefix}writer`
  }

  /** The number of the last commit, and who made it: every commit moves it on. */
  get head(): string {
    return `${this.prefix}head`
  }

  /** The change that is committed and not carried out yet: which staged writes it has, and how many. */
  get intent(): string {
    return `${this.prefix}intent`
  }

  /** Marks of the keys that every controller has to have in its state directory. */
  get keyMarks(): string {
    return `${this.prefix}keys`
  }

  /** Below it each controller says that it is there. */
  get controllers(): string {
    return `${this.prefix}controllers/`
  }

  /** Below it is what is kept of nodes and is no object: a key for each kind, and below that one for each name. */
  get records(): string {
    return `${this.prefix}records/`
  }

  get objects(): string {
    return `${this.prefix}objects/`
  }

  /** Where the writes of changes wait that are too large for one transaction. */
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

  /** What all writes of one large change are staged below. */
  stagedBy(id: string): string {
    return `${this.staged}${id}/`
  }

  /** The mark of the change that a staged key belongs to. */
  stagerOf(key: string): string {
    return key.slice(this.staged.length).split('/', 1)[0] as string
  }

  stagedObject(id: string, type: string, name: string): string {
    return `${this.stagedBy(id)}${type}/${name}`
  }
}

/** Type and name at the end of a key, behind its first `skip` characters. Throws Error for a key that names no object. */
export function objectIn(key: string, skip: number): { type: string; name: string } {
  const rest = key.slice(skip)
  const slash = rest.indexOf('/')
  if (slash < 1) throw new Error('the key names no object')
  const [type, name] = [rest.slice(0, slash), rest.slice(slash + 1)]
  assertStorable(name)
  return { type, name }
}
