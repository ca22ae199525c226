import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../background.js'
import { Semaphore } from '../concurrency.js'
import { createOnce, readRegularFile, readRegularFileSync, replaceFile, unlessMissing } from '../disk/file.js'
import { tryLater, unavailable } from '../errors.js'
import { neighbours, networkOf } from '../source.js'
import {
  dummyHash,
  hashPassword,
  longestPassword,
  type Role,
  type User,
  verifyPassword
} from './passwords.js'

/** Checks of passwords at once: each takes a core, and one of the four threads that files need too. */
const checksAtOnce = 2
/** How many checks wait for addresses that nothing is known of, and for those with failures; one more takes another one's place. */
const mostWaiting = { 1: 500, 2: 100 } as const
/** So many checks of one address go before those of addresses that nothing is known of. */
const mostAhead = 20
/** Addresses of right logins that are remembered. */
const mostProven = 1000
/** New ones are written down together. */
const keptAfterMs = 60_000
const retryMs = { first: 60_000, longest: 600_000 }
const rememberedMs = 60_000
const longestName = 256

export interface LoginsOptions {
  /** `[users]` of the ini. */
  readonly users: readonly User[]
  /** Read while there are no users, when somebody logs in; `ensureAdminPassword` makes it. */
  readonly adminPasswordFile: string
  /** Holds the addresses of right logins over a restart; absent: they are forgotten. A file that is damaged counts as none. */
  readonly provenFile?: string
  /** Milliseconds that only grow. */
  readonly now: () => number
  /** Waits so many milliseconds. */
  readonly delay?: (ms: number) => Promise<unknown>
}

export interface Login {
  readonly user: string
  readonly role: Role
}

interface Remembered {
  readonly proof: Buffer
  readonly verifiedAt: number
}

/** Who may log in, and at what pace (rules 5.1, 5.4). */
export class Logins {
  readonly #users: ReadonlyMap<string, User>
  readonly #dummy: string
  readonly #key = randomBytes(32)
  readonly #checks = new Semaphore(checksAtOnce)
  readonly #failures: Failures
  readonly #remembered = new Map<string, Remembered>()
  /** Addresses of right logins, the newest last. */
  readonly #proven: Set<string>
  readonly #keeping: Background | undefined
  readonly #underWay = new Map<string, Promise<boolean>>()
  #admin: { readonly password: string; readonly user: Promise<User> } | undefined

  constructor(private readonly options: LoginsOptions) {
    const { users, provenFile, now } = options
    this.#users = new Map(users.map(user => [user.name, user]))
    this.#dummy = dummyHash(users.map(user => user.hash))
    this.#failures = new Failures(now)
    this.#proven = new Set(provenFile === undefined ? [] : readProven(provenFile))
    if (provenFile === undefined) return
    const work = () => replaceFile(provenFile, `${JSON.stringify([...this.#proven])}\n`)
    this.#keeping = new Background({ work, retryMs })
  }

  /** Writes down at once what is to be kept over a restart. Never throws. */
  async close(): Promise<void> {
    if (this.#proven.size > 0) await this.#keeping?.run().catch(() => undefined)
    await this.#keeping?.close()
  }

  /**
   * The user and role, or undefined when the name or the password is wrong, in equal time for both. `address`
   * is where the login comes from: after failures it waits up to a second, and lets addresses without failures go first.
   * A login verified in the last minute costs one HMAC.
   * @throws ServiceError 503 when there are no users and the admin password file cannot be read, and for an address with
   * failures while too many of those wait
   */
  async login(username: string, password: string, address: string): Promise<Login | undefined> {
    // Refused without a look: to hash megabytes would cost more than a check does.
    if (username.length > longestName || password.length > longestPassword) {
      await this.#wait(address)
      this.#failures.add(address)
      return undefined
    }
    const user = await this.#find(username, address)
    const hash = user?.hash ?? this.#dummy
    const proof = this.#proof(username, hash, password)
    if (!user || !this.#isRemembered(user, proof)) {
      await this.#wait(address)
      const verified = await this.#verify(proof.toString('base64'), password, hash, address)
      if (!user || !verified) {
        this.#failures.add(address)
        return undefined
      }
      this.#remembered.set(user.name, { proof, verifiedAt: this.options.now() })
    }
    this.#prove(address)
    return { user: user.name, role: user.role }
  }

  /** The role that this user has now; undefined for one who may no longer log in: void tokens show here. */
  roleOf(user: string): Role | undefined {
    return this.#users.size === 0 && user === 'admin' ? 'admin' : this.#users.get(user)?.role
  }

  async #find(username: string, address: string): Promise<User | undefined> {
    if (this.#users.size > 0) return this.#users.get(username)
    // Read for every name, so that "admin" takes no longer than another.
    const password = await readAdminPassword(this.options.adminPasswordFile).catch(error => {
      throw unavailable("the first user's password cannot be read", 'unavailable', error)
    })
    if (password === undefined) return undefined
    if (this.#admin?.password !== password) {
      const hash = this.#checks.run(neighbours(address), () => hashPassword(password))
      this.#admin = { password, user: hash.then(made => ({ name: 'admin', role: 'admin', hash: made })) }
      hash.catch(() => {
        this.#admin = undefined
      })
    }
    const admin = await this.#admin.user
    return username === 'admin' ? admin : undefined
  }

  /** Stands for name, hash and password in memory, where none of the passwords is kept. */
  #proof(username: string, hash: string, password: string): Buffer {
    return createHmac('sha256', this.#key)
      .update(JSON.stringify([username, hash, password]))
      .digest()
  }

  #isRemembered(user: User, proof: Buffer): boolean {
    const remembered = this.#remembered.get(user.name)
    if (!remembered || !timingSafeEqual(remembered.proof, proof)) return false
    const age = this.options.now() - remembered.verifiedAt
    // Negative after the clock was set back, and then of unknown age.
    return age >= 0 && age < rememberedMs
  }

