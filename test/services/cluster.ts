import type { ClusterIndex } from '../../lib/model/cluster-index.js'
import type { Docs } from '../../lib/model/docs.js'
import type { ClusterSettings, View } from '../../lib/model/stored.js'
import { createIndex, kinds } from '../../lib/model/types.js'
import { State } from '../../lib/store/state.js'

export type Objects = { [K in keyof Docs]?: Readonly<Record<string, object>> }

export const settings: ClusterSettings = {
  provision_method: 'http',
  provision_fallback: 'http',
  variables: {},
  ntp_server: '',
  debug: false,
  technical_contacts: '',
  controller: { name: 'controller', address: '10.141.255.254' },
  servesDns: true,
  otherControllers: [],
  urlAddresses: [],
  imageDirectory: '/images'
}

/** Stored objects as the services see them, by type and name; fields as they are stored. */
export function view(objects: Objects): View {
  const state = new State<Docs, ClusterIndex>(Object.keys(kinds), createIndex())
  for (const [type, docs] of Object.entries(objects))
    for (const [name, doc] of Object.entries(docs ?? {}))
      state.set(type, name, kinds[type as keyof Docs].decode(name, { name, ...doc }))
  return state
}

/** The MAC of machine number n. */
export const mac = (n: number) =>
  `52:54:00:${[16, 8, 0].map(bits => ((n >> bits) & 255).toString(16).padStart(2, '0')).join(':')}`

/** `count` nodes of one group in 10.0.0.0/8. */
export const many = (count: number): Objects => ({
  network: {
    cluster: {
      network: '10.0.0.0/8',
      gateway: '10.255.255.253',
      dhcp: true,
      dhcp_range_begin: '10.200.0.1',
      dhcp_range_end: '10.200.255.255'
    }
  },
  group: { compute: { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] } },
  node: Object.fromEntries(
    Array.from({ length: count }, (_, i) => [
      `node${String(i + 1).padStart(5, '0')}`,
      {
        group: 'compute',
        ...(i % 3 === 1 ? { netboot: false } : i % 3 === 2 ? { bootmenu: true } : {}),
        interfaces: [
          {
            interface: 'BOOTIF',
            network: 'cluster',
            ipaddress: `10.1.${(i + 1) >> 8}.${(i + 1) & 255}`,
            macaddress: mac(i + 1)
          }
        ]
      }
    ])
  )
})

const awful = '"; } host x { \\" \n # } */ {{ url }} {% if %} \'`$(id)` ö \u0000'.replace('\u0000', '')

