import { type Address, parseAddress } from '../../model/address.js'

/** Who has an address, and until when. Both are numbers: a part of a text would keep the whole text in memory. */
export interface Lease {
  /** See `macNumber`. */
  readonly mac: number
  /** Milliseconds since 1970; 0 when it is over. */
  readonly until: number
}

/** A MAC, lower case with colons, as a number; NaN, which equals nothing, for no MAC. */
export const macNumber = (mac: string) => Number.parseInt(mac.replaceAll(':', ''), 16)

/** Takes the lines of a lease file, the oldest first, and keeps the last lease of each address. */
export interface Reader {
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
export const readers: Readonly<Record<string, Reader>> = { isc, kea, dnsmasq }