  async #wait(address: string): Promise<void> {
    const ms = this.#failures.delayMs(address)
    if (ms > 0) await (this.options.delay ?? sleep)(ms)
  }

  /** One computation for equal logins under way. */
  #verify(id: string, password: string, hash: string, address: string): Promise<boolean> {
    const known = this.#underWay.get(id)
    if (known) return known
    const rank = this.#rankOf(address)
    if (rank !== 0 && this.#checks.waiting(rank) >= mostWaiting[rank])
      this.#checks.refuseOne(rank, tryLater('too many logins wait; try again later', 10))
    const verified = this.#checks
      .run(neighbours(address), () => verifyPassword(password, hash), rank)
      .finally(() => this.#underWay.delete(id))
    this.#underWay.set(id, verified)
    return verified
  }

  /**
   * The rank of an address in the queue: 0 the controller itself and addresses from which somebody has logged in before, 1 those that nothing is
   * known of, 2 those with failures in the last minute.
   */
  #rankOf(address: string): 0 | 1 | 2 {
    if (this.#failures.has(address)) return 2
    if (['127.0.0.1', '::1'].includes(address)) return 0
    return this.#proven.has(networkOf(address)) && this.#checks.waiting(0, neighbours(address)) < mostAhead
      ? 0
      : 1
  }

  #prove(address: string): void {
    const key = networkOf(address)
    if (!this.#proven.delete(key)) this.#keeping?.wake(keptAfterMs)
    this.#proven.add(key)
    const [oldest] = this.#proven
    if (this.#proven.size > mostProven) this.#proven.delete(oldest as string)
  }
}

function readProven(file: string): string[] {
  try {
    const kept: unknown[] = JSON.parse(readRegularFileSync(file).toString())
    return kept
      .slice(-mostProven)
      .filter(one => typeof one === 'string' && /^[\d.:]{1,40}$/.test(one)) as string[]
  } catch {
    return []
  }
}

/** Where the first admin's password stands while the ini names no user (rules 5.1). */
export function adminPasswordFile(stateDirectory: string): string {
  return join(stateDirectory, 'admin-password')
}

/**
 * Makes the file at the first start: a random password alone on a line, mode 0600. True when it was made now.
 * @throws Error when the file is there without a password in it
 */
export async function ensureAdminPassword(file: string): Promise<boolean> {
  if (await createOnce(file, `${randomBytes(18).toString('base64url')}\n`)) return true
  if ((await readAdminPassword(file)) === undefined)
    throw new Error(`${file} holds no password: remove it, and the next start makes a new one`)
  return false
}

/** The password on the file's first line; undefined when there is no file or nothing on that line. */
async function readAdminPassword(file: string): Promise<string | undefined> {
  const text = await unlessMissing(readRegularFile(file).then(String), '')
  return text.split(/\r?\n/, 1)[0] || undefined
}

const windowMs = 60_000
const largestDelayMs = 1000
/** Failures in the window that cost nothing; the next login may be the fifth, and waits. */
const free = 4
const stepMs = 250

/**
 * Failed logins per source address in the last minute, and how long the address waits for them (rules 5.4):
 * nothing before the fifth, then a quarter of a second more with each up to one second. Remembers the
 * `capacity` addresses that failed last. An IPv6 host owns a /64, which counts as one address.
 */
export class Failures {
  /** Times of the last failures that matter, oldest first; addresses in the order of their last failure. */
  readonly #times = new Map<string, readonly number[]>()

  constructor(
    private readonly now: () => number,
    private readonly capacity = 10_000
  ) {}

  /** Milliseconds that a login from this address waits before it is looked at. */
  delayMs(address: string): number {
    return Math.min(
      largestDelayMs,
      Math.max(0, (this.#recent(networkOf(address)).length - free + 1) * stepMs)
    )
  }

  /** Whether a login from this address failed in the last minute. */
  has(address: string): boolean {
    return this.#recent(networkOf(address)).length > 0
  }

  add(address: string): void {
    const key = networkOf(address)
    const kept = this.#recent(key).slice(-(free + largestDelayMs / stepMs))
    this.#times.delete(key)
    this.#times.set(key, [...kept, this.now()])
    const [oldest = ''] = this.#times.keys()
    if (this.#times.size > this.capacity) this.#times.delete(oldest)
  }

  /** Addresses remembered. */
  get size(): number {
    return this.#times.size
  }

  #recent(key: string): readonly number[] {
    const now = this.now()
    // A time ahead of the clock, which was set back, is of no known age and does not count.
    return (this.#times.get(key) ?? []).filter(time => time > now - windowMs && time <= now)
  }
}
