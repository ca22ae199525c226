import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { singleFlight } from '../../base/concurrency.js'
import { unavailable } from '../../base/errors.js'
import { unlessMissing } from '../../disk/file.js'
import { type Address, formatAddress, parseAddress } from '../../model/address.js'

/** Most reads of the files when the server renames them meanwhile. */
const mostTries = 3

/** The leases in a DHCP server's files, read in pieces when they have changed: there may be 100,000. */
export class Leases {
  readonly #reader: LeaseReader
  readonly #paths: readonly string[]
  #leases: ReadonlyMap<Address, Lease> = new Map()
  /** Stamps of the files at the last read; undefined: they have to be read. */
  #stamps: string | undefined
  /** Concurrent callers share one read. */
  readonly #read = singleFlight(() => this.#refresh())

  constructor(server: keyof typeof readers, file: string) {
    this.#reader = readers[server]
    this.#paths = this.#reader.files.map(suffix => `${file}${suffix}`)
  }

  /** Returns whether a MAC holds this lease now (rules 4.6). Throws 503 when a file cannot be read. */
  async has(mac: string, address: string, nowMs: number): Promise<boolean> {
    if (mac === '') return false
    await this.#readNow()
    const lease = this.#leases.get(parseAddress(address) ?? -1)
    return lease !== undefined && lease.mac === macNumber(mac) && lease.until > nowMs
  }

  /** Returns the latest lease of a MAC (`until` in ms since 1970), undefined for none. Throws as `has`. */
  async of(mac: string): Promise<{ address: string; until: number } | undefined> {
    await this.#readNow()
    const number = macNumber(mac)
    let found: { address: Address; until: number } | undefined
    for (const [address, lease] of this.#leases)
      if (lease.mac === number && lease.until >= (found?.until ?? 0)) found = { address, until: lease.until }
    return found && { address: formatAddress(found.address), until: found.until }
  }

  async #readNow(): Promise<void> {
    await this.#read().catch((error: Error) => {
      throw unavailable(`[dhcp] lease_file: the leases cannot be read: ${error.message}`)
    })
  }

  async #refresh(): Promise<void> {
    for (let tries = 1; ; tries++) {
      const before = await Promise.all(this.#paths.map(stampOf))
      if (before.join() === this.#stamps) return
      const leases = new Map<Address, Lease>()
      for (const path of this.#paths)
        await unlessMissing(takeLines(path, this.#reader.lines(leases)), undefined)
      const after = await Promise.all(this.#paths.map(stampOf))
      // While the server renamed its files, a lease may have been in none of them.
      const moved = after.some((stamp, i) => fileOf(stamp) !== fileOf(before[i] ?? ''))
      if (moved && tries < mostTries) continue
      this.#leases = leases
      this.#stamps = moved ? undefined : before.join()
      return
    }
  }
}

/** Returns "inode size time" of a file, '' for a missing one. */
async function stampOf(path: string): Promise<string> {
  const stats = await unlessMissing(stat(path, { bigint: true }), undefined)
  return stats ? `${stats.ino} ${stats.size} ${stats.mtimeNs}` : ''
}

const fileOf = (stamp: string) => stamp.split(' ')[0]

/** Passes each complete line of a file to `take`, reading it in pieces. */
async function takeLines(path: string, take: (line: string) => void): Promise<void> {
  let rest = ''
  for await (const piece of createReadStream(path, 'utf8')) {
    const lines = `${rest}${piece}`.split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) take(line)
  }
}

/** Holder and end of a lease, as numbers: a slice of a text would keep the whole text in memory. */
interface Lease {
  readonly mac: number
  /** Milliseconds since 1970; 0 when it is over. */
  readonly until: number
}

/** Parses a MAC (lower case, colons); NaN, which equals nothing, for no MAC and for a GUID. */
const macNumber = (mac: string) =>
  mac.length === 17 ? Number.parseInt(mac.replaceAll(':', ''), 16) : Number.NaN

/** Reads lease files, the oldest line first, and keeps the last lease of each address. */
interface LeaseReader {
  /** Suffixes of the configured path, the oldest file first: leases move along them. */
  readonly files: readonly string[]
  /** Returns a function that reads one line, and skips one that makes no sense. */
  lines(leases: Map<Address, Lease>): (line: string) => void
}

/** dhcpd: blocks of lines. */
const isc: LeaseReader = {
  files: [''],
  lines: leases => {
    let address: Address | undefined
    let [mac, until, isActive] = [Number.NaN, 0, false]
    return line => {
      const [, opened] = /^lease ([\d.]+) \{$/.exec(line) ?? []
      if (opened !== undefined) {
        address = parseAddress(opened)
        ;[mac, until, isActive] = [Number.NaN, 0, false]
      } else if (address === undefined) return
      else if (line === '}') {
        leases.set(address, { mac, until: isActive ? until : 0 })
        address = undefined
      } else if (!/^\s/.test(line)) address = undefined
      else {
        const [, key = '', value = ''] =
          /^\s*(hardware ethernet|binding state|ends) ([^;"]*);/.exec(line) ?? []
        if (key === 'hardware ethernet') mac = macNumber(value)
        else if (key === 'binding state') isActive = value === 'active'
        else if (key === 'ends') until = iscTime(value)
      }
    }
  }
}

function iscTime(text: string): number {
  if (text === 'never') return Number.POSITIVE_INFINITY
  const epoch = /^epoch (\d+)$/.exec(text)?.[1]
  if (epoch !== undefined) return Number(epoch) * 1000
  const [, date = '', time = ''] = /^\d ([\d/]+) ([\d:]+)$/.exec(text) ?? []
  // Its times are UTC.
  return Date.parse(`${date.replaceAll('/', '-')}T${time}Z`)
}

/** kea: address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,… */
const kea: LeaseReader = {
  files: ['.2', '.1', '.completed', ''],
  lines: leases => line => {
    const [text = '', mac = '', , lifetime, expire, , , , , state] = line.split(',')
    const address = parseAddress(text)
    if (address === undefined) return
    const isValid = state === '0' && Number(lifetime) > 0
    leases.set(address, { mac: macNumber(mac), until: isValid ? Number(expire) * 1000 : 0 })
  }
}

/** dnsmasq: expiry (0: never), MAC, address, name, client id. */
const dnsmasq: LeaseReader = {
  files: [''],
  lines: leases => line => {
    const [expiry = '', mac = '', text = ''] = line.split(' ')
    const address = parseAddress(text)
    const until = expiry === '0' ? Number.POSITIVE_INFINITY : Number(expiry) * 1000
    if (address !== undefined) leases.set(address, { mac: macNumber(mac), until })
  }
}

/** Name of the server in the ini → its reader. */
const readers = { isc, kea, dnsmasq } as const
