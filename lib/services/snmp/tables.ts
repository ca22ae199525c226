import { runSliced } from '../../base/concurrency.js'
import type { SwitchDoc } from '../../model/types/switch.js'
import { openSnmp } from './session.js'

// Numeric, so that no MIB file is needed.
const dot1qTpFdbPort = '1.3.6.1.2.1.17.7.1.2.2.1.2'
const dot1dTpFdbPort = '1.3.6.1.2.1.17.4.3.1.2'
const dot1dBasePortIfIndex = '1.3.6.1.2.1.17.1.4.1.2'
/** Most ports of a MAC, which may be on another one in each VLAN. */
const mostPorts = 64
const ifName = '1.3.6.1.2.1.31.1.1.1.1'

/** The tables of a switch at one moment. */
export class SwitchTables {
  /** Name, number or ifIndex of a port → its number in the MAC tables. */
  readonly #ports = new Map<string, number>()
  readonly #labels = new Map<number, string>()

  constructor(
    /** MAC → the ports it was learned on, in any VLAN. */
    readonly macs: ReadonlyMap<string, readonly number[]>,
    indexes: ReadonlyMap<number, number>,
    names: ReadonlyMap<number, string>
  ) {
    // Later entries win: a name is printed on the switch, and a port number precedes an ifIndex.
    for (const [port, index] of indexes) this.#ports.set(String(index), port)
    for (const port of indexes.keys()) this.#ports.set(String(port), port)
    const known = new Map([...indexes].map(([port, index]) => [index, port]))
    for (const [index, name] of names) {
      // A vendor's own table may count in ifIndex, where the bridge has no port for it.
      const port = known.get(index) ?? (indexes.has(index) ? undefined : index)
      if (port === undefined || name === '') continue
      this.#ports.set(name, port)
      this.#labels.set(port, name)
    }
  }

  /** Finds a port by name (ifName), number or ifIndex, in this order. */
  portCalled(name: string | number): number | undefined {
    const text = String(name).trim()
    return this.#ports.get(text) ?? (/^[1-9]\d*$/.test(text) ? Number(text) : undefined)
  }

  /** Names a port in a message. */
  label(port: number): string {
    const name = this.#labels.get(port)
    return name === undefined ? `port ${port}` : `port ${port} (${name})`
  }
}

/**
 * Asks a switch for its tables: that of `oid`, else those of Q-BRIDGE-MIB and BRIDGE-MIB together. Throws an
 * Error without a secret in its message, also for more than `most` rows.
 */
export async function readTables(
  { ipaddress = '', read = '', oid }: SwitchDoc,
  signal: AbortSignal,
  port?: number,
  most?: number
): Promise<SwitchTables> {
  signal.throwIfAborted()
  const conversation = openSnmp(ipaddress, read, port, most)
  const close = () => conversation.close()
  signal.addEventListener('abort', close)
  try {
    const forwarding = oid === undefined ? [dot1qTpFdbPort, dot1dTpFdbPort] : [oid.replace(/^\./, '')]
    const [indexes, names, ...learned] = await Promise.all(
      [dot1dBasePortIfIndex, ifName, ...forwarding].map(table => conversation.table(table))
    )
    return new SwitchTables(await runSliced(macsOf(learned)), numbers(indexes), texts(names))
  } finally {
    signal.removeEventListener('abort', close)
    if (!signal.aborted) close()
  }
}

/** A row's last six numbers are the MAC; before them Q-BRIDGE-MIB has the VLAN's. Port 0 is none. */
function* macsOf(tables: readonly ReadonlyMap<string, unknown>[]): Generator<void, Map<string, number[]>> {
  const macs = new Map<string, number[]>()
  for (const table of tables)
    for (const [key, port] of table) {
      yield
      const octets = key.split('.').slice(-6).map(Number)
      if (octets.length < 6 || octets.some(octet => octet > 255) || !isPort(port)) continue
      const mac = octets.map(octet => octet.toString(16).padStart(2, '0')).join(':')
      const ports = macs.get(mac)
      if (!ports) macs.set(mac, [port])
      else if (!ports.includes(port) && ports.length < mostPorts) ports.push(port)
    }
  return macs
}

const isPort = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0

type Table = ReadonlyMap<string, unknown>

const numbers = (table: Table = new Map()) =>
  new Map([...table].flatMap(([key, value]) => (isPort(value) ? [[Number(key), value] as const] : [])))

const texts = (table: Table = new Map()) =>
  new Map(
    [...table].flatMap(([key, value]) =>
      typeof value === 'string' ? [[Number(key), value.trim()] as const] : []
    )
  )
