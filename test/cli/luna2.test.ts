import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { builtTree, svcd } from '../support/built-tree.js'
import { Controller } from '../support/controller.js'
import { luna2Export } from '../support/luna2-export.js'

const tree = builtTree(t.testdir())
const import_ = (c: Controller, file: string) => {
  const settings = [...c.overrides, `http.listen=127.0.0.1:${c.daemon.port}`].flatMap(one => ['--set', one])
  return svcd(tree, ['import', '--luna2', '--yes', file, '--config', join(tree, 'etc/svcd.ini'), ...settings])
}
const file = join(tree, 'luna2.json')

// rules 2.17
t.test('the export of the other daemon is imported as it is, and what has no place here is told', async t => {
  const c = await Controller.start(t)
  writeFileSync(file, JSON.stringify(luna2Export))
  const { code, stdout, stderr } = await import_(c, file)
  t.equal(code, 0, stderr)
  t.match(stdout, /^imported: /)
  for (const line of [
    'group, column scripts: 1',
    'group, column ipxe_kernel: 1',
    'osimage, column tagid: 1',
    'cluster, column security: 1',
    'group, column provision_method: 1',
    'groupsecrets, encrypted: 1',
    'network, of IPv6 alone: 1',
    'nodeinterface, without a network of IPv4: 1',
    'table dns: 1',
    'table user: 1'
  ])
    t.ok(stderr.split('\n').includes(`left out: ${line}`), `${line}: ${stderr}`)
  const all = (await c.get('/config/cluster/export')).body.config
  t.match(all.cluster, { ntp_server: '10.141.255.254', technical_contacts: 'root@localhost' })
  t.match(all.network, {
    cluster: {
      ...{ network: '10.141.0.0/16', gateway: '10.141.255.254', ns_ip: '10.141.255.253', dhcp: true },
      ...{ dhcp_range_begin: '10.141.128.1', dhcp_nodes_only: true, zone: 'internal', type: 'ethernet' },
      comment: 'the wire of all'
    },
    ipmi: { network: '10.148.0.0/16', shared_with: 'cluster', dns: 'hosts' }
  })
  t.notOk('v6' in all.network)
  t.match(all.osimage.compute, {
    ...{
      kerneloptions: 'quiet console=ttyS0',
      grab_filesystems: ['/', '/boot'],
      osrelease: '9',
      distribution: 'rocky'
    },
    ...{
      grab_exclude: ['/proc/*', '/sys/*'],
      imagefile: 'compute-1.tar.bz2',
      path: '/trinity/images/compute'
    }
  })
  t.match(all.osimagetag.v1, { osimage: 'compute', imagefile: 'compute-0.tar.bz2', kerneloptions: 'quiet' })
  t.match(all.bmcsetup.boards, { userid: 3, username: 'admin', password: 'secret' })
  t.match(all.group.compute, {
    ...{ osimage: 'compute', osimagetag: 'v1', bmcsetupname: 'boards', setupbmc: true, netboot: true },
    ...{ domain: 'cluster', postscript: 'ZWNobyBoaQo=', comment: 'all of them' },
    interfaces: [
      { interface: 'BOOTIF', network: 'cluster', options: 'mtu=9000' },
      { interface: 'BMC', network: 'ipmi' },
      { interface: 'bond0', network: 'cluster', options: 'mode=802.3ad bond=eth2,eth3' }
    ]
  })
  t.match(all.node.node001, {
    ...{ group: 'compute', switch: 'sw1', switchport: 7, service: true, comment: 'kickstart' },
    interfaces: [
      { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1', macaddress: '52:54:00:00:00:01' },
      { interface: 'BMC', network: 'ipmi', ipaddress: '10.148.0.1' },
      { interface: 'eth7', own: true }
    ],
    removed: ['bond0']
  })
  t.match(all.node.node001.interfaces[0].options, 'dhcp=yes')
  t.notOk('group' in all.node.node002)
  t.match(all.switch.sw1, { network: 'cluster', ipaddress: '10.141.200.1', read: 'public' })
  t.match(all.otherdev.pdu1, { network: 'cluster', ipaddress: '10.141.200.2', vendor: 'APC' })
  t.match(all.secrets, { node: { node001: [{ name: 'key', path: '/etc/key', content: 'c2VjcmV0' }] } })
})

t.test('a file that is no such export is refused, and nothing is changed', async t => {
  const c = await Controller.start(t)
  for (const [text, said] of [
    ['{"config":{}}', /luna2\.json: is no export of luna2: it must be an object with the tables/],
    ['[]', /is no export of luna2/],
    ['{', /luna2\.json: .*JSON/],
    ['{"network":[],"node":[{"id":1,"name":"Node_1"}]}', /Node_1/]
  ] as const) {
    writeFileSync(file, text)
    const before = c.state()
    const { code, stderr } = await import_(c, file)
    t.equal(code, 1, text)
    t.match(stderr, said)
    t.same(c.state(), before)
  }
})

t.test(
  'a hostile export has no columns that are parts of objects, and writes nothing to the terminal',
  async t => {
    const c = await Controller.start(t)
    writeFileSync(
      file,
      '{"network":[],"node":[{"id":1,"name":"n1","__proto__":"x","constructor":"y","groupid":{"a":{}},"\\u001b[2J":"z"}]}'
    )
    const { stdout, stderr } = await import_(c, file)
    t.match(stderr, /left out: node, column constructor: 1/)
    t.match(stderr, /left out: node, column \S+\[2J: 1/)
    t.notMatch(stdout + stderr, /\u001b|object Object|iterable/)
  }
)

t.test('an export of 10,000 nodes is read in a time that grows with it alone', async t => {
  const { fromLuna2 } = await import('../../lib/imports/luna2.js')
  const of = (count: number) => {
    const node = [...Array(count).keys()].map(id => ({ id, name: `n${id}`, groupid: 1 }))
    const nodeinterface = node.map(({ id }) => ({ id, nodeid: id, interface: 'BOOTIF' }))
    const begun = performance.now()
    fromLuna2({ network: [], node, nodeinterface, group: [{ id: 1, name: 'g' }] })
    return performance.now() - begun
  }
  of(1000)
  t.ok(of(10_000) < 60 * Math.max(1, of(1000)))
})
