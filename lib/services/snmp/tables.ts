import { createSocket, type Socket } from 'node:dgram'
import snmp, { type Session, type User, type Varbind } from 'net-snmp'
import { runSliced } from '../../base/concurrency.js'
import type { SwitchDoc } from '../../model/types/switch.js'

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

/** Asks a switch: `oid`, or both standard tables. Throws Error without a secret, also above `most` rows. */
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

/** A switch that leaves three tries unanswered counts as dead, in less time than a machine waits. */
const tryMs = 500
const retries = 2
/** Rows per request: an answer fits into one Ethernet frame. */
const rowsAtOnce = 40
/** Longest text and longest table index, in bytes (RFC 2579: 255). */
const longest = 255

/**
 * Opens a conversation with the SNMP agent at an IPv4 address. `read` is a v2c community, or a v3 user as
 * `v3:<user>[:<authentication password>[:<privacy password>]]` (SHA and AES-128; none may hold a colon). It
 * fails when the agent sends more than `most` rows.
 */
export function openSnmp(address: string, read: string, port = 161, most = Number.POSITIVE_INFINITY) {
  let left = most
  const waiting = new Set<(error: Error) => void>()
  const fail = (why: string) => {
    for (const reject of [...waiting]) reject(new Error(why))
  }
  const session = open(address, read, port, () => fail('its answer is not valid'))
  // A packet that is not SNMP counts as no answer.
  session.on('error', () => {})
  return {
    /** Reads numbers and short texts below an OID: rest of the OID → value. Its Error holds no secret. */
    table: (oid: string) =>
      new Promise<Map<string, number | string>>((resolve, reject) => {
        const rows = new Map<string, number | string>()
        const end = (settle: () => void) => {
          waiting.delete(refuse)
          settle()
        }
        const refuse = (error: Error) => end(() => reject(error))
        waiting.add(refuse)
        session.subtree(
          oid,
          rowsAtOnce,
          varbinds => {
            left -= varbinds.length
            if (left < 0) fail(`it tells more than ${most} rows`)
            return left < 0 || !take(varbinds, oid, rows)
          },
          error => end(() => (error ? reject(new Error(reasonOf(error))) : resolve(rows)))
        )
      }),
    close() {
      fail('it was not asked to the end')
      session.close()
    }
  }
}

/** Adds rows; false for a repeated row: a looping agent is not followed. Buffers are slices of the packet. */
function take(varbinds: readonly Varbind[], oid: string, rows: Map<string, number | string>): boolean {
  for (const { oid: place, value } of varbinds) {
    if (place.length > oid.length + longest) continue
    const key = place.slice(oid.length + 1)
    if (rows.has(key)) return false
    if (typeof value === 'number') rows.set(key, value)
    else if (Buffer.isBuffer(value) && value.length <= longest) rows.set(key, value.toString('utf8'))
  }
  return true
}

function open(address: string, read: string, port: number, onBad: () => void): Session {
  const options = { port, retries, timeout: tryMs, dgramModule: { createSocket: guarded(onBad) } }
  const user = userOf(read)
  return user
    ? snmp.createV3Session(address, user, { ...options, version: snmp.Version3 })
    : snmp.createSession(address, read, { ...options, version: snmp.Version2c })
}

function userOf(read: string): User | undefined {
  const [form, name = '', authKey, privKey] = read.split(':')
  if (form !== 'v3') return undefined
  const { noAuthNoPriv, authNoPriv, authPriv } = snmp.SecurityLevel
  if (!authKey) return { name, level: noAuthNoPriv }
  const withAuth = { name, authProtocol: snmp.AuthProtocols.sha, authKey }
  if (!privKey) return { ...withAuth, level: authNoPriv }
  return { ...withAuth, level: authPriv, privProtocol: snmp.PrivProtocols.aes, privKey }
}

/** Makes sockets that drop an answer on which the package throws, as that would end the daemon. */
const guarded = (onBad: () => void) => (type: 'udp4') => {
  const socket = createSocket(type)
  const on = socket.on.bind(socket) as (event: string, listener: (...args: unknown[]) => void) => Socket
  socket.on = (event: string, listener: (...args: never[]) => void) =>
    on(event, (...args) => {
      try {
        listener(...(args as never[]))
      } catch {
        onBad()
      }
    })
  return socket
}

/** The package's own messages may hold the community, or parts of an answer. */
function reasonOf(error: Error): string {
  const { name, message } = error
  const code = (error as { code?: unknown }).code
  if (name === 'RequestTimedOutError') return `it does not answer (${retries + 1} tries, ${tryMs} ms each)`
  if (name === 'RequestFailedError') return `it refuses the request (${message})`
  if (name === 'ResponseInvalidError')
    return `its answer is not valid (${snmp.ResponseInvalidCode[String(code)] ?? 'for no known reason'})`
  return `it cannot be asked (${typeof code === 'string' ? code : name})`
}
