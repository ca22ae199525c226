import { Background } from '../../base/background.js'
import { isObject, jsonObjectOrEmpty } from '../../base/json.js'
import type { Controller } from '../medium.js'
import { compareNames } from '../order.js'
import type { Client } from './client.js'
import type { Etcd, Keys } from './keys.js'
import { list, type Pair, put, transact } from './kv.js'
import { grantLease, renewLease, revokeLease } from './leadership.js'

interface ControllersOptions extends Etcd {
  /** Time to live of a controller's entry. */
  readonly ttlSeconds: number
  readonly self: Controller
  /** The clock that is reported to the others, milliseconds since 1970. */
  readonly now: () => number
  /** As in Controller. */
  readonly trees: () => readonly string[]
}

/** A site has few controllers. */
const MOST = { bytes: 1024 * 1024, ms: 5000 }
const TEXT = /^[^\x00-\x1f\x7f]{0,1000}$/
/** A controller reports ten digests of its ini; a later release may report more. */
const MOST_DIGESTS = 20
const DIGEST = /^[0-9a-f]{16}$/
/** More follow once the records of these are gone. */
const MOST_TREES = 100
/** So often the others are told what time it is here, and look. */
const CLOCK_MS = 5000
const LOOK_MS = 1000
/** Changes of a clock's difference below this are measuring noise. */
const CLOCK_NOISE_MS = 2000

/** The live controllers: each registers itself in a key with a lease of its own. */
export class Controllers {
  #lease = ''
  #others: readonly Controller[] | undefined
  #duplicateName = ''
  /** The last report of our clock, on the clock of `performance`. */
  #registeredMs = 0
  /** Last modification of each controller's key, and how far its clock is ahead. */
  #clocks = new Map<string, { readonly modified: string; readonly aheadMs: number | undefined }>()
  readonly #refreshing: Background

  constructor(private readonly options: ControllersOptions) {
    this.#refreshing = new Background({
      work: signal => this.#refresh(signal),
      everyMs: Math.min(LOOK_MS, (options.ttlSeconds * 1000) / 3),
      onFailure: reason => options.log('warn', `the other controllers cannot be listed: ${reason}`)
    })
    this.#refreshing.wake()
  }

  /** The other controllers as of a moment ago, in natural order; undefined until listed. */
  get others(): readonly Controller[] | undefined {
    return this.#others
  }

  /** Describes the controller with the same name as this one, and what to do; '' if there is none. */
  get duplicateName(): string {
    return this.#duplicateName
  }

  async close(): Promise<void> {
    await this.#refreshing.close()
    if (this.#lease !== '') await revokeLease(this.options.client, this.#lease, this.#limitMs)
  }

  get #limitMs(): number {
    return (this.options.ttlSeconds * 1000) / 3
  }

  async #refresh(signal: AbortSignal): Promise<void> {
    const { client, keys, ttlSeconds, self } = this.options
    if (this.#lease === '' || !(await renewLease(client, this.#lease, this.#limitMs))) {
      this.#lease = ''
      // If unused, this lease expires by itself.
      const lease = await grantLease(client, ttlSeconds, this.#limitMs)
      await this.#register(lease)
      this.#lease = lease
    }
    // While etcd has no room, the others are listed all the same.
    else if (performance.now() - this.#registeredMs > CLOCK_MS)
      await this.#register(this.#lease).catch(() => undefined)
    const { pairs } = await list(client, keys.controllers, MOST, signal)
    // The key of our last run expires a moment later.
    const others = this.#parse(pairs.filter(({ lease }) => lease !== this.#lease))
    this.#others = others
      .filter(({ name }) => name !== self.name)
      .sort((a, b) => compareNames(a.name, b.name))
    this.#warnOfDuplicateName(
      others.find(
        // Cloned machines may have the same host name.
        ({ name, host, address, port }) =>
          name === self.name && (host !== self.host || address !== self.address || port !== self.port)
      )
    )
  }

  async #register(lease: string): Promise<void> {
    const { client, keys, self, now, trees } = this.options
    this.#registeredMs = performance.now()
    const told = { ...self, trees: trees().slice(0, MOST_TREES), clock: now() }
    const said = put(`${keys.controllers}${lease}`, JSON.stringify(told), lease)
    await transact(client, [], [said], [], this.#limitMs)
  }

  /** Parses the keys. A clock counts only if reported since the last look, as older reports are stale. */
  #parse(pairs: readonly Pair[]): Controller[] {
    const nowMs = this.options.now()
    const before = this.#clocks
    this.#clocks = new Map()
    return pairs.flatMap(pair => {
      const [{ key, modified }, last] = [pair, before.get(pair.key)]
      return controllerIn(pair, nowMs).map(({ aheadMs: told, ...one }) => {
        const isSame = Math.abs(Number(told) - Number(last?.aheadMs)) < CLOCK_NOISE_MS
        const aheadMs = !last || last.modified === modified || isSame ? last?.aheadMs : told
        this.#clocks.set(key, { modified, aheadMs })
        return { ...one, ...aheadIn(aheadMs) }
      })
    })
  }

  #warnOfDuplicateName(other: Controller | undefined): void {
    const told = other
      ? `the controller on ${other.host}, ${other.address} port ${other.port} has the name ` +
        `${this.options.self.name} too: give each its own, [controller] name`
      : ''
    if (told !== '' && told !== this.#duplicateName) this.options.log('warn', told)
    this.#duplicateName = told
  }
}

/** Lists the live controllers; clocks are up to CLOCK_MS old. `now`: milliseconds since 1970. */
export async function listControllers(client: Client, keys: Keys, now: number): Promise<Controller[]> {
  const { pairs } = await list(client, keys.controllers, MOST)
  return pairs.flatMap(pair => controllerIn(pair, now))
}

/** Nothing if unknown. */
const aheadIn = (ms: unknown) => (Number.isFinite(ms) ? { aheadMs: Number(ms) } : {})

function controllerIn({ value }: Pair, nowMs: number): Controller[] {
  const { name, host, address, port, ini, url, digests, trees, clock } = jsonObjectOrEmpty(value.toString())
  const isOne = isText(name) && isText(host) && isText(address) && isText(ini) && Number.isSafeInteger(port)
  const reached = isText(url) && isHttp(url) ? { url } : {}
  const ahead = aheadIn(typeof clock === 'number' && clock - nowMs)
  const told = { ...reached, ...digestsIn(digests), ...treesIn(trees), ...ahead }
  return isOne ? [{ name, host, address, port: Number(port), ini, ...told }] : []
}

/** Nothing if malformed. */
function digestsIn(said: unknown): Pick<Controller, 'digests'> {
  const told = isObject(said) ? Object.entries(said) : []
  const isDigest = (value: unknown) => typeof value === 'string' && DIGEST.test(value)
  const isWhole = told.every(([name, digest]) => isText(name) && isDigest(digest))
  const isAny = told.length > 0 && told.length <= MOST_DIGESTS
  return isAny && isWhole ? { digests: said as Record<string, string> } : {}
}

const treesIn = (said: unknown): Pick<Controller, 'trees'> =>
  Array.isArray(said) && said.length > 0 && said.length <= MOST_TREES && said.every(isText)
    ? { trees: said }
    : {}

const isText = (value: unknown): value is string => typeof value === 'string' && TEXT.test(value)

const isHttp = (url: string) => URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)
