import type { Cases, Step } from './case.js'
import { files, mac } from './world.js'

const one = '/config/node/n1'
const doc = files.n1
const [bootif, eth1] = files.n1.interfaces
const shown = [
  { ...bootif, options: '' },
  { interface: 'eth1', network: 'cluster', ipaddress: '10.141.0.2', macaddress: null, options: '' }
]
const secrets = [{ name: 'host', path: '/etc/ssh/host_key', content: 'of n1' }]

const missing = (path: string, body?: unknown): Step => ({
  what: 'a missing node is 404, not 401',
  ask: body === undefined ? [path] : [path, body],
  status: 404,
  says: /node n9 does not exist/
})
const remove: readonly Step[] = [
  {
    what: 'with its secrets',
    ask: [`${one}/_delete`],
    status: 204,
    files: { 'node/n1.json': null, 'secrets/node.n1.json': null },
    later: ['/config/group/compute/_list', { config: { group: { compute: { members: [] } } } }]
  },
  missing('/config/node/n9/_delete')
]
const removeInterface: readonly Step[] = [
  {
    what: "one of its group's: that is remembered",
    ask: [`${one}/interfaces/BOOTIF/_delete`],
    status: 204,
    files: { 'node/n1.json': { ...doc, interfaces: [eth1], removed: ['BOOTIF'] } }
  },
  {
    what: 'one of its own',
    ask: [`${one}/interfaces/eth1/_delete`],
    status: 204,
    files: { 'node/n1.json': { ...doc, interfaces: [bootif] } }
  },
  { what: 'one it lacks', ask: [`${one}/interfaces/eth9/_delete`], status: 404, says: /no interface eth9/ },
  missing('/config/node/n9/interfaces/BOOTIF/_delete')
]
const preview = (what: string, text: RegExp): readonly Step[] => [
  { what: 'what the node would get, masked', ask: [`${one}/_render/${what}`], status: 200, text },
  missing(`/config/node/n9/_render/${what}`)
]
const address = (ipaddress: string, force = false) => ({
  interfaces: [{ interface: 'BOOTIF', ipaddress, force }]
})

