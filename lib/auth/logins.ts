import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { Background } from '../base/background.js'
import { Semaphore } from '../base/concurrency.js'
import { tryLater, unavailable } from '../base/errors.js'
import { addressBlockOf, clientNetworkOf } from '../base/request-source.js'
import { createOnce, readRegularFile, readRegularFileSync, replaceFile, unlessMissing } from '../disk/file.js'
import type { Grant, Login } from './grant.js'
import { dummyHash, hashPassword, longestPassword, type User, verifyPassword } from './passwords.js'

/** Password checks at once: each takes a core, and one of the four threads that files also need. */
const checksAtOnce = 2
/** Questions to the directory at once: they wait for it, and a slow one must not hold up users of the ini. */
const questionsAtOnce = 8
/** Bounds of waiting checks: unknown addresses, and those with failures. One more replaces another. */
const mostWaiting = { 1: 500, 2: 100 } as const
/** Checks of one address that go ahead of unknown addresses. */
const mostAhead = 20
/** Remembered addresses of successful logins. */
const mostKnownNetworks = 1000
/** New addresses are written together after this time. */
const saveAfterMs = 60_000
const retryMs = { first: 60_000, longest: 600_000 }
const rememberedMs = 60_000
const mostRemembered = 10_000
const longestName = 256

/** Verifies the passwords of users that the ini does not have. */
export interface Directory {
  readonly source: 'ldap'
  /**
   * Returns the user, under the directory's own spelling, and what the user may do; undefined if name or
   * password is wrong, or if the user has no role. Throws ServiceError 503 if the directory cannot tell.
   */
  login(name: string, password: string): Promise<Omit<Login, 'source'> | undefined>
}

interface LoginsOptions {
  /** `[users]` of the ini. */
  readonly users: readonly User[]
  /** Asked for the names that the ini does not have. */
  readonly directory?: Directory
  /** The sources beside the ini that are configured: their running tokens count, as those of `directory`. */
  readonly sources?: readonly Login['source'][]
  /** Read at a login while there are no users; created by `ensureAdminPassword`. */
  readonly adminPasswordFile: string
  /** Persists the addresses of successful logins; absent: not persisted. A damaged file counts as empty. */
  readonly knownNetworksFile?: string
  /** Monotonic clock in milliseconds. */
  readonly now: () => number
  readonly delay?: (ms: number) => Promise<unknown>
}

interface VerifiedLogin {
  readonly login: Login
  readonly proof: Buffer
  readonly verifiedAt: number
}

/** Verifies passwords, and limits the rate of attempts (rules 5.1, 5.4). */
export class Logins {
  readonly #users: ReadonlyMap<string, User>
  readonly #dummy: string
  readonly #key = randomBytes(32)
  readonly #checks = new Semaphore(checksAtOnce)
  readonly #questions = new Semaphore(questionsAtOnce)
  readonly #failures: Failures
  /** By name in the ini, or by source and name: a name in the ini has no colon. */
  readonly #remembered = new LRUCache<string, VerifiedLogin>({ max: mostRemembered })
  /** Addresses of successful logins, the newest last. */
  readonly #knownNetworks: Set<string>
  readonly #saving: Background | undefined
  readonly #pendingChecks = new Map<string, Promise<Login | undefined>>()
  #admin: { readonly password: string; readonly user: Promise<User> } | undefined

  constructor(private readonly options: LoginsOptions) {
    const { users, knownNetworksFile, now } = options
    this.#users = new Map(users.map(user => [user.name, user]))
    this.#dummy = dummyHash(users.map(user => user.hash))
    this.#failures = new Failures(now)
    this.#knownNetworks = new Set(knownNetworksFile === undefined ? [] : readKnownNetworks(knownNetworksFile))
    if (knownNetworksFile === undefined) return
    const work = () => replaceFile(knownNetworksFile, `${JSON.stringify([...this.#knownNetworks])}\n`)
    this.#saving = new Background({ work, retryMs })
  }

