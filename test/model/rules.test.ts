import t from 'tap'
import { runSync } from '../../lib/base/concurrency.js'
import { formatAddress } from '../../lib/model/address.js'
import { nextFree, takenIn } from '../../lib/model/networks.js'
import { checkStateSliced } from '../../lib/model/rules.js'
import { checkRows, MemoryCluster, type Objects, settings } from '../support/memory-cluster.js'

const mac = '52:54:00:00:00:01'
const shared: Objects = {
  'network/a': {
    network: '10.1.0.0/24',
    gateway: '10.1.0.1',
    dhcp_range_begin: '10.1.0.100',
    dhcp_range_end: '10.1.0.150'
  },
  'network/controller': { network: '10.141.0.0/16' },
  'osimage/compute': {},
  'osimage/login': {},
  'osimagetag/compute:v1': { osimage: 'compute', tag: 'v1', order: 1 },
  'group/g': { osimage: 'compute', interfaces: [{ interface: 'BOOTIF', network: 'a' }] },
  'node/n1': {
    group: 'g',
    interfaces: [{ interface: 'BOOTIF', network: 'a', ipaddress: '10.1.0.7', macaddress: mac }]
  },
  'switch/sw1': { network: 'a', ipaddress: '10.1.0.8' }
}

t.test('what a network keeps (rules 3.13)', async t =>
  checkRows(t, shared, [
    {
      is: 'it needs a prefix',
      request: ['post', 'network/b', {}],
      refused: [400, 'network b: field "network" is missing']
    },
    {
      is: 'the gateway lies in it',
      request: ['post', 'network/a', { gateway: '10.2.0.1' }],
      refused: [400, 'network a: field "gateway": 10.2.0.1 lies outside 10.1.0.0/24']
    },
    {
      is: 'the gateway is a host address',
      request: ['post', 'network/a', { gateway: '10.1.0.255' }],
      refused: [400, 'network a: field "gateway": 10.1.0.255 is the network or broadcast address']
    },
    {
      is: 'the gateway is nobody else’s',
      request: ['post', 'network/a', { gateway: '10.1.0.8' }],
      refused: [400, 'network a: field "gateway": 10.1.0.8 belongs to switch sw1']
    },
    {
      is: 'the ends of the range come together',
      request: ['post', 'network/a', { dhcp_range_end: null }],
      refused: [400, 'network a: fields "dhcp_range_begin" and "dhcp_range_end" go together']
    },
    {
      is: 'the ends of the range come in order',
      request: ['post', 'network/a', { dhcp_range_end: '10.1.0.99' }],
      refused: [400, 'network a: field "dhcp_range_begin": 10.1.0.100 comes after the end, 10.1.0.99']
    },
    {
      is: 'DHCP needs a range',
      request: ['post', 'network/controller', { dhcp: true }],
      refused: [400, 'network controller: field "dhcp" needs "dhcp_range_begin" and "dhcp_range_end"']
    },
    {
      is: 'the range does not hold the controller',
      request: [
        'post',
        'network/controller',
        { dhcp_range_begin: '10.141.255.1', dhcp_range_end: '10.141.255.254' }
      ],
      refused: [400, /the range holds 10\.141\.255\.254, the address of controller controller/]
    }
  ])
)

t.test('nobody is left outside of a network (rules 3.6)', async t =>
  checkRows(t, shared, [
    {
      is: 'an interface of a node',
      before: { 'switch/sw1': undefined },
      request: [
        'post',
        'network/a',
        { network: '10.1.0.96/27', gateway: null, dhcp_range_begin: null, dhcp_range_end: null }
      ],
      refused: [
        400,
        'network a: field "network": node n1 (BOOTIF): 10.1.0.7 lies outside network a (10.1.0.96/27)'
      ]
    },
    {
      is: 'a device that would have the broadcast address',
      before: { 'node/n1': undefined, 'switch/sw1': { network: 'a', ipaddress: '10.1.0.31' } },
      request: [
        'post',
        'network/a',
        { network: '10.1.0.0/27', dhcp_range_begin: null, dhcp_range_end: null }
      ],
      refused: [
        400,
        'network a: field "network": switch sw1: 10.1.0.31 is the broadcast address of network a'
      ]
    },
    {
      is: 'a larger network holds them all',
      request: ['post', 'network/a', { network: '10.1.0.0/23' }],
      after: { 'network/a': { ...shared['network/a'], network: '10.1.0.0/23' } }
    }
  ])
)

