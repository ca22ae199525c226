const base64 = (text: string) => Buffer.from(text).toString('base64')
const table = (name: string, ...rows: object[]) => ({
  [name]: [{ SQLITE_SEQUENCE: rows.length }, { STRUCTURE: [{ column: 'id', datatype: 'INTEGER' }] }, ...rows]
})

/** An export as luna2's daemon gives it: its tables, each with how it was made before its rows. */
export const luna2Export = {
  ...table('cluster', {
    ...{
      id: 1,
      name: 'mycluster',
      user: null,
      ntp_server: '10.141.255.254',
      technical_contacts: 'root@localhost'
    },
    ...{
      provision_method: 'torrent',
      provision_fallback: 'http',
      debug: 0,
      security: 1,
      packing_bootpause: 0
    }
  }),
  ...table(
    'network',
    {
      ...{ id: 1, name: 'cluster', network: '10.141.0.0', subnet: '16', gateway: '10.141.255.254' },
      ...{
        nameserver_ip: '10.141.255.253',
        dhcp: 1,
        dhcp_nodes_only: '1',
        dhcp_nodes_in_pool: 0,
        shared: null
      },
      ...{
        dhcp_range_begin: '10.141.128.1',
        dhcp_range_end: '10.141.128.99',
        zone: 'internal',
        type: 'ethernet'
      },
      ...{ network_ipv6: '', comment: base64('the wire of all'), ntp_server: null, non_authoritative: 0 }
    },
    {
      ...{
        id: 2,
        name: 'ipmi',
        network: '10.148.0.0',
        subnet: 16,
        dhcp: 0,
        shared: 'cluster',
        gateway: null
      },
      ...{ zone: 'internal', type: 'ethernet', non_authoritative: 1 }
    },
    { id: 3, name: 'v6', network: null, subnet: null, network_ipv6: 'fd00::', subnet_ipv6: '64', dhcp: 0 }
  ),
  ...table('osimage', {
    ...{
      id: 1,
      name: 'compute',
      kerneloptions: base64('quiet console=ttyS0'),
      distribution: 'rocky',
      osrelease: 9
    },
    ...{
      grab_filesystems: base64('/\n/boot\n'),
      grab_exclude: '/proc/*,/sys/*',
      imagefile: 'compute-1.tar.bz2'
    },
    ...{ kernelfile: 'compute-vmlinuz', initrdfile: 'compute-initramfs', path: '/trinity/images/compute' },
    ...{ kernelmodules: 'ipmi_si', kernelversion: '5.14.0', tagid: 1, changed: 0, comment: '' }
  }),
  ...table('osimagetag', {
    ...{
      id: 1,
      name: 'v1',
      osimageid: 1,
      kernelfile: 'compute-0-vmlinuz',
      initrdfile: 'compute-0-initramfs'
    },
    ...{ imagefile: 'compute-0.tar.bz2', kerneloptions: 'quiet' }
  }),
  ...table('bmcsetup', {
    ...{ id: 1, name: 'boards', userid: 3, username: 'admin', password: 'secret', netchannel: 1 },
    ...{ mgmtchannel: 1, comment: null, unmanaged_bmc_users: 'delete' }
  }),
  ...table('group', {
    ...{
      id: 5,
      name: 'compute',
      bmcsetupid: 1,
      setupbmc: 1,
      domain: 'cluster',
      osimageid: 1,
      osimagetagid: 1
    },
    ...{
      kerneloptions: null,
      ipxe_kernel: 'alternative',
      scripts: 'default',
      prescript: '',
      netboot: 1,
      bootmenu: 0
    },
    ...{
      postscript: base64('echo hi\n'),
      comment: base64('all of them'),
      roles: null,
      provision_interface: 'BOOTIF'
    },
    ...{ provision_method: 'kickstart', provision_fallback: 'http', unmanaged_bmc_users: '' }
  }),
  ...table(
    'groupinterface',
    { id: 1, groupid: 5, interface: 'BOOTIF', mtu: '9000', networkid: 1, options: null, dhcp: 0 },
    { id: 2, groupid: 5, interface: 'BMC', mtu: null, networkid: 2, options: '' },
    { id: 3, groupid: 5, interface: 'bond0', bond_mode: '802.3ad', bond_slaves: 'eth2, eth3', networkid: 1 }
  ),
  ...table(
    'node',
    {
      ...{
        id: 11,
        name: 'node001',
        groupid: 5,
        switchid: 1,
        switchport: '7',
        service: 1,
        comment: base64('kickstart')
      },
      ...{
        osimagetagid: 'default',
        netboot: null,
        status: 'installer.completed',
        cloudid: null,
        vendor: 'Dell'
      }
    },
    { id: 12, name: 'node002', groupid: null, osimageid: 1, service: 0 }
  ),
  ...table(
    'nodeinterface',
    { id: 1, nodeid: 11, interface: 'BOOTIF', macaddress: '52:54:00:00:00:01', mtu: '' },
    { id: 2, nodeid: 11, interface: 'BMC', macaddress: null },
    { id: 3, nodeid: 11, interface: 'eth7', mtu: '1500' }
  ),
  ...table(
    'ipaddress',
    { id: 1, ipaddress: '10.141.0.1', tableref: 'nodeinterface', tablerefid: 1, networkid: 1, dhcp: 1 },
    { id: 2, ipaddress: '10.148.0.1', tableref: 'nodeinterface', tablerefid: 2, networkid: 2, dhcp: 0 },
    {
      id: 3,
      ipaddress: null,
      ipaddress_ipv6: 'fd00::1',
      tableref: 'nodeinterface',
      tablerefid: 3,
      networkid: 3
    },
    { id: 4, ipaddress: '10.141.200.1', tableref: 'switch', tablerefid: 1, networkid: 1 },
    { id: 5, ipaddress: '10.141.200.2', tableref: 'otherdevices', tablerefid: 1, networkid: 1 },
    { id: 6, ipaddress: '10.141.255.254', tableref: 'controller', tablerefid: 1, networkid: 1 }
  ),
  ...table('switch', {
    id: 1,
    name: 'sw1',
    oid: '.1.3.6.1.2.1.17.7.1.2.2.1.2',
    read: 'public',
    rw: 'trusted'
  }),
  ...table('otherdevices', {
    id: 1,
    name: 'pdu1',
    macaddress: null,
    vendor: 'APC',
    comment: base64('a strip')
  }),
  ...table('nodesecrets', { id: 1, nodeid: 11, name: 'key', content: base64('secret'), path: '/etc/key' }),
  ...table('groupsecrets', { id: 1, groupid: 5, name: 'g', content: 'gAAAAABnbm9uZQ==', path: '/etc/g' }),
  ...table('dns', { id: 1, host: 'ldap', ipaddress: '10.141.1.1', networkid: 1 }),
  ...table('user', { id: 1, username: 'luna', password: 'x' }),
  ...table('cloud'),
  roles: [],
  controller: [{ STRUCTURE: [] }],
  ha: [{ SQLITE_SEQUENCE: 0 }]
}
