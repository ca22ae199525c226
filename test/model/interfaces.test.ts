import t from 'tap'
import { admin, checkRows, type Objects } from '../support/memory-cluster.js'

const on = (name: string, network?: string, ipaddress?: string, more: object = {}) => ({
  interface: name,
  ...(network === undefined ? {} : { network }),
  ...(ipaddress === undefined ? {} : { ipaddress }),
  ...more
})
const own = { own: true }
const mac = '52:54:00:00:00:01'

const shared: Objects = {
  'network/a': { network: '10.1.0.0/24', gateway: '10.1.0.1' },
  'network/b': { network: '10.2.0.0/24' },
  'network/named': { network: '10.5.0.0/24', ns_ip: '10.5.0.9' },
  'network/tiny': { network: '10.3.0.0/30' },
  'network/dynamic': {
    network: '10.4.0.0/24',
    dhcp: true,
    dhcp_range_begin: '10.4.0.1',
    dhcp_range_end: '10.4.0.99'
  },
  'group/g': { interfaces: [on('BOOTIF', 'a'), on('BMC', 'b', undefined, { options: 'vlan 7' })] },
  'group/both': { interfaces: [on('BOOTIF', 'b'), on('ib0', 'b')] },
  'group/h': { interfaces: [on('BOOTIF', 'a'), on('ib0', 'b')] }
}
const member = { group: 'g', interfaces: [on('BOOTIF', 'a', '10.1.0.2'), on('BMC', 'b', '10.2.0.1')] }
const before = { 'node/n1': member }

t.test('a node has its group’s interfaces (rules 3.5)', async t =>
  checkRows(t, shared, [
    {
      is: 'a new node gets the next free address of each network',
      before: { 'node/n1': member },
      request: ['post', 'node/n2', { group: 'g' }],
      after: {
        'node/n2': { group: 'g', interfaces: [on('BOOTIF', 'a', '10.1.0.3'), on('BMC', 'b', '10.2.0.2')] }
      }
    },
    {
      is: 'a new node may name some of them, the others are assigned',
      request: [
        'post',
        'node/n1',
        { group: 'g', interfaces: [{ interface: 'BOOTIF', ipaddress: '10.1.0.9', macaddress: mac }] }
      ],
      after: {
        'node/n1': {
          group: 'g',
          interfaces: [on('BOOTIF', 'a', '10.1.0.9', { macaddress: mac }), on('BMC', 'b', '10.2.0.1')]
        }
      }
    },
    {
      is: 'without a free address nothing is created',
      before: {
        'group/g': { interfaces: [on('BOOTIF', 'tiny')] },
        'otherdev/x': { network: 'tiny', ipaddress: '10.3.0.1' },
        'otherdev/y': { network: 'tiny', ipaddress: '10.3.0.2' }
      },
      request: ['post', 'node/n1', { group: 'g' }],
      refused: [404, 'network tiny has no free address']
    },
    {
      is: 'members get an interface that is added to the group',
      before,
      request: ['post', 'group/g', { interfaces: [on('eth1', 'b')] }],
      after: {
        'group/g': {
          interfaces: [on('BOOTIF', 'a'), on('BMC', 'b', undefined, { options: 'vlan 7' }), on('eth1', 'b')]
        },
        'node/n1': { group: 'g', interfaces: [...member.interfaces, on('eth1', 'b', '10.2.0.2')] }
      }
    },
    {
      is: 'members follow an interface that is moved to another network',
      before: {
        'node/n1': member,
        'node/n2': {
          group: 'g',
          interfaces: [on('BOOTIF', 'b', '10.2.0.5'), on('BMC', 'b', '10.2.0.6')]
        }
      },
      request: ['post', 'group/g', { interfaces: [on('BOOTIF', 'tiny')] }],
      after: {
        'group/g': { interfaces: [on('BOOTIF', 'tiny'), on('BMC', 'b', undefined, { options: 'vlan 7' })] },
        'node/n1': {
          group: 'g',
          interfaces: [on('BOOTIF', 'tiny', '10.3.0.1'), on('BMC', 'b', '10.2.0.1')]
        }
      }
    },
    {
      is: 'a move keeps what fits, assigns what is new, drops what the new group lacks, and keeps what is its own',
      before: {
        'node/n1': { ...member, interfaces: [...member.interfaces, on('eth9', 'b', '10.2.0.7', own)] }
      },
      request: ['post', 'node/n1', { group: 'h' }],
      after: {
        'node/n1': {
          group: 'h',
          interfaces: [
            on('BOOTIF', 'a', '10.1.0.2'),
            on('eth9', 'b', '10.2.0.7', own),
            on('ib0', 'b', '10.2.0.2')
          ]
        }
      }
    },
    {
      is: 'an interface that was deleted on the node comes back with another group',
      before: {
        'node/n1': { group: 'g', interfaces: [on('BMC', 'b', '10.2.0.1')], removed: ['BOOTIF'] }
      },
      request: ['post', 'node/n1', { group: 'h' }],
      after: {
        'node/n1': { group: 'h', interfaces: [on('BOOTIF', 'a', '10.1.0.2'), on('ib0', 'b', '10.2.0.2')] }
      }
    },
    {
      is: 'an interface that was deleted on the node comes back when it is posted',
      before: {
        'node/n1': { group: 'g', interfaces: [on('BMC', 'b', '10.2.0.1')], removed: ['BOOTIF'] }
      },
      request: ['post', 'node/n1', { interfaces: [{ interface: 'BOOTIF' }] }],
      after: {
        'node/n1': {
          group: 'g',
          interfaces: [on('BMC', 'b', '10.2.0.1'), on('BOOTIF', 'a', '10.1.0.2')]
        }
      }
    }
  ])
)

