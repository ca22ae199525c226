import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Background } from '../background.js'
import { Semaphore } from '../concurrency.js'
import { readRegularFileSync } from '../disk/regular-file.js'
import { replaceFile } from '../disk/replace.js'
import { ServiceError, unavailable } from '../errors.js'
import { readAdminPassword } from './admin-password.js'
import { Failures, neighbours, party } from './failures.js'
import { dummyHash, hashPassword, longestPassword, verifyPassword } from './passwords.js'
import type { Role, User } from './roles.js'

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

const tooMany = () =>
  new ServiceError(503, 'too many logins wait; try again later', {
    'Retry-After': '10'
  })

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
  readonly #adminPasswordFile: string
  readonly #now: () => number
  readonly #delay: (ms: number) => Promise<unknown>
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

  constructor({ users, adminPasswordFile, provenFile, now, delay = sleep }: LoginsOptions) {
    this.#users = new Map(users.map(user => [user.name, user]))
    this.#adminPasswordFile = adminPasswordFile
    this.#now = now
    this.#delay = delay
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
      this.#remembered.set(user.name, { proof, verifiedAt: this.#now() })
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
    const password = await readAdminPassword(this.#adminPasswordFile).catch(error => {
      throw unavailable("the first user's password cannot be read", error)
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
    const age = this.#now() - remembered.verifiedAt
    // Negative after the clock was set back, and then of unknown age.
    return age >= 0 && age < rememberedMs
  }

  async #wait(address: string): Promise<void> {
    const ms = this.#failures.delayMs(address)
    if (ms > 0) await this.#delay(ms)
  }

  /** One computation for equal logins under way. */
  #verify(id: string, password: string, hash: string, address: string): Promise<boolean> {
    const known = this.#underWay.get(id)
    if (known) return known
    const rank = this.#rankOf(address)
    if (rank !== 0 && this.#checks.waiting(rank) >= mostWaiting[rank]) this.#checks.refuseOne(rank, tooMany())
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
    return this.#proven.has(party(address)) && this.#checks.waiting(0, neighbours(address)) < mostAhead
      ? 0
      : 1
  }

  #prove(address: string): void {
    const key = party(address)
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