t.test('who may have an address or a MAC (rules 2.4, 3.6, 3.9)', async t =>
  checkRows(t, shared, [
    {
      is: 'outside its network',
      request: ['post', 'switch/sw1', { ipaddress: '10.2.0.1' }],
      refused: [400, 'switch sw1: 10.2.0.1 lies outside network a (10.1.0.0/24)']
    },
    {
      is: 'the gateway',
      request: ['post', 'switch/sw1', { ipaddress: '10.1.0.1' }],
      refused: [400, 'switch sw1: 10.1.0.1 is the gateway of network a']
    },
    {
      is: 'another’s address',
      request: ['post', 'otherdev/pdu', { network: 'a', ipaddress: '10.1.0.7' }],
      refused: [400, 'other device pdu: 10.1.0.7 belongs to node n1 (BOOTIF)']
    },
    {
      is: 'another’s MAC',
      request: ['post', 'otherdev/pdu', { macaddress: mac }],
      refused: [400, `other device pdu: MAC ${mac} belongs to node n1 (BOOTIF)`]
    },
    {
      is: 'the controller’s address',
      request: ['post', 'otherdev/pdu', { network: 'controller', ipaddress: settings.controller.address }],
      refused: [400, 'other device pdu: 10.141.255.254 belongs to controller controller']
    },
    {
      is: 'an address without a network',
      request: ['post', 'otherdev/pdu', { ipaddress: '10.1.0.9' }],
      refused: [400, 'other device pdu: an address needs a network']
    }
  ])
)

t.test('references and what is in use (rules 2.4, 3.2)', async t =>
  checkRows(t, shared, [
    {
      is: 'an object that does not exist',
      request: ['post', 'group/g', { osimage: 'none' }],
      refused: [400, 'group g: OS image none does not exist']
    },
    {
      is: 'deleting a network in use',
      request: ['delete', 'network/a'],
      refused: [400, 'network a is in use by 3: group g, node n1, switch sw1']
    },
    {
      is: 'deleting an image in use',
      request: ['delete', 'osimage/compute'],
      refused: [400, 'OS image compute is in use by 1: group g']
    },
    {
      is: 'the message names ten users and the count',
      before: Object.fromEntries(
        Array.from({ length: 12 }, (_, i) => [`otherdev/d${i}`, { network: 'controller' }])
      ),
      request: ['delete', 'network/controller'],
      refused: [
        400,
        `network controller is in use by 12: ${Array.from({ length: 10 }, (_, i) => `other device d${i}`).join(', ')} and 2 more`
      ]
    },
    {
      is: 'an image goes with its tags',
      before: { 'group/g': { interfaces: [{ interface: 'BOOTIF', network: 'a' }] } },
      request: ['delete', 'osimage/compute'],
      after: { 'osimage/compute': undefined, 'osimagetag/compute:v1': undefined }
    },
    {
      is: 'a node goes, and its name is marked',
      request: ['delete', 'node/n1'],
      after: { 'node/n1': undefined, 'revoked/n1': { at: 1_000, generation: 1 } }
    },
    {
      is: 'a network is renamed with everything that names it',
      request: ['post', 'network/a', { newnetname: 'b' }],
      after: {
        'network/a': undefined,
        'network/b': shared['network/a'],
        'group/g': { osimage: 'compute', interfaces: [{ interface: 'BOOTIF', network: 'b' }] },
        'node/n1': {
          group: 'g',
          interfaces: [{ interface: 'BOOTIF', network: 'b', ipaddress: '10.1.0.7', macaddress: mac }]
        },
        'switch/sw1': { network: 'b', ipaddress: '10.1.0.8' }
      }
    },
    {
      is: 'an image is renamed with its tags',
      request: ['post', 'osimage/compute', { newosimage: 'new' }],
      after: {
        'osimage/compute': undefined,
        'osimage/new': {},
        'osimagetag/compute:v1': undefined,
        'osimagetag/new:v1': { osimage: 'new', tag: 'v1', order: 1 },
        'group/g': { ...shared['group/g'], osimage: 'new' }
      }
    },
    {
      is: 'a node is renamed with its secrets, and its old name is marked',
      before: { 'secrets/node.n1': { secrets: [{ name: 's', path: '/s', content: 'AA==' }] } },
      request: ['post', 'node/n1', { newhostname: 'n2' }],
      after: {
        'node/n1': undefined,
        'node/n2': shared['node/n1'],
        'secrets/node.n1': undefined,
        'secrets/node.n2': { secrets: [{ name: 's', path: '/s', content: 'AA==' }] },
        'revoked/n1': { at: 1_000, generation: 1, renamed: 'n2' }
      }
    },
    {
      is: 'a clone has the secrets too',
      before: { 'secrets/group.g': { secrets: [{ name: 's', path: '/s', content: 'AA==' }] } },
      request: ['clone', 'group/g', { newgroupname: 'h' }],
      after: {
        'group/h': shared['group/g'],
        'secrets/group.h': { secrets: [{ name: 's', path: '/s', content: 'AA==' }] }
      }
    }
  ])
)

