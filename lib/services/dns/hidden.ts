import { Resolver } from 'node:dns/promises'
import type { Captured } from '../capture.js'
import { dnsData } from './data.js'

/** So many zones are asked for, so long each of the resolvers. */
const MOST_ASKED = 20
const ANSWER_MS = 1000

/** The zones that svcd answers for as a whole, with the name servers of each, blanks between them. Yields as `dnsData` does. */
export function* wholeZones(captured: Captured): Generator<undefined, Map<string, string>> {
  const { zones } = yield* dnsData(captured)
  return new Map(
    zones
      .filter(({ single }) => !single)
      .map(({ name, name_server, other_name_servers }) => [
        name,
        [name_server, ...other_name_servers].join(' ')
      ])
  )
}

/**
 * Warnings of zones in which the resolvers of this machine know names of others today: who asks svcd's server would not
 * find these (rules 10.14). What no resolver answers is passed over. `servers`: others than those of /etc/resolv.conf.
 */
export async function hiding(
  zones: ReadonlyMap<string, string>,
  servers?: readonly string[]
): Promise<string[]> {
  const resolver = new Resolver({ timeout: ANSWER_MS, tries: 1 })
  if (servers) resolver.setServers(servers)
  const told = [...zones].slice(0, MOST_ASKED).map(async ([zone, own]) => {
    // A name that does not exist has none below it (RFC 8020). One without an SOA record has, or is a name itself.
    const server = await resolver.resolveSoa(zone).then(
      ({ nsname }) => nsname,
      ({ code }: NodeJS.ErrnoException) => (code === 'ENODATA' ? 'a zone around it' : undefined)
    )
    // An empty zone, as a resolver has it of private addresses by itself, has its own name as that of its server (RFC 6303).
    if (
      server === undefined ||
      [...own.split(' '), `${zone}.`, 'localhost.'].includes(`${server.toLowerCase()}.`)
    )
      return []
    return [
      `DNS zone ${zone}: others have names there today (${server}), and svcd's server would hide those that svcd does not ` +
        'know: give the network "dns": "hosts", or choose a domain of the cluster\'s own'
    ]
  })
  return (await Promise.all(told)).flat()
}
