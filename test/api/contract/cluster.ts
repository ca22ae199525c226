import type { Cases, Step } from './case.js'
import { mac } from './world.js'

const gone: Readonly<Record<string, null>> = { 'network/idle.json': null }
const missing = (path: string, body?: unknown): Step => ({
  what: 'a missing network',
  ask: body === undefined ? [path] : [path, body],
  status: 404,
  says: /network none does not exist/
})
const one = '/config/network/cluster'
const removeRecord: readonly Step[] = [
  {
    what: 'one of it',
    before: [['/config/dns/idle', [{ host: 'www', ipaddress: '10.9.9.9' }]]],
    ask: ['/config/dns/idle/www/_delete'],
    status: 204,
    files: { 'network/idle.json': { name: 'idle', network: '10.8.0.0/24' } }
  },
  {
    what: 'one that is not there',
    ask: ['/config/dns/idle/www/_delete'],
    status: 404,
    says: /no DNS record www/
  },
  missing('/config/dns/none/www/_delete')
]

const removeNetwork: readonly Step[] = [
  {
    what: 'one that nobody uses',
    ask: ['/config/network/idle/_delete'],
    status: 201,
    says: /idle/,
    files: gone
  },
  {
    what: 'one in use names its users',
    ask: [`${one}/_delete`],
    status: 400,
    says: /network cluster .* 3: (?=.*group compute)(?=.*node n1)(?=.*switch sw1)/
  },
  missing('/config/network/none/_delete')
]
const list = [
  { ipaddress: '10.141.0.1', device: 'n1' },
  { ipaddress: '10.141.0.2', device: 'n1' },
  { ipaddress: '10.141.0.200', device: 'sw1' },
  { ipaddress: '10.141.255.254', device: 'controller' }
]
const addressesOnly = list.map(({ ipaddress }) => ({ ipaddress }))
const taken = (suffix: string): readonly Step[] => [
  {
    what: 'every device, in the order of addresses',
    ask: [`${one}/${suffix}`],
    status: 200,
    body: { config: { network: { cluster: { taken: list } } }, taken: list }
  },
  {
    what: 'no devices without a token',
    ask: [`${one}/${suffix}`],
    by: 'nobody',
    status: 200,
    body: { config: { network: { cluster: { taken: addressesOnly } } }, taken: addressesOnly }
  },
  missing(`/config/network/none/${suffix}`)
]
const state = (address: string, status: string) => ({
  config: { network: { [address]: { status } } },
  [address]: { status }
})
const settings = {
  ntp_server: '',
  technical_contacts: '',
  debug: false,
  provision_method: 'torrent',
  provision_fallback: 'http'
}