t.test('a tag in force is one of the image in force (rules 1.2)', async t =>
  checkRows(t, shared, [
    {
      is: 'on the node, the image of its group',
      request: ['post', 'node/n1', { osimagetag: 'v1' }],
      after: { 'node/n1': { ...shared['node/n1'], osimagetag: 'v1' } }
    },
    {
      is: 'a tag that the image lacks',
      request: ['post', 'node/n1', { osimagetag: 'v2' }],
      refused: [400, 'node n1: OS image compute has no tag v2']
    },
    {
      is: 'a tag without an image',
      request: ['post', 'node/n2', { osimagetag: 'v1' }],
      refused: [400, 'node n2: OS image tag v1 needs an OS image']
    },
    {
      is: 'a group’s new image must have the tag that a member sets',
      before: { 'node/n1': { ...shared['node/n1'], osimagetag: 'v1' } },
      request: ['post', 'group/g', { osimage: 'login' }],
      refused: [400, 'group g: node n1: OS image login has no tag v1']
    }
  ])
)

t.test('files changed by hand are checked as a whole (rules 11.2)', async t => {
  const { model } = new MemoryCluster({
    ...shared,
    'node/n2': {
      group: 'g',
      osimage: 'none',
      interfaces: [{ interface: 'eth0', network: 'a', ipaddress: '10.1.0.7' }]
    },
    'network/b': { network: '10.9.0.0/24', gateway: '10.8.0.1' }
  })
  const problems = runSync(checkStateSliced(model.view, settings))
  t.same(
    problems.map(({ type, name, message }) => [type, name, message]).sort(),
    [
      ['network', 'b', 'network b: field "gateway": 10.8.0.1 lies outside 10.9.0.0/24'],
      ['node', 'n1', 'node n1: interface BOOTIF: 10.1.0.7 belongs to node n2 (eth0)'],
      ['node', 'n2', 'node n2: OS image none does not exist'],
      ['node', 'n2', 'node n2: interface eth0: 10.1.0.7 belongs to node n1 (BOOTIF)'],
      [
        'node',
        'n2',
        'node n2: interface BOOTIF of its group g is missing: add {"interface":"BOOTIF","network":"a","ipaddress":"…"} to its "interfaces"'
      ]
    ].sort()
  )
  t.equal(runSync(checkStateSliced(model.view, settings, 2)).length, 2, 'as many as are asked for')
})

// rules 3.7
t.test('addresses of the controllers that share the objects are theirs', async t => {
  const controllers = [
    { name: 'controller', address: settings.controller.address },
    { name: 'c2', address: '10.141.0.1' },
    { name: 'c3', address: '127.0.0.1' }
  ]
  const objects = {
    'network/cluster': { network: '10.141.0.0/16' },
    'network/loopback': { network: '127.0.0.0/8' }
  }
  const cluster = new MemoryCluster(objects, controllers)
  const { model } = cluster
  t.equal(formatAddress(nextFree(model.view, 'cluster', model.cluster)), '10.141.0.2')
  t.equal(formatAddress(nextFree(model.view, 'loopback', model.cluster)), '127.0.0.1')
  const range = { dhcp: true, dhcp_range_begin: '10.141.0.1', dhcp_range_end: '10.141.0.9' }
  for (const [path, body, message] of [
    [
      'otherdev/pdu',
      { network: 'cluster', ipaddress: '10.141.0.1' },
      'other device pdu: 10.141.0.1 belongs to controller c2'
    ],
    ['network/cluster', range, /the range holds 10\.141\.0\.1, the address of controller c2/]
  ] as const)
    await t.rejects(cluster.request('post', path, body), { status: 400, message })
  t.strictSame(takenIn(model.view, 'cluster', model.cluster), [
    { ipaddress: '10.141.0.1', device: 'c2' },
    { ipaddress: '10.141.255.254', device: 'controller' }
  ])
})
