import type { Cases, Step } from './case.js'
import { files } from './world.js'

const missing = (title: string, path: string, body?: unknown): Step => ({
  what: `a missing ${title}`,
  ask: body === undefined ? [path] : [path, body],
  status: 404,
  says: new RegExp(`${title} none does not exist`)
})
const inUse = (path: string, says: RegExp): Step => ({
  what: 'one in use names its user',
  ask: [path],
  status: 400,
  says
})

const setup = 'BMC set-up'
const boards = {
  name: 'boards',
  mgmtchannel: 1,
  netchannel: 1,
  userid: 2,
  username: 'root',
  password: 'calvin',
  protocol: 'ipmi',
  cipher: 3,
  privilege: 'administrator',
  port: null,
  verify_certificate: true,
  system: null,
  comment: null
}
const members = (suffix: string): readonly Step[] => [
  {
    what: 'the nodes that have it',
    ask: [`/config/bmcsetup/boards/${suffix}`],
    status: 200,
    body: { config: { bmcsetup: { boards: { members: ['n1'] } } } }
  },
  missing(setup, `/config/bmcsetup/none/${suffix}`)
]
const removeSetup: readonly Step[] = [
  {
    what: 'one that nobody uses',
    ask: ['/config/bmcsetup/idle/_delete'],
    status: 204,
    files: { 'bmcsetup/idle.json': null }
  },
  inUse('/config/bmcsetup/boards/_delete', /boards .* 1: node n1$/),
  missing(setup, '/config/bmcsetup/none/_delete')
]

const sw1 = {
  name: 'sw1',
  network: 'cluster',
  ipaddress: '10.141.0.200',
  macaddress: null,
  oid: null,
  read: 'public',
  rw: null,
  uplinkports: null,
  vendor: null,
  comment: null
}
const removeSwitch: readonly Step[] = [
  {
    what: 'one that nobody uses',
    ask: ['/config/switch/idle/_delete'],
    status: 204,
    files: { 'switch/idle.json': null }
  },
  inUse('/config/switch/sw1/_delete', /sw1 .* 1: node n1$/),
  missing('switch', '/config/switch/none/_delete')
]

const pdu = {
  name: 'pdu',
  network: 'full',
  ipaddress: '10.9.0.2',
  macaddress: null,
  vendor: null,
  comment: null
}
const removeDevice: readonly Step[] = [
  {
    what: 'its address is free again',
    ask: ['/config/otherdev/pdu/_delete'],
    status: 204,
    files: { 'otherdev/pdu.json': null },
    later: ['/config/network/full', { config: { network: { full: { network: '10.9.0.0/30' } } } }]
  },
  missing('other device', '/config/otherdev/none/_delete')
]

