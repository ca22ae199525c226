import { Resolver } from 'node:dns/promises'
import type { Captured } from '../capture.js'
import { dnsData } from './data.js'

/** Most zones that are looked up, and the time limit of each resolver. */
const MOST_ASKED = 20
const ANSWER_MS = 1000

/** Returns the zones that svcd serves as a whole → their name servers, separated by blanks. */
export function* ownedZones(captured: Captured): Generator<undefined, Map<string, string>> {
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
 * Warns of zones in which this machine's resolvers know foreign names, which svcd's server would hide (rules
 * 10.14). A zone without an answer is skipped. `servers` replaces those of /etc/resolv.conf.
 */
export async function foreignNameWarnings(
  zones: ReadonlyMap<string, string>,
  servers?: readonly string[]
): Promise<string[]> {
  const resolver = new Resolver({ timeout: ANSWER_MS, tries: 1 })
  if (servers) resolver.setServers(servers)
  const told = [...zones].slice(0, MOST_ASKED).map(async ([zone, own]) => {
    // A name that does not exist has none below it (RFC 8020); one that exists without an SOA record may
    // have.
    const server = await resolver.resolveSoa(zone).then(
      ({ nsname }) => nsname,
      ({ code }: NodeJS.ErrnoException) => (code === 'ENODATA' ? 'a zone around it' : undefined)
    )
    // A resolver's built-in empty zone of private addresses names itself as its server (RFC 6303).
    if (
      server === undefined ||
      [...own.split(' '), `${zone}.`, 'localhost.'].includes(`${server.toLowerCase()}.`)
    )
      return []
    return [
      `DNS zone ${zone}: others have names there today (${server}), and svcd's server would hide those ` +
        'that svcd does not know: give the network "dns": "hosts", or choose a domain of the cluster\'s own'
    ]
  })
  return (await Promise.all(told)).flat()
}
