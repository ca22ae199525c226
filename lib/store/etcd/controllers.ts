import { Background } from '../../background.js'
import { isObject } from '../../json.js'
import type { Controller } from '../medium.js'
import { compareNames } from '../order.js'
import type { Client } from './client.js'
import type { Keys } from './keys.js'
import { list, type Pair, put, transact } from './kv.js'
import { granted, isKept, revoke } from './lease.js'

interface ControllersOptions {
  readonly client: Client
  readonly keys: Keys
  /** How long a controller that is gone is still listed. */
  readonly ttlSeconds: number
  readonly self: Controller
  /** The clock that the others are told, milliseconds since 1970. */
  readonly now: () => number
  readonly log: (level: 'warn' | 'info', message: string) => void
}

/** A site has a handful. */
const MOST = { bytes: 1024 * 1024, ms: 5000 }
const TEXT = /^[^\x00-\x1f\x7f]{0,1000}$/
/** What a controller tells of its ini: ten so far, and a later release may tell more. */
const MOST_DIGESTS = 20
const DIGEST = /^[0-9a-f]{16}$/
/** So often the others are told what time it is here, and look. */
const CLOCK_MS = 5000
const LOOK_MS = 1000
/** What is found of a clock varies by what an answer takes: that is no news. */
const NO_NEWS_MS = 2000

/** The controllers that are there: each one says so in a key that goes with a lease of its own. */
export class Controllers {
  readonly #o: ControllersOptions
  #lease = ''
  #others: readonly Controller[] = []
  #namesake = ''
  /** Whether the others were looked up so far. */
  isListed = false
  /** When the time was told, in milliseconds that only grow. */
  #toldMs = 0
  /** What each other key said, and at which revision. */
  #heard = new Map<string, Controller & { readonly modified: string }>()
  readonly #telling: Background

  constructor(options: ControllersOptions) {
    this.#o = options
    this.#telling = new Background({
      work: signal => this.#tell(signal),
      everyMs: Math.min(LOOK_MS, (options.ttlSeconds * 1000) / 3),
      failed: reason => options.log('warn', `the other controllers cannot be listed: ${reason}`)
    })
    this.#telling.wake()
  }

  /** Those beside this one, as they were a moment ago, in natural order. */
  get others(): readonly Controller[] {
    return this.#others
  }

  /** Which other one has the name of this one, in a sentence with the way out; '' where none has. */
  get namesake(): string {
    return this.#namesake
  }

  async close(): Promise<void> {
    await this.#telling.close()
    if (this.#lease !== '') await revoke(this.#o.client, this.#lease, this.#limitMs)
  }

  get #limitMs(): number {
    return (this.#o.ttlSeconds * 1000) / 3
  }

  async #tell(signal: AbortSignal): Promise<void> {
    const { client, keys, ttlSeconds, self } = this.#o
    if (this.#lease === '' || !(await isKept(client, this.#lease, this.#limitMs))) {
      this.#lease = ''
      // One that is not used ends by itself.
      const lease = await granted(client, ttlSeconds, this.#limitMs)
      await this.#say(lease)
      this.#lease = lease
    }
    // While etcd has no room, the others are listed all the same.
    else if (performance.now() - this.#toldMs > CLOCK_MS) await this.#say(this.#lease).catch(() => undefined)
    const { pairs } = await list(client, keys.controllers, MOST, signal)
    // What this one said before its last start is still there for a moment.
    this.#hear(pairs.filter(({ lease }) => lease !== this.#lease))
    const others = [...this.#heard.values()].map(({ modified: _, ...other }) => other)
    this.#others = others
      .filter(({ name }) => name !== self.name)
      .sort((a, b) => compareNames(a.name, b.name))
    this.isListed = true
    this.#tellOfNamesake(
      others.find(
        // Machines that were cloned may have one host name.
        ({ name, host, address, port }) =>
          name === self.name && (host !== self.host || address !== self.address || port !== self.port)
      )
    )
  }

  async #say(lease: string): Promise<void> {
    const { client, keys, self, now } = this.#o
    this.#toldMs = performance.now()
    const said = put(`${keys.controllers}${lease}`, JSON.stringify({ ...self, clock: now() }), lease)
    await transact(client, [], [said], [], this.#limitMs)
  }

  /** Takes what the others say. Of clocks it counts what was told since the last look: what the first one finds may be old. */
  #hear(pairs: readonly Pair[]): void {
    const nowMs = this.#o.now()
    const found = pairs.flatMap(pair => {
      const { key, modified } = pair
      const last = this.#heard.get(key)
      return controllerIn(pair, nowMs).map(({ aheadMs: told, ...one }) => {
        const isSame = Math.abs(Number(told) - Number(last?.aheadMs)) < NO_NEWS_MS
        const isKept = !last || last.modified === modified || isSame
        return [key, { ...one, modified, ...aheadIn(isKept ? last?.aheadMs : told) }] as const
      })
    })
    this.#heard = new Map(found)
  }

  #tellOfNamesake(namesake: Controller | undefined): void {
    const told = namesake
      ? `the controller on ${namesake.host}, ${namesake.address} port ${namesake.port} has the name ${this.#o.self.name} too: ` +
        'give each its own, [controller] name'
      : ''
    if (told !== '' && told !== this.#namesake) this.#o.log('warn', told)
    this.#namesake = told
  }
}

/** The controllers that are there; what is told of their clocks is up to CLOCK_MS old. `now`: milliseconds since 1970. */
export async function controllersAt(client: Client, keys: Keys, now: number): Promise<Controller[]> {
  const { pairs } = await list(client, keys.controllers, MOST)
  return pairs.flatMap(pair => controllerIn(pair, now))
}

/** None where it is not known. */
const aheadIn = (ms: unknown) => (Number.isFinite(ms) ? { aheadMs: Number(ms) } : {})

function controllerIn({ value }: Pair, nowMs: number): Controller[] {
  try {
    const said: unknown = JSON.parse(value.toString())
    const { name, host, address, port, ini, url, digests, clock } = isObject(said) ? said : {}
    const isOne = isText(name) && isText(host) && isText(address) && isText(ini) && Number.isSafeInteger(port)
    const reached = isText(url) && isHttp(url) ? { url } : {}
    const told = { ...reached, ...digestsIn(digests), ...aheadIn(typeof clock === 'number' && clock - nowMs) }
    return isOne ? [{ name, host, address, port: Number(port), ini, ...told }] : []
  } catch {
    return []
  }
}

/** None where they are not what a controller tells. */
function digestsIn(said: unknown): Pick<Controller, 'digests'> {
  const told = isObject(said) ? Object.entries(said) : []
  const digests = told.filter(
    (entry): entry is [string, string] =>
      isText(entry[0]) && typeof entry[1] === 'string' && DIGEST.test(entry[1])
  )
  const isWhole = digests.length === told.length && told.length <= MOST_DIGESTS
  return isWhole && told.length > 0 ? { digests: Object.fromEntries(digests) } : {}
}

const isText = (value: unknown): value is string => typeof value === 'string' && TEXT.test(value)

const isHttp = (url: string) => URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)