/** BMC set-up, switches and other devices (rules 2.1, 5.2, 6.1, 6.6). */
export const objects: Cases = {
  'GET /config/bmcsetup': [
    {
      what: 'all',
      ask: ['/config/bmcsetup'],
      status: 200,
      shows: { config: { bmcsetup: { boards, idle: { userid: 3 } } } }
    }
  ],
  'GET /config/bmcsetup/{bmcname}': [
    {
      what: 'with its password',
      ask: ['/config/bmcsetup/boards'],
      status: 200,
      body: { config: { bmcsetup: { boards } } }
    },
    {
      what: 'masked for a viewer',
      ask: ['/config/bmcsetup/boards'],
      by: 'viewer',
      status: 200,
      body: { config: { bmcsetup: { boards: { ...boards, password: '********' } } } }
    },
    missing(setup, '/config/bmcsetup/none')
  ],
  'GET /config/bmcsetup/{name}/_list': members('_list'),
  'GET /config/bmcsetup/{name}/_member': members('_member'),
  'POST /config/bmcsetup/{bmcname}': [
    {
      what: 'created',
      ask: ['/config/bmcsetup/new', { username: 'admin' }],
      status: 201,
      says: /new/,
      files: { 'bmcsetup/new.json': { name: 'new', username: 'admin' } }
    },
    {
      what: 'changed: 200, with a message',
      ask: ['/config/bmcsetup/boards', { userid: 4 }],
      status: 200,
      says: /boards/,
      files: { 'bmcsetup/boards.json': { name: 'boards', userid: 4, username: 'root', password: 'calvin' } }
    },
    {
      what: 'renamed',
      ask: ['/config/bmcsetup/idle', { newbmcname: 'rest' }],
      status: 200,
      files: { 'bmcsetup/idle.json': null, 'bmcsetup/rest.json': { name: 'rest', userid: 3 } }
    },
    {
      what: 'a wrong type',
      ask: ['/config/bmcsetup/boards', { userid: '2' }],
      status: 400,
      says: /"userid".*integer/
    },
    missing(setup, '/config/bmcsetup/none', { newbmcname: 'x' })
  ],
  'POST /config/bmcsetup/{bmcname}/_clone': [
    {
      what: 'with its password',
      ask: ['/config/bmcsetup/boards/_clone', { newbmcname: 'copy' }],
      status: 201,
      files: { 'bmcsetup/copy.json': { name: 'copy', username: 'root', password: 'calvin' } }
    },
    { what: 'no new name', ask: ['/config/bmcsetup/boards/_clone', {}], status: 400, says: /"newbmcname"/ },
    missing(setup, '/config/bmcsetup/none/_clone', { newbmcname: 'x' })
  ],
  'GET /config/bmcsetup/{bmcname}/_delete': removeSetup,
  'POST /config/bmcsetup/{bmcname}/_delete': removeSetup,

  'GET /config/switch': [
    {
      what: 'all',
      ask: ['/config/switch'],
      status: 200,
      shows: { config: { switch: { sw1, idle: { name: 'idle' } } } }
    }
  ],
  'GET /config/switch/{switch}': [
    {
      what: 'with its communities',
      ask: ['/config/switch/sw1'],
      status: 200,
      body: { config: { switch: { sw1 } } }
    },
    {
      what: 'masked for a viewer',
      ask: ['/config/switch/sw1'],
      by: 'viewer',
      status: 200,
      body: { config: { switch: { sw1: { ...sw1, read: '********' } } } }
    },
    missing('switch', '/config/switch/none')
  ],
  'POST /config/switch/{switch}': [
    {
      what: 'created',
      ask: [
        '/config/switch/new',
        { network: 'idle', ipaddress: '10.8.0.9', oid: '.1.3.6.1.2', rw: 'private' }
      ],
      status: 201,
      files: {
        'switch/new.json': {
          name: 'new',
          network: 'idle',
          ipaddress: '10.8.0.9',
          oid: '.1.3.6.1.2',
          rw: 'private'
        }
      }
    },
    {
      what: 'changed',
      ask: ['/config/switch/idle', { uplinkports: '49,50' }],
      status: 204,
      files: { 'switch/idle.json': { name: 'idle', uplinkports: '49,50' } }
    },
    {
      what: 'renamed: nodes on it follow',
      ask: ['/config/switch/sw1', { newswitchname: 'top' }],
      status: 204,
      files: {
        'switch/sw1.json': null,
        'switch/top.json': { name: 'top', network: 'cluster', ipaddress: '10.141.0.200', read: 'public' },
        'node/n1.json': { ...files.n1, switch: 'top' }
      }
    },
    {
      what: "a node's address",
      ask: ['/config/switch/sw1', { ipaddress: '10.141.0.1' }],
      status: 400,
      says: /node n1/
    },
    {
      what: 'an unknown network',
      ask: ['/config/switch/idle', { network: 'none' }],
      status: 400,
      says: /network none/
    },
    missing('switch', '/config/switch/none', { newswitchname: 'x' })
  ],
  'POST /config/switch/{switch}/_clone': [
    {
      what: 'with the next free address',
      ask: ['/config/switch/sw1/_clone', { newswitchname: 'sw2' }],
      status: 201,
      files: {
        'switch/sw2.json': { name: 'sw2', network: 'cluster', ipaddress: '10.141.0.3', read: 'public' }
      }
    },
    { what: 'no new name', ask: ['/config/switch/sw1/_clone', {}], status: 400, says: /"newswitchname"/ },
    missing('switch', '/config/switch/none/_clone', { newswitchname: 'x' })
  ],
  'GET /config/switch/{switch}/_delete': removeSwitch,
  'POST /config/switch/{switch}/_delete': removeSwitch,

  'GET /config/otherdev': [
    { what: 'all', ask: ['/config/otherdev'], status: 200, body: { config: { otherdev: { pdu } } } }
  ],
  'GET /config/otherdev/{otherdev}': [
    { what: 'one', ask: ['/config/otherdev/pdu'], status: 200, body: { config: { otherdev: { pdu } } } },
    missing('other device', '/config/otherdev/none')
  ],
  'POST /config/otherdev/{otherdev}': [
    {
      what: 'created',
      ask: ['/config/otherdev/ups', { network: 'idle', ipaddress: '10.8.0.9', macaddress: '5254.0000.0009' }],
      status: 201,
      files: {
        'otherdev/ups.json': {
          name: 'ups',
          network: 'idle',
          ipaddress: '10.8.0.9',
          macaddress: '52:54:00:00:00:09'
        }
      }
    },
    {
      what: 'changed and renamed in one',
      ask: ['/config/otherdev/pdu', { vendor: 'ACME', newotherdevname: 'power' }],
      status: 204,
      files: {
        'otherdev/pdu.json': null,
        'otherdev/power.json': { name: 'power', network: 'full', ipaddress: '10.9.0.2', vendor: 'ACME' }
      }
    },
    {
      what: "the gateway's address",
      ask: ['/config/otherdev/pdu', { ipaddress: '10.9.0.1' }],
      status: 400,
      says: /gateway/
    },
    missing('other device', '/config/otherdev/none', { newotherdevname: 'x' })
  ],
  'POST /config/otherdev/{otherdev}/_clone': [
    {
      what: 'into a network with room',
      before: [['/config/otherdev/pdu', { network: 'idle', ipaddress: '10.8.0.1' }]],
      ask: ['/config/otherdev/pdu/_clone', { newotherdevname: 'pdu2' }],
      status: 201,
      files: { 'otherdev/pdu2.json': { name: 'pdu2', network: 'idle', ipaddress: '10.8.0.2' } }
    },
    {
      what: 'without an address',
      ask: ['/config/otherdev/pdu/_clone', { newotherdevname: 'pdu3', network: null, ipaddress: null }],
      status: 404,
      says: /network full/
    },
    { what: 'no new name', ask: ['/config/otherdev/pdu/_clone', {}], status: 400, says: /"newotherdevname"/ },
    missing('other device', '/config/otherdev/none/_clone', { newotherdevname: 'x' })
  ],
  'GET /config/otherdev/{otherdev}/_delete': removeDevice,
  'POST /config/otherdev/{otherdev}/_delete': removeDevice
}
