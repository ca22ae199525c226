import type { Cases, Step } from './case.js'
import { files } from './world.js'

const one = '/config/group/compute'
const missing = (path: string, body?: unknown): Step => ({
  what: 'a missing group',
  ask: body === undefined ? [path] : [path, body],
  status: 404,
  says: /group none does not exist/
})
const members = (what: string, suffix: string): readonly Step[] => [
  {
    what,
    ask: [`${one}/${suffix}`],
    status: 200,
    body: { config: { group: { compute: { members: ['n1'] } } } }
  },
  {
    what: 'of a group without members',
    ask: [`/config/group/idle/${suffix}`],
    status: 200,
    body: { config: { group: { idle: { members: [] } } } }
  },
  missing(`/config/group/none/${suffix}`)
]
const remove: readonly Step[] = [
  {
    what: 'one that nobody uses',
    ask: ['/config/group/idle/_delete'],
    status: 204,
    files: { 'group/idle.json': null },
    later: ['/config/group', { config: { group: { compute: {} } } }]
  },
  {
    what: 'one in use names its user',
    ask: [`${one}/_delete`],
    status: 400,
    says: /group compute .* 1: node n1$/
  },
  missing('/config/group/none/_delete')
]
const bootif = { interface: 'BOOTIF', network: 'cluster', options: '' }
const removeInterface: readonly Step[] = [
  {
    what: 'it goes from the members too',
    ask: [`${one}/interfaces/BOOTIF/_delete`],
    status: 204,
    files: {
      'group/compute.json': { name: 'compute', osimage: 'compute' },
      'node/n1.json': { ...files.n1, interfaces: files.n1.interfaces.slice(1) }
    }
  },
  { what: 'one it lacks', ask: [`${one}/interfaces/eth9/_delete`], status: 404, says: /no interface eth9/ },
  missing('/config/group/none/interfaces/BOOTIF/_delete')
]