/** Cluster, and Network (rules 1.1, 2.1, 2.4, 3.6, 3.7, 3.11, 3.15). */
export const cluster: Cases = {
  'GET /config/cluster': [
    {
      what: 'settings and the controller',
      ask: ['/config/cluster'],
      status: 200,
      shows: {
        config: {
          cluster: {
            name: 'cluster',
            controller: {
              status: 'primary',
              ipaddr: '10.141.255.254',
              serverport: Number,
              svc_config: /\/svcd\.ini$/
            },
            ...settings
          }
        }
      }
    }
  ],
  'POST /config/cluster': [
    {
      what: 'two of the five',
      ask: [
        '/config/cluster',
        { config: { cluster: { ntp_server: 'ntp.example.org', provision_method: 'http' } } }
      ],
      status: 204,
      files: {
        'cluster/cluster.json': {
          name: 'cluster',
          settings: {
            ntp_server: { value: 'ntp.example.org', ini: '' },
            provision_method: { value: 'http', ini: 'torrent' }
          }
        }
      },
      later: [
        '/config/cluster',
        { config: { cluster: { ...settings, ntp_server: 'ntp.example.org', provision_method: 'http' } } }
      ]
    },
    {
      what: "the controller's object",
      ask: ['/config/cluster', { controller: { status: 'standby' } }],
      status: 400,
      says: /controller/
    },
    { what: 'a setting of the ini', ask: ['/config/cluster', { name: 'x' }], status: 400, says: /"name"/ },
    { what: 'an unknown field', ask: ['/config/cluster', { color: 1 }], status: 400, says: /"color"/ },
    {
      what: 'a wrong type',
      ask: ['/config/cluster', { debug: 'yes' }],
      status: 400,
      says: /"debug".*must be true or false/
    },
    {
      what: 'an unknown method',
      ask: ['/config/cluster', { provision_method: 'ftp' }],
      status: 400,
      says: /torrent, http/
    }
  ],
  'GET /config/cluster/export': [
    {
      what: 'every section, stored values, secrets in the clear',
      ask: ['/config/cluster/export'],
      status: 200,
      shows: {
        config: {
          cluster: settings,
          network: { full: { network: '10.9.0.0/30' } },
          osimage: { idle: { name: 'idle' } },
          bmcsetup: { boards: { password: 'calvin' } },
          group: { compute: { osimage: 'compute' } },
          node: { n1: { interfaces: [{ macaddress: mac }] } },
          switch: { sw1: { read: 'public' } },
          otherdev: { pdu: { ipaddress: '10.9.0.2' } },
          osimagetag: { stable: { osimage: 'compute' } },
          secrets: { group: { compute: [{ name: 'munge' }] }, node: { n1: [{ name: 'host' }] } }
        }
      }
    },
    {
      what: 'for a viewer',
      ask: ['/config/cluster/export'],
      by: 'viewer',
      status: 200,
      shows: { config: { bmcsetup: { boards: { password: '********' } } } }
    }
  ],
  'GET /config/cluster/snapshot': [
    {
      what: 'the files of objects, secrets encrypted',
      ask: ['/config/cluster/snapshot'],
      status: 200,
      shows: {
        snapshot: { 'otherdev/pdu.json': /"ipaddress": "10.9.0.2"/, 'bmcsetup/boards.json': /"encrypted": / }
      }
    }
  ],
  'POST /config/cluster/import': [
    {
      what: 'the sections that are present are replaced',
      ask: ['/config/cluster/import', { config: { otherdev: { ups: { comment: 'x' } } } }],
      status: 201,
      body: { message: 'imported: other device: 1 created, 1 deleted' },
      files: { 'otherdev/pdu.json': null, 'otherdev/ups.json': { name: 'ups', comment: 'x' } }
    },
    {
      what: 'a dry run',
      ask: ['/config/cluster/import?dryrun=yes', { config: { otherdev: { ups: {} } } }],
      status: 200,
      shows: {
        message:
          'dry run, nothing was changed: 1 other device would be created, 1 other device would be deleted',
        changes: { otherdev: { created: ['ups'], changed: [], deleted: ['pdu'] } },
        mark: /^[0-9a-f]{32}$/
      }
    },
    {
      what: 'not what a dry run has shown',
      ask: [`/config/cluster/import?expect=${'0'.repeat(32)}`, { config: { otherdev: { ups: {} } } }],
      status: 400,
      says: /^import refused: something has changed since the dry run/
    },
    {
      what: 'a wrong shape',
      ask: ['/config/cluster/import', { config: { node: [] } }],
      status: 400,
      says: /config\.node/
    },
    {
      what: 'an unknown section',
      ask: ['/config/cluster/import', { nodes: {} }],
      status: 400,
      says: /config\.nodes/
    },
    {
      what: 'a broken rule',
      ask: ['/config/cluster/import', { config: { switch: {}, osimage: {} } }],
      status: 404,
      says: /config\.group\.compute.*OS image compute/
    }
  ],

  'GET /config/network': [
    {
      what: 'all networks',
      ask: ['/config/network'],
      status: 200,
      shows: {
        config: { network: { cluster: { network: '10.141.0.0/16' }, full: {}, idle: { dhcp: false } } }
      }
    }
  ],
  'GET /config/network/{networkname}': [
    {
      what: 'one network',
      ask: [one],
      status: 200,
      body: {
        config: {
          network: {
            cluster: {
              name: 'cluster',
              network: '10.141.0.0/16',
              gateway: '10.141.255.253',
              ns_hostname: null,
              ns_ip: null,
              ntp_server: null,
              comment: null,
              dhcp: false
            }
          }
        }
      }
    },
    missing('/config/network/none')
  ],
  'GET /config/network/{ipaddr}': [
    {
      what: 'a taken address',
      ask: ['/config/network/10.141.0.1'],
      status: 200,
      body: state('10.141.0.1', 'taken')
    },
    {
      what: 'without a token too',
      ask: ['/config/network/10.141.0.9'],
      by: 'nobody',
      status: 200,
      body: state('10.141.0.9', 'free')
    },
    { what: 'with a bad one', ask: ['/config/network/10.141.0.9'], by: 'garbage', status: 401 },
    { what: 'in no network', ask: ['/config/network/192.0.2.1'], status: 404, says: /192\.0\.2\.1/ }
  ],
  'POST /config/network/{networkname}': [
    {
      what: 'created',
      ask: ['/config/network/new', { network: '10.7.0.0/16', nameserver_ip: '10.7.0.1' }],
      status: 201,
      says: /network new/,
      files: { 'network/new.json': { name: 'new', network: '10.7.0.0/16', ns_ip: '10.7.0.1' } }
    },
    {
      what: 'changed: 200, with a message',
      ask: ['/config/network/idle', { dhcp: true, dhcp_begin: '10.8.0.10', dhcp_end: '10.8.0.20' }],
      status: 200,
      says: /network idle/,
      files: {
        'network/idle.json': {
          name: 'idle',
          network: '10.8.0.0/24',
          dhcp: true,
          dhcp_range_begin: '10.8.0.10',
          dhcp_range_end: '10.8.0.20'
        }
      }
    },
    {
      what: 'renamed: whoever is in it follows',
      ask: ['/config/network/full', { newnetname: 'small' }],
      status: 200,
      files: {
        'network/full.json': null,
        'network/small.json': { name: 'small', network: '10.9.0.0/30', gateway: '10.9.0.1' },
        'group/crowded.json': { name: 'crowded', interfaces: [{ interface: 'BOOTIF', network: 'small' }] },
        'otherdev/pdu.json': { name: 'pdu', network: 'small', ipaddress: '10.9.0.2' }
      }
    },
    { what: 'no network', ask: ['/config/network/new', { comment: 'x' }], status: 400, says: /"network"/ },
    {
      what: 'named like an address',
      ask: ['/config/network/10.7.0.0', { network: '10.7.0.0/16' }],
      status: 400
    },
    {
      what: 'a gateway outside',
      ask: ['/config/network/idle', { gateway: '10.9.0.1' }],
      status: 400,
      says: /"gateway"/
    },
    {
      what: "a device's address for a gateway",
      ask: [one, { gateway: '10.141.0.1' }],
      status: 400,
      says: /node n1/
    },
    {
      what: 'an address is left outside',
      ask: [one, { network: '10.141.0.0/31', gateway: null }],
      status: 400,
      says: /10\.141\.0\.\d/
    },
    missing('/config/network/none', { newnetname: 'x' })
  ],
  'POST /config/network/{networkname}/_clone': [
    {
      what: 'the whole of it',
      ask: ['/config/network/full/_clone', { newnetname: 'copy' }],
      status: 204,
      files: { 'network/copy.json': { name: 'copy', network: '10.9.0.0/30', gateway: '10.9.0.1' } }
    },
    { what: 'no new name', ask: ['/config/network/full/_clone', {}], status: 400, says: /"newnetname"/ },
    missing('/config/network/none/_clone', { newnetname: 'x' })
  ],
  'POST /config/network/{networkname}/_renumber': [
    {
      what: 'another prefix',
      ask: ['/config/network/full/_renumber', { network: '10.10.0.0/30' }],
      status: 200,
      body: { message: 'network full renumbered: 1 address of nodes and devices moved' },
      files: {
        'network/full.json': { name: 'full', network: '10.10.0.0/30', gateway: '10.10.0.1' },
        'otherdev/pdu.json': { name: 'pdu', network: 'full', ipaddress: '10.10.0.2' }
      }
    },
    { what: 'no prefix', ask: ['/config/network/full/_renumber', {}], status: 400, says: /field "network"/ },
    missing('/config/network/none/_renumber', { network: '10.10.0.0/30' })
  ],
  'GET /config/dns/{network}': [
    { what: 'none so far', ask: ['/config/dns/full'], status: 200, body: { config: { dns: { full: [] } } } },
    missing('/config/dns/none')
  ],
  'POST /config/dns/{network}': [
    {
      what: 'a new one',
      ask: ['/config/dns/full', [{ host: 'www', alias: 'pdu' }]],
      status: 201,
      body: { message: 'DNS records of network full created' },
      files: {
        'network/full.json': {
          ...{ name: 'full', network: '10.9.0.0/30', gateway: '10.9.0.1' },
          dns_records: [{ host: 'www', alias: 'pdu' }]
        }
      }
    },
    {
      what: 'another address',
      before: [['/config/dns/full', [{ host: 'www', alias: 'pdu' }]]],
      ask: ['/config/dns/full', [{ host: 'www', ipaddress: '10.9.9.9' }]],
      status: 204,
      files: {
        'network/full.json': {
          ...{ name: 'full', network: '10.9.0.0/30', gateway: '10.9.0.1' },
          dns_records: [{ host: 'www', ipaddress: '10.9.9.9' }]
        }
      }
    },
    {
      what: 'the name of a device',
      ask: ['/config/dns/full', [{ host: 'pdu', alias: 'x' }]],
      status: 400,
      says: /other device pdu/
    },
    missing('/config/dns/none', [{ host: 'www', alias: 'pdu' }])
  ],
  'GET /config/dns/{network}/{host}/_delete': removeRecord,
  'POST /config/dns/{network}/{host}/_delete': removeRecord,
  'GET /config/network/{networkname}/_delete': removeNetwork,
  'POST /config/network/{networkname}/_delete': removeNetwork,
  'GET /config/network/{networkname}/{ipaddress}': [
    { what: 'a free address', ask: [`${one}/10.141.0.9`], status: 200, body: state('10.141.0.9', 'free') },
    {
      what: "the controller's, without a token",
      ask: [`${one}/10.141.255.254`],
      by: 'nobody',
      status: 200,
      body: state('10.141.255.254', 'taken')
    },
    { what: 'outside', ask: [`${one}/10.8.0.1`], status: 404, says: /outside network cluster/ },
    missing('/config/network/none/10.8.0.1')
  ],
  'GET /config/network/{networkname}/_list': taken('_list'),
  'GET /config/network/{networkname}/_member': taken('_member'),
  'GET /config/network/{networkname}/_nextfreeip': [
    {
      what: 'nothing is reserved',
      ask: [`${one}/_nextfreeip`],
      status: 200,
      body: { config: { network: { cluster: { nextip: '10.141.0.3' } } }, nextip: '10.141.0.3' }
    },
    {
      what: 'without a token',
      ask: [`${one}/_nextfreeip`],
      by: 'nobody',
      status: 200,
      shows: { nextip: '10.141.0.3' }
    },
    { what: 'no free address', ask: ['/config/network/full/_nextfreeip'], status: 404, says: /network full/ },
    missing('/config/network/none/_nextfreeip')
  ]
}
