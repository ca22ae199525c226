import { setTimeout as sleep } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { timeLimited, yieldTurn } from '../../base/concurrency.js'
import type { Log } from '../../base/log.js'
import { RateLimit } from '../../base/rate-limit.js'
import { isBmc } from '../../model/cluster-index.js'
import type { Model } from '../../model/model.js'
import type { View } from '../../model/stored.js'
import type { NodeDoc } from '../../model/types/node.js'
import type { SwitchDoc } from '../../model/types/switch.js'
import { readTables, type SwitchTables } from './tables.js'

/** A machine waits this long at most, so that it is answered within 2 s. */
const patienceMs = 1_800
/** A slow switch may take this long; the machine finds the table when it asks again. */
const readLimitMs = 20_000
/** A switch is not asked again for so long after a reading or a failure. */
const cacheMs = 30_000
/** Refusals that are remembered, so that each is logged once. */
const loggedMax = 10_000
/** Lines of them: a machine may have any MACs. */
const logRate = { burst: 60, refill: 10, everyMs: 60_000 }
/** Rows read from all switches together, and the bounds of each switch's share. */
const rows = { ofAll: 1_048_576, least: 16_384, most: 65_536 }

interface DetectionOptions {
  readonly model: Model
  readonly log: Log
  /** Milliseconds that only grow. */
  readonly now?: () => number
  /** UDP port of the agents: 161. */
  readonly port?: number
}

/** The tables of one switch, once it has answered. */
interface Reading {
  /** The object at the time of asking: a changed address or community needs a new reading. */
  readonly of: SwitchDoc
  /** Resolves when the reading has ended, well or not. */
  readonly ended: Promise<void>
  /** Undefined until it has ended well. */
  tables: SwitchTables | undefined
  until: number
}

/** The edge port of a switch that a machine is at. */
interface PortLocation {
  readonly switch: SwitchDoc
  readonly port: number
  readonly tables: SwitchTables
}

/** The node that a machine is, and the port that shows it. */
interface Detected {
  readonly node: NodeDoc
  readonly where: string
}

const askable = ({ ipaddress, read }: SwitchDoc) =>
  ipaddress !== undefined && read !== undefined && read !== ''

/** Finds out which node an unknown machine is, by the switch port it is at (rules 4.18). */
export class PortDetection {
  readonly #now: () => number
  readonly #readings = new Map<string, Reading>()
  /** Names of the switches that could not be asked. */
  readonly #failing = new Set<string>()
  readonly #lastReasons = new LRUCache<string, string>({ max: loggedMax })
  readonly #logRate: RateLimit
  readonly #closing = new AbortController()

  constructor(private readonly o: DetectionOptions) {
    this.#now = o.now ?? (() => performance.now())
    this.#logRate = new RateLimit(logRate, this.#now)
  }

