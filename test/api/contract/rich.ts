import type { Controller } from '../../support/controller.js'
import { base64 } from './world.js'

/** Text that has to come back as it was, wherever it goes. */
export const hostile =
  'He said "no";\n\r\ttab \\ $HOME `id` {{ x }} {% raw %} <b>&amp; \u007f\u2028\ufeff 🙂 ü é end '

/** As much of that as a BMC takes. */
export const hostileWord = '"$(id)`\n{{ x }} # ü'

const script = base64(`#!/bin/sh\n# ${hostile}\necho done\n`)

/** Objects of every type that use each other, with names and texts that are easy to spoil. */
export async function richCluster(c: Controller): Promise<void> {
  for (const name of ['vmlinuz', 'initrd.img', 'a.tar.gz']) c.file(name)
  const interfaces = (...list: object[]) => ({ interfaces: list })
  const posts: readonly (readonly [path: string, body: unknown])[] = [
    [
      'cluster',
      { ntp_server: 'ntp1.example.org,10.0.0.1', technical_contacts: hostile, provision_method: 'http' }
    ],
    ['network/net-10', { network: '10.10.0.0/16', gateway: '10.10.0.254', comment: hostile }],
    [
      'network/net-2',
      { network: '10.2.0.0/24', dhcp: true, dhcp_begin: '10.2.0.100', dhcp_end: '10.2.0.200' }
    ],
    ['network/Net_1.x', { network: '10.1.0.0/30', ns_hostname: 'ns.example.org', ns_ip: '192.0.2.53' }],
    ['network/empty', { network: '0.0.0.0/0', comment: '' }],
    [
      'network/range-kept',
      { network: '10.3.0.0/24', dhcp: false, dhcp_begin: '10.3.0.1', dhcp_end: '10.3.0.2' }
    ],
    [
      'osimage/10',
      { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'a.tar.gz', comment: hostile }
    ],
    [
      'osimage/9',
      {
        path: '/srv/a b',
        grab_exclude: ['/proc/*', hostile],
        grab_filesystems: ['/'],
        kerneloptions: 'a="b c"'
      }
    ],
    ['osimage/constructor', { distribution: 'debian' }],
    ['osimage/9/tag', { tag: 'v1' }],
    ['osimage/10/tag', { tag: 'v1' }],
    ['osimage/10/tag', { tag: '2024' }],
    ['osimage/constructor/tag', { tag: 'toString' }],
    [
      'bmcsetup/boards',
      { userid: 5, username: hostile.slice(0, 16), password: hostileWord, comment: hostile }
    ],
    ['bmcsetup/defaults', {}],
    [
      'switch/sw1',
      {
        network: 'net-10',
        ipaddress: '10.10.9.1',
        oid: '.1.3.6.1',
        read: hostile,
        rw: 'x',
        uplinkports: '1,2'
      }
    ],
    [
      'otherdev/pdu',
      { network: 'net-10', ipaddress: '10.10.9.2', macaddress: '52:54:00:00:09:02', comment: hostile }
    ],
    [
      'group/g10',
      {
        osimage: '10',
        osimagetag: 'v1',
        comment: hostile,
        prescript: script,
        roles: 'a, b',
        ...interfaces(
          { interface: 'BOOTIF', network: 'net-10', options: hostile },
          { interface: 'BMC', network: 'net-2' }
        )
      }
    ],
    ['group/g9', { osimage: '9', setupbmc: true, bmcsetupname: 'boards', unmanaged_bmc_users: 'delete' }],
    ['group/X.y_z-1', { netboot: false, provision_method: 'torrent', domain: 'example.org' }],
    [
      'node/n10',
      {
        group: 'g10',
        comment: hostile,
        switch: 'sw1',
        switchport: 'Gi1/0/"7"',
        postscript: script,
        macaddr: '52:54:00:00:00:10'
      }
    ],
    [
      'node/n9',
      {
        group: 'g10',
        switch: 'no such switch',
        switchport: 7,
        service: true,
        vendor: hostile,
        assettag: '',
        tpm_pubkey: 'k'
      }
    ],
    [
      'node/n1',
      {
        group: 'g9',
        osimage: '10',
        osimagetag: '2024',
        ...interfaces(
          { interface: 'eth1', network: 'net-10', ipaddress: '10.10.7.7', options: 'own' },
          { interface: 'bare', macaddress: '52:54:00:00:00:01' }
        )
      }
    ],
    [
      'node/alone',
      { ...interfaces({ interface: 'BOOTIF', network: 'net-2', ipaddress: '10.2.0.150', force: true }) }
    ],
    [
      'secrets/group/g10',
      [
        { name: 'munge', path: '/etc/munge key', content: base64(hostile) },
        { name: 'empty', path: '/e', content: '' }
      ]
    ],
    ['secrets/node/n9', [{ name: 'a', path: '/a', content: base64('a') }]],
    ['secrets/node/n10', [{ name: 'b', path: '/b', content: base64('b') }]]
  ]
  for (const [path, body] of posts) {
    const { status, text } = await c.post(`/config/${path}`, body)
    if (status >= 300) throw new Error(`${path}: ${status} ${text}`)
  }
  const { status } = await c.get('/config/node/n9/interfaces/BMC/_delete')
  if (status !== 204) throw new Error('an interface that is removed by hand')
}
