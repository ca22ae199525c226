import {
  type DataOf,
  flag,
  integer,
  maps,
  text,
  textMap,
  texts,
  type Variables
} from '../../base/variables.js'

const variables = textMap("the cluster's `variables`")

const record = {
  title: 'record',
  meaning: 'A resource record of a zone.',
  variables: {
    name: text('relative to the zone'),
    type: text<'A' | 'AAAA' | 'CNAME' | 'PTR'>('`A`, `AAAA`, `CNAME` or `PTR`'),
    data: text('an address, or a full name')
  }
} as const

const zone = {
  name: text('name of the zone, without the dot at the end'),
  single: flag('whether it is a name of a zone that svcd does not own alone'),
  name_server: text('full name of the name server, with the dot'),
  other_name_servers: texts(
    'full names of the other name servers: controllers that share the objects, where the network names none'
  ),
  hostmaster: text('mail address as the SOA record has it'),
  records: maps(record, 'the records, but SOA and NS'),
  notes: texts('for comments: what could not be written, a sentence for each')
} as const

const zoneFile = {
  title: 'zone and its file',
  meaning: 'A zone that is written to a file of its own.',
  variables: { name: text('name of the zone'), file: text('path of its file') }
} as const

const hostLine = {
  title: 'line',
  meaning: 'A line of a hosts file.',
  variables: { address: text('an address'), names: texts('its names, the main one first') }
} as const

/** The variables of each template of a name server: their types in code, their text in docs/templates.md. */
export const dnsTemplates = {
  'dns/templ_bind.cfg': { variables, zones: maps(zoneFile, 'the zones, forward and reverse') },
  'dns/templ_bind_zone.cfg': {
    variables,
    ...zone,
    serial: integer('the serial of the SOA record; it grows with every change of the file')
  },
  'dns/templ_dnsmasq.cfg': {
    variables,
    zones: texts('names of the zones, forward and reverse'),
    hosts_file: text('path of the file with all names')
  },
  'dns/templ_dnsmasq_hosts.cfg': {
    variables,
    hosts: maps(hostLine, 'an entry for each address'),
    notes: texts('for comments: aliases that could not be written, a sentence for each')
  }
} as const satisfies Record<string, Variables>

/** A zone as templates see it. Full names end in a dot. */
export type DnsZone = DataOf<typeof zone>
export type DnsRecord = DataOf<typeof record.variables>

export interface DnsData {
  readonly variables: Readonly<Record<string, string>>
  readonly zones: readonly DnsZone[]
  /** The same as lines of a hosts file. */
  readonly hosts: readonly DataOf<typeof hostLine.variables>[]
  /** A sentence for each name that a hosts file cannot express. */
  readonly notes: readonly string[]
}