/** Node (rules 1.9, 1.10, 2.1, 2.2, 3.4, 3.5, 4.8, 4.12). */
export const node: Cases = {
  'GET /config/node': [
    {
      what: 'all nodes',
      ask: ['/config/node'],
      status: 200,
      shows: { config: { node: { n1: { name: 'n1' }, n2: { name: 'n2', interfaces: [] } } } }
    }
  ],
  'POST /config/node': [
    {
      what: 'the lines of a table',
      ask: ['/config/node?format=csv', 'name,comment\nn1,of a table\n'],
      status: 200,
      says: /^0 nodes created, 1 changed$/,
      files: { 'node/n1.json': { ...doc, comment: 'of a table' } }
    },
    { what: 'JSON', ask: ['/config/node', {}], status: 400, says: /takes a table/ },
    {
      what: 'a line that breaks a rule',
      ask: ['/config/node?format=csv', 'name,group\nn1,none\n'],
      status: 400,
      says: /line 2: .*group none does not exist/
    }
  ],
  'POST /config/node/_set': [
    {
      what: 'all nodes of a set',
      ask: ['/config/node/_set', { nodes: 'n1', fields: { comment: 'of a set' } }],
      status: 200,
      says: /^1 node updated$/,
      files: { 'node/n1.json': { ...doc, comment: 'of a set' } }
    },
    {
      what: 'a name that is no node',
      ask: ['/config/node/_set', { nodes: 'n1,n9', fields: { comment: 'no' } }],
      status: 404,
      says: /there is no node n9/
    },
    {
      what: 'a body without fields',
      ask: ['/config/node/_set', { nodes: 'n1' }],
      status: 400,
      says: /field "fields" is missing/
    }
  ],
  'POST /config/node/_delete': [
    {
      what: 'all nodes of a set, with their secrets',
      ask: ['/config/node/_delete', { nodes: 'n[1]' }],
      status: 200,
      says: /^1 node deleted$/,
      files: { 'node/n1.json': null, 'secrets/node.n1.json': null }
    },
    {
      what: 'a name that is no node',
      ask: ['/config/node/_delete', { nodes: 'n1,n9' }],
      status: 404,
      says: /there is no node n9/
    },
    { what: 'no set', ask: ['/config/node/_delete', {}], status: 400, says: /field "nodes" is missing/ }
  ],
  'GET /config/node/{node}': [
    {
      what: 'values in force, where they come from, and its interfaces',
      ask: [one],
      status: 200,
      shows: {
        config: {
          node: {
            n1: {
              name: 'n1',
              group: 'compute',
              macaddr: mac,
              switch: 'sw1',
              switchport: null,
              service: false,
              osimage: 'compute',
              _osimage_source: 'group',
              bmcsetupname: 'boards',
              _bmcsetupname_source: 'node',
              provision_fallback: 'http',
              _provision_fallback_source: 'cluster',
              _override: true,
              interfaces: shown
            }
          }
        }
      }
    },
    { what: 'for a viewer', ask: [one], by: 'viewer', status: 200 },
    missing('/config/node/n9')
  ],
  'POST /config/node/{node}': [
    {
      what: "created with its group's interfaces",
      ask: ['/config/node/n3', { config: { node: { n3: { name: 'n3', group: 'compute', comment: 'é' } } } }],
      status: 201,
      files: {
        'node/n3.json': {
          name: 'n3',
          group: 'compute',
          comment: 'é',
          interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.3' }]
        }
      }
    },
    {
      what: 'changed, an interface with it',
      ask: [one, { service: true, switchport: 7, ...address('10.141.0.9') }],
      status: 204,
      files: {
        'node/n1.json': {
          ...doc,
          service: true,
          switchport: 7,
          interfaces: [{ ...bootif, ipaddress: '10.141.0.9' }, eth1]
        }
      }
    },
    {
      what: 'renamed: secrets follow',
      ask: [one, { newhostname: 'm1' }],
      status: 204,
      files: {
        'node/n1.json': null,
        'node/m1.json': { ...doc, name: 'm1' },
        'secrets/node.n1.json': null,
        'secrets/node.m1.json': { name: 'node.m1', secrets }
      }
    },
    {
      what: 'moved to another group: the interfaces of the old one go',
      ask: [one, { group: 'idle' }],
      status: 204,
      files: { 'node/n1.json': { ...doc, group: 'idle', interfaces: [eth1] } }
    },
    {
      what: 'inventory by the node itself',
      ask: [one, { config: { node: { n1: { vendor: 'ACME', assettag: 'A1' } } } }],
      by: 'n1',
      status: 204,
      files: { 'node/n1.json': { ...doc, vendor: 'ACME', assettag: 'A1' } }
    },
    {
      what: 'another field by the node itself',
      ask: [one, { comment: 'x' }],
      by: 'n1',
      status: 403,
      says: /comment/
    },
    { what: 'by another node', ask: [one, { vendor: 'x' }], by: 'n2', status: 403, says: /node n2/ },
    { what: 'an unknown field', ask: [one, { color: 1 }], status: 400, says: /node n1.*"color"/ },
    { what: 'an unknown group', ask: [one, { group: 'none' }], status: 400, says: /group none/ },
    { what: 'a name that is taken', ask: [one, { newhostname: 'n2' }], status: 400, says: /n2 exists/ },
    {
      what: 'a MAC of another node',
      ask: ['/config/node/n2', { macaddr: mac }],
      status: 400,
      says: /node n1/
    },
    {
      what: "a switch's address",
      ask: [one, address('10.141.0.200', true)],
      status: 400,
      says: /switch sw1/
    },
    { what: "the gateway's", ask: [one, address('10.141.255.253')], status: 400, says: /gateway/ },
    { what: "the controller's", ask: [one, address('10.141.255.254')], status: 400, says: /controller/ },
    {
      what: 'an address outside',
      ask: [one, address('10.8.0.1')],
      status: 400,
      says: /outside network cluster/
    },
    { what: 'no host name', ask: ['/config/node/N_3', {}], status: 400, says: /host name/ },
    {
      what: 'no free address',
      ask: ['/config/node/n3', { group: 'crowded' }],
      status: 404,
      says: /network full/
    },
    missing('/config/node/n9', { newhostname: 'x' })
  ],
  'POST /config/node/{node}/_clone': [
    {
      what: 'the next free addresses, no MAC, no port; secrets too',
      ask: [`${one}/_clone`, { newhostname: 'n3' }],
      status: 201,
      files: {
        'node/n3.json': {
          name: 'n3',
          group: 'compute',
          bmcsetupname: 'boards',
          roles: 'web',
          interfaces: [
            { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.3' },
            { interface: 'eth1', network: 'cluster', ipaddress: '10.141.0.4', own: true }
          ]
        },
        'secrets/node.n3.json': { name: 'node.n3', secrets }
      }
    },
    { what: 'no new name', ask: [`${one}/_clone`, {}], status: 400, says: /"newhostname"/ },
    { what: 'a name that is taken', ask: [`${one}/_clone`, { newhostname: 'n2' }], status: 400 },
    missing('/config/node/n9/_clone', { newhostname: 'x' })
  ],
  'GET /config/node/{node}/_delete': remove,
  'POST /config/node/{node}/_delete': remove,
  'GET /config/node/{node}/interfaces': [
    {
      what: '200 with the list, in the envelope and bare',
      ask: [`${one}/interfaces`],
      status: 200,
      body: { config: { node: { n1: { interfaces: shown } } }, interfaces: shown }
    },
    missing('/config/node/n9/interfaces')
  ],
  'POST /config/node/{node}/interfaces': [
    {
      what: 'added and changed in one',
      ask: [
        `${one}/interfaces`,
        {
          interfaces: [
            { interface: 'eth1', macaddress: '52-54-00-00-00-02' },
            { interface: 'ib0', network: 'idle' }
          ]
        }
      ],
      status: 204,
      files: {
        'node/n1.json': {
          ...doc,
          interfaces: [
            bootif,
            { ...eth1, macaddress: '52:54:00:00:00:02' },
            { interface: 'ib0', network: 'idle', ipaddress: '10.8.0.1', own: true }
          ]
        }
      }
    },
    {
      what: 'an unknown network; the others of the list are not kept either',
      ask: [
        `${one}/interfaces`,
        {
          interfaces: [
            { interface: 'a', network: 'idle' },
            { interface: 'b', network: 'none' }
          ]
        }
      ],
      status: 400,
      says: /network none/
    },
    {
      what: 'no free address',
      ask: [`${one}/interfaces`, { interfaces: [{ interface: 'a', network: 'full' }] }],
      status: 404,
      says: /network full/
    },
    missing('/config/node/n9/interfaces', { interfaces: [] })
  ],
  'GET /config/node/{node}/interfaces/{interface}': [
    {
      what: '200 with a list of one',
      ask: [`${one}/interfaces/BOOTIF`],
      status: 200,
      body: { config: { node: { n1: { interfaces: shown.slice(0, 1) } } }, interfaces: shown.slice(0, 1) }
    },
    { what: 'one it lacks', ask: [`${one}/interfaces/eth9`], status: 404, says: /no interface eth9/ },
    missing('/config/node/n9/interfaces/BOOTIF')
  ],
  'GET /config/node/{node}/interfaces/{interface}/_delete': removeInterface,
  'POST /config/node/{node}/interfaces/{interface}/_delete': removeInterface,
  'GET /config/node/{node}/_render/boot': preview('boot', /svc\.node=n1 /),
  'GET /config/node/{node}/_render/install': preview('install', /SVC_TOKEN='\*{8}'/),
  'GET /config/node/{node}/_render/kickstart': preview('kickstart', /masked/),
  'GET /config/node/{node}/_release': [
    {
      what: 'another machine may take it, for an hour',
      ask: [`${one}/_release`],
      status: 200,
      says: /^node n1 can be taken over by one machine until \d{4}-.*Z$/,
      files: { 'handover/n1.json': { name: 'n1', released: 'a time' } }
    },
    missing('/config/node/n9/_release')
  ],
  'GET /config/node/{node}/_seen': [
    {
      what: 'who has seen it, and when, is noted',
      ask: [`${one}/_seen`],
      status: 200,
      says: /^node n1: seen$/,
      files: { 'handover/n1.json': { name: 'n1', seen: 'a time' } }
    },
    missing('/config/node/n9/_seen')
  ]
}