  /** Writes pending addresses. Never throws. */
  async close(): Promise<void> {
    if (this.#knownNetworks.size > 0) await this.#saving?.run().catch(() => undefined)
    await this.#saving?.close()
  }

  /**
   * Returns the verified login; undefined if name or password is wrong, in equal time for both while there
   * is no directory. After failures, `address` waits for up to a second, and addresses without failures go
   * first. A login repeated within a minute costs one HMAC.
   * @throws ServiceError 503 if there are no users and the admin password file cannot be read, if the
   * directory cannot tell, and for an address with failures while too many of those wait
   */
  async login(username: string, password: string, address: string): Promise<Login | undefined> {
    // Refused unchecked: hashing megabytes would cost more than a check.
    if (username.length > longestName || password.length > longestPassword) {
      await this.#wait(address)
      this.#failures.add(address)
      return undefined
    }
    const directory = this.#isLocal(username) ? undefined : this.options.directory
    const user = directory ? undefined : await this.#find(username, address)
    const hash = user?.hash ?? this.#dummy
    const proof = this.#proof(username, directory?.source ?? hash, password)
    const key = directory ? `${directory.source}:${username}` : username
    const remembered = this.#recall(key, proof)
    if (!remembered) await this.#wait(address)
    const login =
      remembered ??
      (await (directory
        ? this.#verify(proof, address, this.#questions, () => this.#ask(directory, username, password))
        : this.#verify(proof, address, this.#checks, () => check(user, password, hash))))
    if (!login) {
      this.#failures.add(address)
      return undefined
    }
    if (!remembered) this.#remembered.set(key, { login, proof, verifiedAt: this.options.now() })
    this.#rememberNetwork(address)
    return login
  }

  /**
   * Returns the present grant of a login; undefined for a user who may not log in any more, which voids
   * tokens. The ini decides for its own users. For others the login does, so that their tokens go on while
   * the directory is away.
   */
  grantOf({ user, grant, source }: Login): Grant | undefined {
    const { directory, sources = [] } = this.options
    if (source !== 'local')
      return source === directory?.source || sources.includes(source) ? grant : undefined
    return this.#isLocal(user) ? (this.#users.get(user) ?? { role: 'admin' }) : undefined
  }

  /** Whether the ini has the user, or the first admin is meant. */
  #isLocal(user: string): boolean {
    return this.#users.size === 0 ? user === 'admin' : this.#users.has(user)
  }

  /** Asks the directory. It may spell a name like a user of the ini, about whom the ini alone decides. */
  async #ask(directory: Directory, name: string, password: string): Promise<Login | undefined> {
    const { source } = directory
    const found = await directory.login(name, password)
    return found && !this.#isLocal(found.user) ? { user: found.user, grant: found.grant, source } : undefined
  }

  async #find(username: string, address: string): Promise<User | undefined> {
    if (this.#users.size > 0) return this.#users.get(username)
    // Read for every name, so that "admin" takes as long as others.
    const password = await readAdminPassword(this.options.adminPasswordFile).catch(error => {
      throw unavailable("the first user's password cannot be read", 'unavailable', error)
    })
    if (password === undefined) return undefined
    if (this.#admin?.password !== password) {
      const hash = this.#checks.run(addressBlockOf(address), () => hashPassword(password))
      this.#admin = { password, user: hash.then(made => ({ name: 'admin', role: 'admin', hash: made })) }
      hash.catch(() => {
        this.#admin = undefined
      })
    }
    const admin = await this.#admin.user
    return username === 'admin' ? admin : undefined
  }

  /** Represents name, hash and password in memory, so that no password is kept there. */
  #proof(username: string, hash: string, password: string): Buffer {
    return createHmac('sha256', this.#key)
      .update(JSON.stringify([username, hash, password]))
      .digest()
  }

  #recall(key: string, proof: Buffer): Login | undefined {
    const remembered = this.#remembered.get(key)
    if (!remembered || !timingSafeEqual(remembered.proof, proof)) return undefined
    const age = this.options.now() - remembered.verifiedAt
    // Negative after the clock was set back, so that the age is unknown.
    return age >= 0 && age < rememberedMs ? remembered.login : undefined
  }

