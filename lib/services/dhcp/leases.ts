import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { singleFlight } from '../../concurrency.js'
import { unlessMissing } from '../../disk/file.js'
import { unavailable } from '../../errors.js'
import { type Address, formatAddress, parseAddress } from '../../model/address.js'

/** How often files are read when the server renames them meanwhile. */
const mostTries = 3

/**
 * The leases in a DHCP server's files. The files are read when somebody asks and they have changed: once for all who
 * ask meanwhile, and in pieces, as there may be 100,000 leases.
 */
export class Leases {
  readonly #paths: readonly string[]
  #leases: ReadonlyMap<Address, Lease> = new Map()
  /** The stamps of the files as they were read; undefined: they have to be read. */
  #stamps: string | undefined
  readonly #read = singleFlight(() => this.#refresh())

  constructor(
    private readonly server: string,
    file: string
  ) {
    this.#paths = (readers[server]?.files ?? []).map(suffix => `${file}${suffix}`)
  }

  /**
   * Whether a MAC has an address now (rules 4.6). A missing file holds no lease. Throws 503 when a file cannot be read.
   */
  async has(mac: string, address: string, nowMs: number): Promise<boolean> {
    if (mac === '') return false
    await this.#readNow()
    const lease = this.#leases.get(parseAddress(address) ?? -1)
    return lease !== undefined && lease.mac === macNumber(mac) && lease.until > nowMs
  }

  /** The address that was last lent to a MAC, and until when; undefined for none. Throws as `has`. */
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
      for (const path of this.#paths) await read(path, readers[this.server]?.lines(leases))
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

/** "file size time", '' where there is none. */
async function stampOf(path: string): Promise<string> {
  const stats = await unlessMissing(stat(path, { bigint: true }), undefined)
  return stats ? `${stats.ino} ${stats.size} ${stats.mtimeNs}` : ''
}

const fileOf = (stamp: string) => stamp.split(' ')[0]

/** Takes the whole lines of a file, a piece at a time. */
async function read(path: string, take: ((line: string) => void) | undefined): Promise<void> {
  if (!take) return
  await unlessMissing(takeLines(path, take), undefined)
}

async function takeLines(path: string, take: (line: string) => void): Promise<void> {
  let rest = ''
  for await (const piece of createReadStream(path, 'utf8')) {
    const lines = `${rest}${piece}`.split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) take(line)
  }
}

/** Who has an address, and until when. Both are numbers: a part of a text would keep the whole text in memory. */
interface Lease {
  /** See `macNumber`. */
  readonly mac: number
  /** Milliseconds since 1970; 0 when it is over. */
  readonly until: number
}

/** A MAC, lower case with colons, as a number; NaN, which equals nothing, for no MAC, and for a GUID, which no number holds. */
const macNumber = (mac: string) =>
  mac.length === 17 ? Number.parseInt(mac.replaceAll(':', ''), 16) : Number.NaN

/** Takes the lines of a lease file, the oldest first, and keeps the last lease of each address. */
interface Reader {
  /**
   * What is appended to the configured path to name the server's files, the oldest first: leases move from one to the
   * next.
   */
  readonly files: readonly string[]
  /** Reads what a server wrote, line by line; a line that makes no sense is skipped. */
  lines(leases: Map<Address, Lease>): (line: string) => void
}

/** dhcpd: blocks of lines. */
const isc: Reader = {
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

/**
 * kea: address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,…; later lines win.
 * Its clean-up (LFC) makes one file of .2 and .1, first named .completed and then .2.
 */
const kea: Reader = {
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
const dnsmasq: Reader = {
  files: [''],
  lines: leases => line => {
    const [expiry = '', mac = '', text = ''] = line.split(' ')
    const address = parseAddress(text)
    const until = expiry === '0' ? Number.POSITIVE_INFINITY : Number(expiry) * 1000
    if (address !== undefined) leases.set(address, { mac: macNumber(mac), until })
  }
}

/** By the name of the server in the ini. */
const readers: Readonly<Record<string, Reader>> = { isc, kea, dnsmasq }
