import { type Prefix, parsePrefix } from '../../model/address.js'
import type { DhcpSubnet } from './variables.js'

/** Something with a prefix, and what lies directly in it: in it, and in nothing smaller that lies in it. */
export interface Nest<T> {
  readonly of: T
  readonly inside: Nest<T>[]
}

/** Tells which of different prefixes lie in which. Two of them overlap only when one holds the other. */
export function nests<T extends { readonly prefix: Prefix }>(all: readonly T[]): Nest<T>[] {
  const outermost: Nest<T>[] = []
  const around: Nest<T>[] = []
  const sorted = [...all].sort((a, b) => a.prefix.first - b.prefix.first || a.prefix.length - b.prefix.length)
  for (const of of sorted) {
    while (around.length > 0 && (around.at(-1)?.of.prefix.last ?? 0) < of.prefix.first) around.pop()
    const nest: Nest<T> = { of, inside: [] }
    ;(around.at(-1)?.inside ?? outermost).push(nest)
    around.push(nest)
  }
  return outermost
}

/**
 * The subnets by wire, as servers need them. Those that serve DHCP and overlap lie on one wire, the longest prefix
 * first, as that one answers for its addresses (rules 3.6). A wire comes after those around it.
 */
export function wires(subnets: readonly DhcpSubnet[]): DhcpSubnet[][] {
  const length = (subnet: DhcpSubnet | undefined) => parsePrefix(subnet?.cidr ?? '')?.length ?? 0
  const serving = subnets.flatMap(subnet => {
    const prefix = subnet.dhcp ? parsePrefix(subnet.cidr) : undefined
    return prefix ? [{ prefix, subnet }] : []
  })
  const together = nests(serving).map(nest =>
    flat(nest)
      .sort((a, b) => b.prefix.length - a.prefix.length)
      .map(({ subnet }) => subnet)
  )
  const silent = subnets.filter(({ dhcp }) => !dhcp).map(subnet => [subnet])
  return [...together, ...silent].sort((a, b) => length(a.at(-1)) - length(b.at(-1)))
}

const flat = <T>({ of, inside }: Nest<T>): T[] => [of, ...inside.flatMap(flat)]