t.test('addresses of a node’s interfaces (rules 3.14)', async t =>
  checkRows(t, shared, [
    {
      is: 'a new interface gets the next free one, the node’s own are counted',
      request: ['post', 'node/n1', { interfaces: [on('eth0', 'b'), on('eth1', 'b')] }],
      after: {
        'node/n1': { interfaces: [on('eth0', 'b', '10.2.0.1', own), on('eth1', 'b', '10.2.0.2', own)] }
      }
    },
    {
      is: 'those that the request names come first, wherever they stand in it',
      request: ['post', 'node/n1', { interfaces: [on('eth0', 'b'), on('eth1', 'b', '10.2.0.1')] }],
      after: {
        'node/n1': { interfaces: [on('eth0', 'b', '10.2.0.2', own), on('eth1', 'b', '10.2.0.1', own)] }
      }
    },
    {
      is: 'those that the request names come before those of the new node’s group',
      request: ['post', 'node/n1', { group: 'g', interfaces: [on('eth1', 'b', '10.2.0.1')] }],
      after: {
        'node/n1': {
          group: 'g',
          interfaces: [
            on('BOOTIF', 'a', '10.1.0.2'),
            on('BMC', 'b', '10.2.0.2'),
            on('eth1', 'b', '10.2.0.1', own)
          ]
        }
      }
    },
    {
      is: 'those that the request names come before those of the group that the node moves to',
      before,
      request: ['post', 'node/n1', { group: 'h', interfaces: [on('eth1', 'b', '10.2.0.2')] }],
      after: {
        'node/n1': {
          group: 'h',
          interfaces: [
            on('BOOTIF', 'a', '10.1.0.2'),
            on('ib0', 'b', '10.2.0.3'),
            on('eth1', 'b', '10.2.0.2', own)
          ]
        }
      }
    },
    {
      is: 'those that the request names come before those of a clone',
      before,
      request: ['clone', 'node/n1', { newhostname: 'n2', interfaces: [on('BMC', 'a', '10.1.0.3')] }],
      after: {
        'node/n2': { group: 'g', interfaces: [on('BOOTIF', 'a', '10.1.0.4'), on('BMC', 'a', '10.1.0.3')] }
      }
    },
    {
      is: 'what the request names of the new node’s group comes first, in the list and for an address',
      request: ['post', 'node/n1', { group: 'both', interfaces: [{ interface: 'ib0', macaddress: mac }] }],
      after: {
        'node/n1': {
          group: 'both',
          interfaces: [on('ib0', 'b', '10.2.0.1', { macaddress: mac }), on('BOOTIF', 'b', '10.2.0.2')]
        }
      }
    },
    {
      is: 'the group’s interfaces get theirs in the order of the group, before those of the request',
      before: {
        'node/n1': { interfaces: [on('ib0', 'b', undefined, own), on('eth5', 'a', '10.1.0.2', own)] }
      },
      request: ['post', 'node/n1', { group: 'both', interfaces: [on('eth5', 'b')] }],
      after: {
        'node/n1': {
          group: 'both',
          interfaces: [
            on('ib0', 'b', '10.2.0.2', own),
            on('eth5', 'b', '10.2.0.3', own),
            on('BOOTIF', 'b', '10.2.0.1')
          ]
        }
      }
    },
    {
      is: 'no address for an interface of the new node’s group',
      request: ['post', 'node/n1', { group: 'both', interfaces: [{ interface: 'ib0', ipaddress: null }] }],
      after: {
        'node/n1': { group: 'both', interfaces: [on('ib0', 'b'), on('BOOTIF', 'b', '10.2.0.1')] }
      }
    },
    {
      is: 'null gives none, and none is kept',
      request: ['post', 'node/n1', { interfaces: [{ interface: 'eth0', network: 'b', ipaddress: null }] }],
      after: { 'node/n1': { interfaces: [on('eth0', 'b', undefined, own)] } }
    },
    {
      is: 'one that moves to another network gets an address there',
      before,
      request: ['post', 'node/n1', { interfaces: [on('BOOTIF', 'b')] }],
      after: {
        'node/n1': { group: 'g', interfaces: [on('BOOTIF', 'b', '10.2.0.2'), on('BMC', 'b', '10.2.0.1')] }
      }
    },
    {
      is: 'without a network an interface has no address, and may have a MAC',
      before,
      request: ['post', 'node/n1', { interfaces: [{ interface: 'BOOTIF', network: null, macaddress: mac }] }],
      after: {
        'node/n1': {
          group: 'g',
          interfaces: [on('BOOTIF', undefined, undefined, { macaddress: mac }), on('BMC', 'b', '10.2.0.1')]
        }
      }
    },
    {
      is: 'an address without a network',
      request: ['post', 'node/n1', { interfaces: [{ interface: 'eth0', ipaddress: '10.2.0.1' }] }],
      refused: [
        400,
        'node n1: interface eth0: an address needs a network, and neither this interface nor a group of the node names one'
      ]
    },
    {
      is: 'a network that does not exist',
      request: ['post', 'node/n1', { interfaces: [on('eth0', 'c')] }],
      refused: [400, 'node n1: interface eth0: network c does not exist']
    },
    {
      is: 'a group’s options, posted as they are shown, are not stored on the node',
      before,
      request: ['post', 'node/n1', { interfaces: [{ interface: 'BMC', options: 'vlan 7' }] }]
    }
  ])
)