/** Group (rules 1.1, 1.9, 1.10, 2.1, 2.4, 3.4, 3.5). */
export const group: Cases = {
  'GET /config/group': [
    {
      what: 'all groups',
      ask: ['/config/group'],
      status: 200,
      shows: { config: { group: { compute: { name: 'compute' }, idle: { name: 'idle', interfaces: [] } } } }
    },
    { what: 'for a viewer', ask: ['/config/group'], by: 'viewer', status: 200 }
  ],
  'GET /config/group/{group}': [
    {
      what: 'values in force and where they come from',
      ask: [one],
      status: 200,
      shows: {
        config: {
          group: {
            compute: {
              name: 'compute',
              osimage: 'compute',
              _osimage_source: 'group',
              osimagetag: 'default',
              _osimagetag_source: 'default',
              provision_method: 'torrent',
              _provision_method_source: 'cluster',
              prescript: '',
              comment: null,
              interfaces: [bootif],
              _override: true
            }
          }
        }
      }
    },
    missing('/config/group/none')
  ],
  'GET /config/group/{group}/_list': members('the members', '_list'),
  'GET /config/group/{group}/_member': members('the same', '_member'),
  'POST /config/group/{group}': [
    {
      what: 'created',
      ask: ['/config/group/new', { config: { group: { new: { name: 'new', domain: 'example.org' } } } }],
      status: 201,
      says: /group new/,
      files: { 'group/new.json': { name: 'new', domain: 'example.org' } }
    },
    {
      what: 'changed',
      ask: [one, { comment: 'one "two"\n🙂', osimage: null }],
      status: 204,
      files: {
        'group/compute.json': {
          name: 'compute',
          comment: 'one "two"\n🙂',
          interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
        }
      },
      later: [one, { config: { group: { compute: { comment: 'one "two"\n🙂', osimage: null } } } }]
    },
    {
      what: 'renamed: members and secrets follow',
      ask: [one, { newgroupname: 'big' }],
      status: 204,
      files: {
        'group/compute.json': null,
        'group/big.json': { ...files.compute, name: 'big' },
        'node/n1.json': { ...files.n1, group: 'big' },
        'secrets/group.compute.json': null,
        'secrets/group.big.json': {
          name: 'group.big',
          secrets: [{ name: 'munge', path: '/etc/munge/munge.key', content: 'of the group' }]
        }
      }
    },
    { what: 'an unknown field', ask: [one, { color: 1 }], status: 400, says: /group compute.*"color"/ },
    {
      what: 'a wrong type',
      ask: [one, { netboot: 'yes' }],
      status: 400,
      says: /"netboot".*must be true or false/
    },
    { what: 'a name that is taken', ask: [one, { newgroupname: 'idle' }], status: 400, says: /idle exists/ },
    { what: 'an unknown image', ask: [one, { osimage: 'none' }], status: 400, says: /OS image none/ },
    { what: 'another name', ask: [one, { name: 'idle' }], status: 400, says: /"name"/ },
    { what: 'an empty body', ask: [one, ''], status: 400 },
    missing('/config/group/none', { newgroupname: 'x' }),
    {
      what: 'no free address for a member',
      ask: [one, { interfaces: [{ interface: 'eth5', network: 'full' }] }],
      status: 404,
      says: /network full has no free address/
    }
  ],
  'POST /config/group/{group}/_clone': [
    {
      what: 'copied with its secrets, without its members',
      ask: [`${one}/_clone`, { newgroupname: 'copy', comment: 'a copy' }],
      status: 201,
      files: {
        'group/copy.json': { ...files.compute, name: 'copy', comment: 'a copy' },
        'secrets/group.copy.json': {
          name: 'group.copy',
          secrets: [{ name: 'munge', path: '/etc/munge/munge.key', content: 'of the group' }]
        }
      }
    },
    { what: 'no new name', ask: [`${one}/_clone`, {}], status: 400, says: /"newgroupname"/ },
    { what: 'a name that is taken', ask: [`${one}/_clone`, { newgroupname: 'idle' }], status: 400 },
    missing('/config/group/none/_clone', { newgroupname: 'x' })
  ],
  'GET /config/group/{group}/_delete': remove,
  'POST /config/group/{group}/_delete': remove,
  'GET /config/group/{group}/interfaces': [
    {
      what: 'in the envelope and bare',
      ask: [`${one}/interfaces`],
      status: 200,
      body: { config: { group: { compute: { interfaces: [bootif] } } }, interfaces: [bootif] }
    },
    missing('/config/group/none/interfaces')
  ],
  'POST /config/group/{group}/interfaces': [
    {
      what: 'a new one: members get it with an address',
      ask: [
        `${one}/interfaces`,
        { interfaces: [{ interface: 'ib0', network: 'idle', options: 'mtu 9000' }] }
      ],
      status: 201,
      files: {
        'group/compute.json': {
          name: 'compute',
          osimage: 'compute',
          interfaces: [
            { interface: 'BOOTIF', network: 'cluster' },
            { interface: 'ib0', network: 'idle', options: 'mtu 9000' }
          ]
        },
        'node/n1.json': {
          ...files.n1,
          interfaces: [...files.n1.interfaces, { interface: 'ib0', network: 'idle', ipaddress: '10.8.0.1' }]
        }
      }
    },
    {
      what: 'a known one is changed',
      ask: [`${one}/interfaces`, { interfaces: [{ interface: 'BOOTIF', options: 'x' }] }],
      status: 204,
      files: {
        'group/compute.json': {
          name: 'compute',
          osimage: 'compute',
          interfaces: [{ interface: 'BOOTIF', network: 'cluster', options: 'x' }]
        }
      }
    },
    { what: 'no list', ask: [`${one}/interfaces`, { interfaces: 5 }], status: 400, says: /"interfaces"/ },
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
    missing('/config/group/none/interfaces', { interfaces: [] })
  ],
  'GET /config/group/{group}/interfaces/{interface}': [
    {
      what: 'a list of one',
      ask: [`${one}/interfaces/BOOTIF`],
      status: 200,
      body: { config: { group: { compute: { interfaces: [bootif] } } }, interfaces: [bootif] }
    },
    { what: 'one it lacks', ask: [`${one}/interfaces/eth9`], status: 404, says: /no interface eth9/ },
    missing('/config/group/none/interfaces/BOOTIF')
  ],
  'GET /config/group/{group}/interfaces/{interface}/_delete': removeInterface,
  'POST /config/group/{group}/interfaces/{interface}/_delete': removeInterface
}
