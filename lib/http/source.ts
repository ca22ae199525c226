import ipaddr from 'ipaddr.js'
import { badRequest } from '../base/errors.js'
import type { RequestSource } from '../base/request-source.js'

type Address = ipaddr.IPv4 | ipaddr.IPv6
type Range = [Address, number]

/**
 * Returns a function that finds the source of a request (rules 4.5): the right-most address in
 * X-Forwarded-For that is no trusted proxy, if the peer is one; else the peer. If all are trusted proxies it
 * is the left-most. An address counts as loopback only if all hops to it are loopback: another machine's
 * loopback is not ours.
 * `trustedProxies` are addresses and CIDRs, IPv4 or IPv6; throws Error for anything else. The returned
 * function throws 400 when a trusted proxy sends a malformed header.
 */
export function sourceReader(
  trustedProxies: readonly string[]
): (peer: string, forwardedFor: string | undefined) => RequestSource {
  const trusted = rangeMatcher(trustedProxies)

  return (peer, forwardedFor) => {
    if (forwardedFor === undefined) return direct(peer)
    const address = parsePeer(peer)
    if (!trusted(address)) return { address: address.toString(), loopback: false }
    let hop = address
    let loopback = isLoopback(hop)
    for (const element of forwardedFor.split(',').reverse()) {
      hop = parseForwarded(element.trim())
      loopback &&= isLoopback(hop)
      if (!trusted(hop)) break
    }
    return { address: hop.toString(), loopback }
  }
}

/** Returns a test whether a peer is in these addresses and CIDRs. Throws Error as `sourceReader` does. */
export function peerMatcher(trustedProxies: readonly string[]): (peer: string) => boolean {
  const trusted = rangeMatcher(trustedProxies)
  return peer => trusted(parsePeer(peer))
}

function rangeMatcher(texts: readonly string[]): (address: Address) => boolean {
  const ranges = texts.map(parseRange)
  return address => ranges.some(([base, bits]) => address.kind() === base.kind() && address.match(base, bits))
}

/** Fast path for nearly every request: the socket gives an IPv4 peer in canonical text. */
function direct(peer: string): RequestSource {
  if (!peer.includes(':')) return { address: peer, loopback: peer.startsWith('127.') }
  const address = parsePeer(peer)
  return { address: address.toString(), loopback: isLoopback(address) }
}

const parsePeer = (peer: string): Address => ipaddr.process(peer.replace(/%.*$/, ''))

/** `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:4711`. */
function parseForwarded(element: string): Address {
  const text =
    /^\[([^\]]*)\](?::\d{1,5})?$/.exec(element)?.[1] ?? /^([\d.]+):\d{1,5}$/.exec(element)?.[1] ?? element
  if (!isAddress(text))
    throw badRequest('X-Forwarded-For holds something that is not an address', 'invalid-http')
  return ipaddr.process(text)
}

/** Refuses `0x7f.1` and zone names, which ipaddr.js accepts: no sound proxy sends them. */
function isAddress(text: string): boolean {
  return ipaddr.IPv4.isValidFourPartDecimal(text) || (/^[\da-f:.]+$/i.test(text) && ipaddr.IPv6.isValid(text))
}

function parseRange(text: string): Range {
  const [base = '', prefix, ...rest] = text.split('/')
  const wrong = () => new Error(`${text} is neither an address nor a network in CIDR form`)
  if (!isAddress(base) || rest.length > 0) throw wrong()
  const address = ipaddr.parse(base)
  const width = address.kind() === 'ipv4' ? 32 : 128
  const bits = prefix === undefined ? width : /^\d{1,3}$/.test(prefix) ? Number(prefix) : Number.NaN
  if (!(bits <= width)) throw wrong()
  // Peers are unwrapped from ::ffff:0:0/96, so ranges must be too.
  if (address.kind() === 'ipv6' && (address as ipaddr.IPv6).isIPv4MappedAddress() && bits >= 96) {
    return [(address as ipaddr.IPv6).toIPv4Address(), bits - 96]
  }
  return [address, bits]
}

const isLoopback = (address: Address) => address.range() === 'loopback'