/** One of each kind of thing, at its edges and with text that would break out of a file. */
export const everything: Objects = {
  network: {
    cluster: {
      network: '10.141.0.0/16',
      gateway: '10.141.255.253',
      ns_hostname: 'ns1',
      ns_ip: '10.141.255.252',
      ntp_server: 'sw1 10.141.0.250, controller.cluster, node001.HPC.example.com, unknown.example.org',
      comment: awful,
      dhcp: true,
      dhcp_range_begin: '10.141.128.1',
      dhcp_range_end: '10.141.131.255'
    },
    'Cluster.2': { network: '10.141.0.0/16', comment: awful },
    inner: { network: '10.141.64.0/22' },
    // In the range of the one around it.
    nest: {
      network: '10.141.130.0/24',
      dhcp: true,
      dhcp_range_begin: '10.141.130.1',
      dhcp_range_end: '10.141.130.9'
    },
    ipmi: {
      network: '10.149.0.0/22',
      dhcp: true,
      dhcp_range_begin: '10.149.3.250',
      dhcp_range_end: '10.149.3.254',
      dhcp_nodes_only: true
    },
    off: { network: '10.150.0.0/24', dhcp_range_begin: '10.150.0.9', dhcp_range_end: '10.150.0.10' },
    pair: { network: '10.7.0.0/31', dhcp: true, dhcp_range_begin: '10.7.0.0', dhcp_range_end: '10.7.0.1' },
    four: {
      network: '10.7.0.4/30',
      gateway: '10.7.0.5',
      dhcp: true,
      dhcp_range_begin: '10.7.0.6',
      dhcp_range_end: '10.7.0.6'
    },
    one_host: { network: '10.7.1.1/32' },
    eight: {
      network: '11.0.0.0/8',
      dhcp: true,
      dhcp_range_begin: '11.0.0.1',
      dhcp_range_end: '11.255.255.254'
    },
    twelve: { network: '172.16.0.0/12' },
    'Not..a-Domain.': {
      network: '192.168.9.0/25',
      dhcp: true,
      dhcp_range_begin: '192.168.9.9',
      dhcp_range_end: '192.168.9.9'
    },
    local: { network: '127.0.0.0/8' }
  },
  group: {
    compute: {
      domain: 'hpc.example.com',
      comment: awful,
      interfaces: [
        { interface: 'BOOTIF', network: 'cluster' },
        { interface: 'BMC', network: 'ipmi' }
      ]
    }
  },
  node: {
    // The four boot cases (rules 4.13): short, normal, disk; unknown is nobody here.
    node001: {
      group: 'compute',
      comment: awful,
      vendor: awful,
      interfaces: [
        { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1', macaddress: mac(1) },
        { interface: 'BMC', network: 'ipmi', ipaddress: '10.149.0.1', macaddress: mac(101) },
        {
          interface: 'e_th..1',
          network: 'cluster',
          ipaddress: '10.141.128.7',
          macaddress: mac(201),
          options: awful,
          own: true
        }
      ]
    },
    node002: {
      bootmenu: true,
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.2', macaddress: mac(2) }]
    },
    node003: {
      netboot: false,
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.3', macaddress: mac(3) }]
    },
    // One of the range, and the script of its case all the same.
    node004: { interfaces: [{ interface: 'BOOTIF', network: 'cluster', macaddress: mac(4) }] },
    // Nothing to say of these.
    node005: {
      bootmenu: true,
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', macaddress: mac(5) }]
    },
    node006: {
      interfaces: [{ interface: 'BOOTIF', network: 'off', ipaddress: '10.150.0.6', macaddress: mac(6) }]
    },
    node007: { interfaces: [{ interface: 'BOOTIF', macaddress: mac(7) }] },
    node008: {
      domain: 'a_b.c',
      interfaces: [{ interface: 'BOOTIF', network: 'inner', ipaddress: '10.141.64.8' }]
    },
    node009: {
      interfaces: [{ interface: 'BOOTIF', network: 'pair', ipaddress: '10.7.0.1', macaddress: mac(9) }]
    }
  },
  switch: {
    sw1: {
      network: 'cluster',
      ipaddress: '10.141.0.200',
      macaddress: mac(301),
      read: awful,
      vendor: awful,
      comment: awful
    },
    'Rack.2_Top-': { network: 'twelve', ipaddress: '172.31.0.1' },
    node002: { network: 'cluster', ipaddress: '10.141.0.202' }
  },
  otherdev: {
    pdu: { network: 'ipmi', ipaddress: '10.149.0.200', macaddress: mac(302), comment: awful },
    stock: { macaddress: mac(303) },
    // The whole range of its network.
    full: { network: 'Not..a-Domain.', ipaddress: '192.168.9.9', macaddress: mac(304) },
    lone: { network: 'one_host', ipaddress: '10.7.1.1' }
  }
}

/** Loaders of all kinds: of a network, of nodes that differ from it, and of a port of InfiniBand. */
export const loaders: Objects = {
  network: {
    secure: {
      network: '10.141.0.0/16',
      dhcp: true,
      dhcp_range_begin: '10.141.128.1',
      dhcp_range_end: '10.141.131.255',
      loader: 'grub'
    },
    plain: {
      network: '10.142.0.0/16',
      dhcp: true,
      dhcp_range_begin: '10.142.128.1',
      dhcp_range_end: '10.142.131.255'
    }
  },
  group: { compute: {} },
  node: Object.fromEntries(
    (
      [
        ['secure', {}],
        ['secure', { loader: 'ipxe' }],
        ['secure', { loader: 'ipxe', bootmenu: true }],
        ['plain', { loader: 'grub' }],
        ['plain', { loader: 'grub', bootmenu: true }],
        ['plain', { loader: 'grub', netboot: false }],
        ['plain', { loader: 'grub', macaddress: '00:02:c9:03:00:31:78:f1' }]
      ] as const
    )
      .map(([network, given], i) => [network, { macaddress: undefined, ...given }, i] as const)
      .map(([network, { macaddress, ...fields }, i]) => [
        `node${i + 1}`,
        {
          group: 'compute',
          ...fields,
          interfaces: [
            {
              interface: 'BOOTIF',
              network,
              ipaddress: `10.14${network === 'secure' ? 1 : 2}.0.${i + 1}`,
              macaddress: macaddress ?? mac(i + 1)
            }
          ]
        }
      ])
  )
}