  async #wait(address: string): Promise<void> {
    const ms = this.#failures.delayMs(address)
    if (ms > 0) await (this.options.delay ?? sleep)(ms)
  }

  /** Equal logins under way share one computation. */
  #verify(proof: Buffer, address: string, checks: Semaphore, check: () => Promise<Login | undefined>) {
    const id = proof.toString('base64')
    const known = this.#pendingChecks.get(id)
    if (known) return known
    const rank = this.#rankOf(address, checks)
    if (rank !== 0 && checks.waiting(rank) >= mostWaiting[rank])
      checks.rejectOne(rank, tryLater('too many logins wait; try again later', 10))
    const verified = checks
      .run(addressBlockOf(address), check, rank)
      .finally(() => this.#pendingChecks.delete(id))
    this.#pendingChecks.set(id, verified)
    return verified
  }

  /** Rank in the queue: 0 for loopback and known addresses, 1 for unknown ones, 2 after a failure. */
  #rankOf(address: string, checks: Semaphore): 0 | 1 | 2 {
    if (this.#failures.has(address)) return 2
    if (['127.0.0.1', '::1'].includes(address)) return 0
    const isKnown = this.#knownNetworks.has(clientNetworkOf(address))
    return isKnown && checks.waiting(0, addressBlockOf(address)) < mostAhead ? 0 : 1
  }

  #rememberNetwork(address: string): void {
    const key = clientNetworkOf(address)
    if (!this.#knownNetworks.delete(key)) this.#saving?.wake(saveAfterMs)
    this.#knownNetworks.add(key)
    const [oldest] = this.#knownNetworks
    if (this.#knownNetworks.size > mostKnownNetworks) this.#knownNetworks.delete(oldest as string)
  }
}

/** Takes equal time with and without a user. */
async function check(user: User | undefined, password: string, hash: string): Promise<Login | undefined> {
  if (!(await verifyPassword(password, hash)) || !user) return undefined
  const { name, role, groups } = user
  return { user: name, grant: { role, ...(groups ? { groups } : {}) }, source: 'local' }
}

function readKnownNetworks(file: string): string[] {
  try {
    const kept: unknown[] = JSON.parse(readRegularFileSync(file).toString())
    return kept
      .slice(-mostKnownNetworks)
      .filter(one => typeof one === 'string' && /^[\d.:]{1,40}$/.test(one)) as string[]
  } catch {
    return []
  }
}

/** The file of the first admin's password while the ini has no users (rules 5.1). */
export const adminPasswordFile = (stateDirectory: string): string => join(stateDirectory, 'admin-password')

/**
 * Creates the file at the first start: a random password on a line, mode 0600. Returns whether it was
 * created.
 * @throws Error if the file exists without a password
 */
export async function ensureAdminPassword(file: string): Promise<boolean> {
  if (await createOnce(file, `${randomBytes(18).toString('base64url')}\n`)) return true
  if ((await readAdminPassword(file)) === undefined)
    throw new Error(`${file} holds no password: remove it, and the next start makes a new one`)
  return false
}

/** Returns the first line of the file; undefined if it is missing or empty. */
async function readAdminPassword(file: string): Promise<string | undefined> {
  const text = await unlessMissing(readRegularFile(file).then(String), '')
  return text.split(/\r?\n/, 1)[0] || undefined
}

const windowMs = 60_000
const largestDelayMs = 1000
/** Free failures in the window: the login after these may be the fifth failure, and waits. */
const freeFailures = 4
const stepMs = 250

/**
 * Failed logins per source address in the last minute, and the resulting delay (rules 5.4): none before the
 * fifth, then 0.25 s more with each, up to 1 s. Remembers the last `capacity` addresses. An IPv6 /64 counts
 * as one address, as a host owns one.
 */
export class Failures {
  /** Times of recent failures, oldest first; addresses in the order of their last failure. */
  readonly #times: LRUCache<string, readonly number[]>

  constructor(
    private readonly now: () => number,
    capacity = 10_000
  ) {
    this.#times = new LRUCache({ max: capacity })
  }

  /** Returns the delay of the next login from this address in milliseconds. */
  delayMs(address: string): number {
    const steps = this.#recent(clientNetworkOf(address)).length - freeFailures + 1
    return Math.min(largestDelayMs, Math.max(0, steps * stepMs))
  }

  /** Whether a login from this address failed in the last minute. */
  has(address: string): boolean {
    return this.#recent(clientNetworkOf(address)).length > 0
  }

  add(address: string): void {
    const key = clientNetworkOf(address)
    const kept = this.#recent(key).slice(-(freeFailures + largestDelayMs / stepMs))
    this.#times.set(key, [...kept, this.now()])
  }

  get size(): number {
    return this.#times.size
  }

  #recent(key: string): readonly number[] {
    const now = this.now()
    // A time ahead of the clock, which was set back, does not count: its age is unknown.
    return (this.#times.peek(key) ?? []).filter(time => time > now - windowMs && time <= now)
  }
}
