import { awkward } from '../../support/specimens.js'

const script = Buffer.from('#!/bin/sh\ntrue\n').toString('base64')

/**
 * Where each sequence begins: overlapping networks, names that objects of the language have, every kind of
 * reference.
 */
export const beginning = {
  config: {
    cluster: {},
    network: {
      alpha: { name: 'alpha', network: '10.1.0.0/28', gateway: '10.1.0.1' },
      beta: {
        name: 'beta',
        network: '10.2.0.0/24',
        ns_ip: '10.2.0.2',
        dhcp: true,
        dhcp_range_begin: '10.2.0.200',
        dhcp_range_end: '10.2.0.220',
        comment: awkward
      },
      constructor: { name: 'constructor', network: '10.1.0.0/24' }
    },
    osimage: {
      compute: {
        name: 'compute',
        kernelfile: 'vmlinuz',
        initrdfile: 'initrd.img',
        imagefile: 'compute.tar.gz'
      },
      constructor: { name: 'constructor', grab_exclude: ['/proc/*'] }
    },
    bmcsetup: { boards: { name: 'boards', username: 'root', password: '"$(id)`\n\t<b> # 🙂' } },
    group: {
      compute: {
        name: 'compute',
        osimage: 'compute',
        osimagetag: 'stable',
        bmcsetupname: 'boards',
        interfaces: [
          { interface: 'BOOTIF', network: 'alpha' },
          { interface: 'BMC', network: 'beta', options: 'vlan=7' }
        ]
      },
      constructor: {
        name: 'constructor',
        osimage: 'constructor',
        interfaces: [{ interface: 'BOOTIF', network: 'alpha' }]
      }
    },
    node: {
      n1: {
        name: 'n1',
        group: 'compute',
        switch: 'rack1',
        switchport: 3,
        interfaces: [
          { interface: 'BOOTIF', network: 'alpha', ipaddress: '10.1.0.2', macaddress: '52:54:00:00:00:01' },
          { interface: 'BMC', network: 'beta', ipaddress: '10.2.0.1' }
        ]
      },
      n2: {
        name: 'n2',
        group: 'compute',
        comment: awkward,
        domain: 'example.org',
        osimagetag: 'tried',
        interfaces: [{ interface: 'BMC', network: 'beta', ipaddress: '10.2.0.3' }],
        removed: ['BOOTIF']
      },
      constructor: { name: 'constructor', osimage: 'constructor', provision_interface: 'eth1' }
    },
    switch: { rack1: { name: 'rack1', network: 'beta', ipaddress: '10.2.0.250', read: 'public' } },
    otherdev: { pdu: { name: 'pdu', network: 'alpha', ipaddress: '10.1.0.14' } },
    osimagetag: {
      stable: { name: 'stable', osimage: 'compute', kernelfile: 'vmlinuz', initrdfile: 'initrd.img' },
      tried: { name: 'tried', osimage: 'compute' },
      'constructor:stable': { name: 'stable', osimage: 'constructor' }
    },
    secrets: {
      group: { compute: [{ name: 'munge', path: '/etc/munge/munge.key', content: script }] },
      node: { n1: [{ name: 'key', path: '/etc/key', content: '' }] }
    }
  }
}