const dynamic = { interfaces: [{ interface: 'eth0', network: 'dynamic', ipaddress: '10.4.0.5' }] }
const taking = { interfaces: [{ interface: 'eth0', network: 'a', ipaddress: '10.1.0.2' }] }
const forced = (body: typeof dynamic) => ({
  interfaces: body.interfaces.map(entry => ({ ...entry, force: true }))
})

t.test('addresses by force (rules 3.8)', async t =>
  checkRows(t, shared, [
    {
      is: 'in the dynamic range',
      request: ['post', 'node/n2', dynamic],
      refused: [
        400,
        'node n2: interface eth0: 10.4.0.5 lies in the dynamic range of network dynamic; "force": true allows it'
      ]
    },
    {
      is: 'in the dynamic range, forced',
      request: ['post', 'node/n2', forced(dynamic)],
      after: { 'node/n2': { interfaces: [on('eth0', 'dynamic', '10.4.0.5', own)] } }
    },
    {
      is: 'of another node',
      before,
      request: ['post', 'node/n2', taking],
      refused: [400, 'node n2: interface eth0: 10.1.0.2 belongs to node n1 (BOOTIF)']
    },
    {
      is: 'of another node, forced: that one has none then',
      before,
      request: ['post', 'node/n2', forced(taking)],
      after: {
        'node/n1': { group: 'g', interfaces: [on('BOOTIF', 'a'), on('BMC', 'b', '10.2.0.1')] },
        'node/n2': { interfaces: [on('eth0', 'a', '10.1.0.2', own)] }
      }
    },
    {
      is: 'of another node, forced by one who may not',
      before,
      request: ['post', 'node/n2', forced(taking)],
      by: { ...admin, mayTakeAddresses: false },
      refused: [400, 'node n2: interface eth0: 10.1.0.2 belongs to node n1 (BOOTIF)']
    },
    {
      is: 'of the name server, by a node',
      request: ['post', 'node/n2', { interfaces: [on('eth0', 'named', '10.5.0.9')] }],
      by: { ...admin, mayTakeAddresses: false },
      refused: [400, 'node n2: interface eth0: 10.5.0.9 is the name server of network named']
    },
    {
      is: 'of the name server, by an admin, who puts it on a node',
      request: ['post', 'node/n2', { interfaces: [on('eth0', 'named', '10.5.0.9')] }],
      after: { 'node/n2': { interfaces: [on('eth0', 'named', '10.5.0.9', own)] } }
    },
    {
      is: 'of the name server, by the node that an admin put it on',
      before: { 'node/n2': { interfaces: [on('eth0', 'named', '10.5.0.9', own)] } },
      request: [
        'post',
        'node/n2',
        { vendor: 'ACME', interfaces: [{ interface: 'eth0', ipaddress: '10.5.0.9' }] }
      ],
      by: { ...admin, mayTakeAddresses: false },
      after: { 'node/n2': { vendor: 'ACME', interfaces: [on('eth0', 'named', '10.5.0.9', own)] } }
    },
    {
      is: 'of a device, forced',
      before: { 'switch/sw': { network: 'a', ipaddress: '10.1.0.2' } },
      request: ['post', 'node/n2', forced(taking)],
      refused: [400, 'node n2: interface eth0: 10.1.0.2 belongs to switch sw']
    }
  ])
)

