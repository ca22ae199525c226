import { readFile } from 'node:fs/promises'

/** A lease as a server's file has it. */
interface Lease {
  readonly address: string
  /** Milliseconds since 1970. */
  readonly until: number
}

type Read = (text: string, mac: string) => Iterable<Lease>

/** dhcpd: blocks, the last one of an address counts. */
function* ofIsc(text: string, mac: string): Iterable<Lease> {
  const last = new Map<string, string>()
  // Other machines' later leases of an address end this one's.
  for (const [block, address = ''] of text.matchAll(/^lease ([\d.]+) \{\n(?:[ \t].*\n)*\}/gm))
    last.set(address, block)
  for (const [address, block] of last) {
    if (!block.includes(`hardware ethernet ${mac};`) || !/^\s*binding state active;/m.test(block)) continue
    const [, ends = ''] = /^\s*ends (never|epoch \d+|\d [\d/]+ [\d:]+);/m.exec(block) ?? []
    yield { address, until: iscTime(ends) }
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

/** kea: address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,…; later lines win. */
function* ofKea(text: string, mac: string): Iterable<Lease> {
  const last = new Map<string, Lease & { mac: string }>()
  for (const line of text.split('\n')) {
    const [address = '', hardware = '', , lifetime, expire, , , , , state] = line.split(',')
    if (!/^[\d.]+$/.test(address)) continue
    const valid = state === '0' && Number(lifetime) > 0
    last.set(address, { address, mac: hardware, until: valid ? Number(expire) * 1000 : 0 })
  }
  for (const lease of last.values()) if (lease.mac === mac) yield lease
}

/** dnsmasq: expiry (0: never), MAC, address, name, client id. */
function* ofDnsmasq(text: string, mac: string): Iterable<Lease> {
  for (const line of text.split('\n')) {
    const [expiry = '', hardware, address = ''] = line.split(' ')
    if (hardware !== mac || !/^[\d.]+$/.test(address)) continue
    yield { address, until: expiry === '0' ? Number.POSITIVE_INFINITY : Number(expiry) * 1000 }
  }
}

const readers: Readonly<Record<string, Read>> = { isc: ofIsc, kea: ofKea, dnsmasq: ofDnsmasq }

/**
 * Whether a DHCP server's lease file gives an address to a MAC now (decisions 4.6). A file that is not there gives
 * nobody anything. The file is read whole: once for an install script, not for each request of a boot.
 */
export async function hasLease(
  server: string,
  file: string,
  mac: string,
  address: string,
  nowMs: number
): Promise<boolean> {
  if (mac === '') return false
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return ''
    throw error
  })
  for (const lease of readers[server]?.(text, mac) ?? [])
    if (lease.address === address && lease.until > nowMs) return true
  return false
}