  /**
   * Asks all switches at once, within 1.8 s; answers hold for 30 s, for every machine. The result looks the
   * node up in a state of the objects; undefined when the machine is at no known edge port.
   */
  async find(mac: string): Promise<((view: View) => Detected | undefined) | undefined> {
    const readings = await this.#read()
    const places = readings.flatMap(reading => edgePortsOf(mac, reading))
    const [place, another] = places
    if (!place) return undefined
    if (another) {
      const seen = places.map(({ switch: { name }, port, tables }) => `switch ${name} ${tables.label(port)}`)
      this.#warnOnce(
        mac,
        `is at more than one port: ${seen.join(', ')}; ` +
          'the ports that lead to other switches belong in uplinkports'
      )
      return undefined
    }
    return view => this.#nodeAt(view, mac, place)
  }

  /** Returns the edge ports of MACs, asking the switches as `find`; a MAC at several ports has none. */
  async places(macs: readonly string[]): Promise<Map<string, { switch: string; port: string }>> {
    const readings = await this.#read()
    const found = new Map<string, { switch: string; port: string }>()
    for (const [i, mac] of macs.entries()) {
      if (i % 64 === 63) await yieldTurn()
      const [place, another] = readings.flatMap(reading => edgePortsOf(mac, reading))
      if (place && !another)
        found.set(mac, { switch: place.switch.name, port: place.tables.label(place.port) })
    }
    return found
  }

  /** Aborts all readings. */
  close(): void {
    this.#closing.abort()
  }

  /** Begins missing readings of switches that can be asked; resolves with all that ended in time. */
  async #read(): Promise<Reading[]> {
    const { view } = this.o.model
    for (const name of this.#readings.keys()) if (!view.get('switch', name)) this.#readings.delete(name)
    const found: Reading[] = []
    for (const name of view.names('switch')) {
      const doc = view.get('switch', name)
      if (!doc || !askable(doc)) continue
      const last = this.#readings.get(name)
      const reading = last?.of === doc && this.#now() < last.until ? last : this.#begin(doc)
      this.#readings.set(name, reading)
      found.push(reading)
    }
    const patience = new AbortController()
    const { signal } = patience
    const late = sleep(patienceMs, undefined, { signal }).catch(() => {})
    await Promise.race([Promise.all(found.map(({ ended }) => ended)), late])
    patience.abort()
    return found
  }

  #begin(doc: SwitchDoc): Reading {
    const { signal, release } = timeLimited({ signal: this.#closing.signal, timeLimitMs: readLimitMs })
    const share = Math.floor(rows.ofAll / this.o.model.view.names('switch').length)
    const most = Math.max(rows.least, Math.min(share, rows.most))
    const tables = readTables(doc, signal, this.o.port, most).finally(release)
    const ended = tables.then(
      said => {
        reading.tables = said
        if (this.#failing.delete(doc.name)) this.o.log.info(`switch ${doc.name} answers over SNMP again`)
      },
      (error: Error) => {
        if (this.#closing.signal.aborted || this.#failing.has(doc.name)) return
        this.#failing.add(doc.name)
        this.o.log.warn(
          `switch ${doc.name} cannot be asked which machines are at its ports: ${error.message}`
        )
      }
    )
    const reading: Reading = {
      of: doc,
      tables: undefined,
      until: Number.POSITIVE_INFINITY,
      ended: ended.then(() => {
        reading.until = this.#now() + cacheMs
      })
    }
    return reading
  }

  #nodeAt(view: View, mac: string, { switch: { name }, port, tables }: PortLocation): Detected | undefined {
    const where = `switch ${name} ${tables.label(port)}`
    const nodes = view.index
      .referrers({ type: 'switch', name })
      .flatMap(user => (user.type === 'node' ? (view.get('node', user.name) ?? []) : []))
      .filter(node => node.switchport !== undefined && tables.portCalled(node.switchport) === port)
    const [node, another] = nodes
    if (!node) this.#warnOnce(mac, `is at ${where}, where no node is`)
    else if (another)
      this.#warnOnce(mac, `is at ${where}, where more than one node is: ${node.name}, ${another.name}`)
    else {
      const other = node.interfaces?.find(
        ({ interface: on, macaddress }) =>
          macaddress !== undefined && !isBmc({ interface: on }) && tables.macs.get(macaddress)?.includes(port)
      )
      if (!other) return { node, where: `at ${where}` }
      this.#warnOnce(mac, `is at ${where} beside ${other.macaddress}, which node ${node.name} has already`)
    }
    return undefined
  }

  /** Logs why a machine stays unknown, once for each reason, at a pace. */
  #warnOnce(mac: string, reason: string): void {
    if (this.#lastReasons.get(mac) === reason || !this.#logRate.take('')) return
    this.#lastReasons.set(mac, reason)
    this.o.log.warn(`unknown MAC ${mac} ${reason}`)
  }
}

/** Returns the edge ports of a switch on which it learned a MAC. */
function edgePortsOf(mac: string, { of, tables }: Reading): PortLocation[] {
  const ports = tables?.macs.get(mac)
  if (!tables || !ports) return []
  const uplinks = new Set((of.uplinkports ?? '').split(',').map(port => tables.portCalled(port)))
  return ports.filter(port => !uplinks.has(port)).map(port => ({ switch: of, port, tables }))
}