const source = {
  group: 'g',
  switch: 'sw1',
  switchport: 7,
  vendor: 'ACME',
  comment: 'kept',
  interfaces: [
    on('BOOTIF', 'a', '10.1.0.2', { macaddress: mac }),
    on('BMC', 'b', '10.2.0.1'),
    on('eth9', 'b', undefined, own)
  ]
}

t.test('what a clone has (rules 3.2)', async t =>
  checkRows(t, shared, [
    {
      is: 'a node: the next free addresses, neither MAC nor place; an interface without an address stays so',
      before: { 'node/n1': source },
      request: ['clone', 'node/n1', { newhostname: 'n2' }],
      after: {
        'node/n2': {
          group: 'g',
          comment: 'kept',
          interfaces: [
            on('BOOTIF', 'a', '10.1.0.3'),
            on('BMC', 'b', '10.2.0.2'),
            on('eth9', 'b', undefined, own)
          ]
        }
      }
    },
    {
      is: 'a device: the next free address and no MAC',
      before: { 'otherdev/x': { network: 'b', ipaddress: '10.2.0.1', macaddress: mac, vendor: 'ACME' } },
      request: ['clone', 'otherdev/x', { newotherdevname: 'y', comment: 'new' }],
      after: { 'otherdev/y': { network: 'b', ipaddress: '10.2.0.2', vendor: 'ACME', comment: 'new' } }
    },
    {
      is: 'a device without an address',
      before: { 'otherdev/x': { network: 'b' } },
      request: ['clone', 'otherdev/x', { newotherdevname: 'y' }],
      after: { 'otherdev/y': { network: 'b' } }
    }
  ])
)

t.test('MACs (rules 3.9)', async t =>
  checkRows(t, shared, [
    {
      is: 'macaddr is the MAC of the provision interface',
      before,
      request: ['post', 'node/n1', { macaddr: '5254.0000.0001' }],
      after: {
        'node/n1': {
          group: 'g',
          interfaces: [on('BOOTIF', 'a', '10.1.0.2', { macaddress: mac }), on('BMC', 'b', '10.2.0.1')]
        }
      }
    },
    {
      is: 'the provision interface is made when the node lacks it',
      request: ['post', 'node/n1', { macaddr: mac }],
      after: { 'node/n1': { interfaces: [on('BOOTIF', undefined, undefined, { macaddress: mac, ...own })] } }
    },
    {
      is: 'a MAC belongs to one',
      before: { 'node/n1': source },
      request: ['post', 'switch/sw', { macaddress: mac }],
      refused: [400, `switch sw: MAC ${mac} belongs to node n1 (BOOTIF)`]
    }
  ])
)
