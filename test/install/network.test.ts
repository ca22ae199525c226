import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { InstallData, InstallInterface } from '../../lib/boot/install-data.js'
import { installInterface } from '../support/install-data.js'
import { checkout } from '../support/programs.js'
import { completed, inPlace, install, type Plan, without } from './install.js'
import { everyCase, shells } from './installing-node.js'
import { packImage } from './packed-image.js'

// They wait for programs in turns.
t.jobs = 3

const isLong = process.env.SVCD_LONG !== undefined
const golden = join(checkout, 'test/install/golden')

const ib0 = installInterface({
  interface: 'ib0',
  network: 'ib',
  domain: 'ib',
  ipaddress: '10.149.0.1',
  gateway: '10.149.255.254',
  nameserver: '',
  macaddress: '',
  options: 'mtu=2044',
  provision: false
})
const storage: InstallInterface = {
  ...ib0,
  interface: 'eth1',
  network: 'storage',
  domain: 'storage',
  ipaddress: '10.150.0.1',
  prefixlen: 24,
  nameserver: '10.150.0.253',
  macaddress: '52:54:00:00:00:02',
  options: 'mtu=9000 unknown mtu=x'
}
const bmc = installInterface({ interface: 'BMC', ipaddress: '10.148.0.1', provision: false, bmc: true })
const fixed = [installInterface(), ib0, storage, bmc]
const dynamic = [
  installInterface({ ipaddress: '', macaddress: '' }),
  { ...storage, ipaddress: '', options: '' }
]

/**
 * A bond that the node is provisioned over, a bridge, VLANs on a card, on a bond and on what has no entry.
 */
const plain = { gateway: '', nameserver: '', domain: '', ntp_server: '', provision: false }
const unused = installInterface({ ...plain, network: '', ipaddress: '', prefixlen: 0 })
const plainOf = (name: string, ipaddress: string, options: string) =>
  installInterface({
    ...plain,
    interface: name,
    network: name,
    ipaddress,
    prefixlen: 24,
    macaddress: '',
    options
  })
const stacked = [
  installInterface({ interface: 'bond0', options: 'bond=eth0,eth1 mode=802.3ad mtu=9000' }),
  { ...unused, interface: 'eth0', macaddress: '52:54:00:00:00:01' },
  installInterface({
    ...plain,
    interface: 'bond0.20',
    network: 'storage',
    ipaddress: '10.150.0.1',
    prefixlen: 24,
    macaddress: '',
    options: 'vlan=20'
  }),
  installInterface({
    ...plain,
    interface: 'outside',
    network: 'outside',
    domain: 'example.org',
    ipaddress: '192.0.2.10',
    prefixlen: 28,
    gateway: '192.0.2.1',
    macaddress: '',
    options: 'vlan=7 link=eth2 defaultroute=yes'
  }),
  { ...unused, interface: 'eth2', macaddress: '52:54:00:00:00:03' },
  installInterface({
    ...plain,
    interface: 'br0',
    network: 'guests',
    ipaddress: '10.151.0.1',
    prefixlen: 24,
    macaddress: '',
    options: 'bridge=eth3,eth4'
  })
]

/** Several name servers, static routes, a metric, and further addresses of an interface. */
const further = [
  installInterface({
    nameserver: '10.141.255.253 10.141.255.252',
    routes: ['10.9.0.0/16 via 10.141.0.254', '10.8.0.0/16 via 10.141.0.253'],
    options: 'metric=50'
  }),
  { ...storage, gateway: '10.150.0.254', options: 'metric=200 defaultroute=yes' },
  {
    ...plainOf('more', '10.151.0.1', 'on=BOOTIF'),
    routes: ['10.7.0.0/16 via 10.151.0.254'],
    gateway: '10.151.0.253'
  },
  { ...plainOf('third', '10.152.0.1', 'on=BOOTIF') },
  { ...ib0, ipaddress: '', gateway: '', options: 'metric=300', routes: ['10.6.0.0/16 via 10.149.0.254'] },
  { ...plainOf('fourth', '10.153.0.1', 'on=ib0 metric=x on=fourth') }
]

const chrony = {
  'etc/chrony.conf': 'pool old.example\n',
  'etc/resolv.conf': '-> /run/systemd/resolve/stub-resolv.conf'
}
const networkd = { 'usr/lib/systemd/system/systemd-networkd.service': '' }
const ifupdown = { 'usr/sbin/ifup': '#!/bin/sh' }
const cases: Record<string, [data: Partial<InstallData>, files: Record<string, string>]> = {
  redhat: [{ distribution: 'redhat', interfaces: fixed }, chrony],
  'redhat-dhcp': [{ distribution: 'redhat', interfaces: dynamic, ntp_server: 'ntp.example' }, {}],
  'redhat-stacked': [{ distribution: 'redhat', interfaces: stacked }, {}],
  opensuse: [{ distribution: 'opensuse', interfaces: fixed }, {}],
  ubuntu: [{ distribution: 'ubuntu', interfaces: fixed }, {}],
  'ubuntu-dhcp': [{ distribution: 'ubuntu', interfaces: dynamic }, {}],
  'ubuntu-stacked': [{ distribution: 'ubuntu', interfaces: stacked }, {}],
  'debian-networkd': [{ distribution: 'debian', interfaces: fixed }, networkd],
  'debian-networkd-dhcp': [{ distribution: 'debian', interfaces: dynamic }, networkd],
  'debian-networkd-stacked': [{ distribution: 'debian', interfaces: stacked }, networkd],
  'debian-ifupdown': [
    { distribution: 'debian', interfaces: fixed },
    { ...ifupdown, 'etc/ntpsec/ntp.conf': 'pool old.example iburst\n' }
  ],
  'debian-ifupdown-dhcp': [{ distribution: 'debian', interfaces: dynamic }, ifupdown],
  'debian-ifupdown-stacked': [{ distribution: 'debian', interfaces: stacked }, ifupdown],
  'redhat-further': [{ distribution: 'redhat', interfaces: further }, {}],
  'ubuntu-further': [{ distribution: 'ubuntu', interfaces: further }, {}],
  'debian-networkd-further': [{ distribution: 'debian', interfaces: further }, networkd],
  'debian-ifupdown-further': [{ distribution: 'debian', interfaces: further }, ifupdown],
  unknown: [{ distribution: 'other', interfaces: [installInterface()] }, {}]
}

/** The step of the network alone, with an image of these files. */
const networkOf = (t: Test, plan: Plan, files: Record<string, string> = {}) => {
  const placed = inPlace(plan, packImage(files), 'mount -t tmpfs image /sysroot', 'download', 'unpack')
  return install(t, without(placed, 'inventory'))
}

/** A listing without what the step before puts into each image. */
const ofNetwork = (listed: string) =>
  listed
    .split(/^(?==== )/m)
    .filter(part => !/^=== etc\/(svc\/running|systemd\/system\/(\S+\/)?svc-running\.service) /.test(part))
    .join('')

/** Every file and link below etc/ of an image as one text, the address of the controller left out. */
function listing(directory: string): string {
  const find = ['etc', '(', '-type', 'f', '-o', '-type', 'l', ')', '-printf', '%p %m %l\n']
  const lines = execFileSync('find', find, { cwd: directory, encoding: 'utf8' }).trim().split('\n').sort()
  return (
    lines
      // test/install/inventory.test.ts has that program.
      .filter(line => !/inventory/.test(line))
      .map(line => {
        const [path = '', mode = '', ...link] = line.split(' ')
        if (link.join('')) return `=== ${path} -> ${link.join(' ')}\n`
        return `=== ${path} ${mode}\n${readFileSync(`${directory}/${path}`, 'utf8')}`
      })
      .join('')
      .replaceAll(/http:\/\/127\.0\.0\.1:\d+/g, 'http://controller')
  )
}

/** Every day one for each kind of files. */
const byBash = new Set([
  ...['redhat-stacked', 'ubuntu-further', 'debian-networkd-dhcp', 'debian-ifupdown-stacked'],
  'unknown'
])

for (const shell of shells) {
  for (const [name, [data, files]] of Object.entries(cases)) {
    if (!everyCase(shell) && !byBash.has(name)) continue
    t.test(`network files: ${name}, ${shell}`, async t => {
      // The whole of an installation is shown once for each shell, the step alone for the others.
      const isWhole = name === 'redhat-stacked' || isLong || 'SVC_GOLDEN' in process.env
      const done = isWhole
        ? await install(t, { shell, data, answers: { '/files/rocky9.tar.gz': packImage(files) } })
        : await networkOf(t, { shell, data }, files)
      completed(t, done)
      const found = listing(done.machine.image(''))
      const file = `${golden}/${name}.txt`
      // To make the golden files anew: SVC_GOLDEN=1 sh test/run.sh test/install/network.test.ts, then read
      // the difference.
      if (process.env.SVC_GOLDEN) {
        mkdirSync(golden, { recursive: true })
        writeFileSync(file, found)
      }
      const expected = readFileSync(file, 'utf8')
      t.equal(found, isWhole ? expected : ofNetwork(expected))
      t.notMatch(found, '10.148.0.1', "the BMC's interface is not the operating system's")
    })
  }
}

t.test(
  'BOOTIF as a member of the bond that the node is installed over is the card that it was booted over',
  async t => {
    const bond = installInterface({ interface: 'bond0', options: 'bond=BOOTIF,eth1' })
    const member: Record<string, [files: Record<string, string>, path: string, says: RegExp]> = {
      redhat: [
        {},
        'NetworkManager/system-connections/svc-BOOTIF.nmconnection',
        /\nmac-address=52:54:00:00:00:01\n/
      ],
      ubuntu: [{}, 'netplan/60-svc.yaml', /"BOOTIF":\n +match:\n +macaddress: "52:54:00:00:00:01"\n/],
      debian: [networkd, 'systemd/network/05-svc-BOOTIF.network', /^PermanentMACAddress=52:54:00:00:00:01$/m],
      other: [
        ifupdown,
        'network/interfaces',
        /^auto mac\/52:54:00:00:00:01=BOOTIF\niface BOOTIF inet manual\n(?: .*\n)* +pre-up ip link set \$IFACE master bond0$/m
      ]
    }
    for (const [distribution, [files, path, says]] of Object.entries(member)) {
      // The MAC is that of svc.mac, whether svcd knows it or not: by the same lines in all distributions.
      for (const macaddress of ['52:54:00:00:00:01', '']) {
        if (macaddress === '' && distribution !== 'ubuntu' && !isLong) continue
        const data = { distribution, interfaces: [{ ...bond, macaddress }] }
        const done = await networkOf(t, { shell: macaddress ? 'dash' : 'ash', data }, files)
        completed(t, done)
        t.match(done.machine.read(`etc/${path}`), says, distribution)
      }
    }
  }
)

t.test('a port of InfiniBand that svcd knows by its GUID', async t => {
  const guid = '00:02:c9:03:00:1a:2b:3c'
  const client = `ff:00:00:00:00:00:02:00:00:02:c9:00:${guid}`
  const port = { ...ib0, interface: 'ibp65s0', macaddress: guid }
  const said: Record<string, [files: Record<string, string>, path: string, fixed: RegExp, dynamic: RegExp]> =
    {
      redhat: [
        {},
        'NetworkManager/system-connections/svc-ibp65s0.nmconnection',
        new RegExp(
          `^type=infiniband\\n(?!interface-name)(?:.*\\n)*mac-address=80(:..){11}:${guid}\\nmtu=2044$`,
          'm'
        ),
        new RegExp(`^method=auto\\ndhcp-client-id=${client}$`, 'm')
      ],
      ubuntu: [{}, 'netplan/60-svc.yaml', /^ {4}"ibp65s0":\n {6}mtu: 2044\n/m, /^ {4}"ibp65s0":\n/m],
      debian: [
        networkd,
        'systemd/network/05-svc-ibp65s0.network',
        /^\[Match\]\nName=ibp65s0\n/,
        new RegExp(
          `^ClientIdentifier=duid\\nIAID=0\\nDUIDType=vendor\\nDUIDRawData=00:00:02:c9:00:${guid}$`,
          'm'
        )
      ],
      other: [
        ifupdown,
        'network/interfaces',
        /^auto ibp65s0\niface ibp65s0 inet static$/m,
        /^iface ibp65s0 inet dhcp$/m
      ]
    }
  for (const [distribution, [files, path, fixed, dynamic]] of Object.entries(said)) {
    // Another port gets its address by DHCP.
    const [other, otherGuid] = ['ibp66s0', guid.replace(/3c$/, '3d')]
    const leased = { ...port, interface: other, macaddress: otherGuid, ipaddress: '' }
    const data = { distribution, interfaces: [installInterface(), port, leased] }
    const done = await networkOf(t, { shell: 'dash', data }, files)
    completed(t, done)
    t.match(done.machine.read(`etc/${path}`), fixed, `${distribution}, a fixed address`)
    const pattern = dynamic.source.replaceAll(port.interface, other).replaceAll(guid, otherGuid)
    const text = done.machine.read(`etc/${path.replace(port.interface, other)}`)
    t.match(text, new RegExp(pattern, 'm'), `${distribution}, by DHCP`)
  }
})

t.test('a second installation over the same image leaves one block, and the lines of others', async t => {
  const hosts = '127.0.0.1 localhost\n# svc begin\n10.141.0.9 old\n# svc end\n10.9.9.9 license'
  const done = await networkOf(t, { shell: 'ash' }, { 'etc/hosts': hosts })
  completed(t, done)
  t.equal(
    done.machine.read('etc/hosts'),
    '127.0.0.1 localhost\n10.9.9.9 license\n# svc begin\n10.141.0.1 node001.cluster node001\n# svc end\n'
  )
  t.equal(statSync(done.machine.image('etc/hosts')).mode & 0o777, 0o644)
})

t.test('an unknown MAC of the boot interface is the one it was booted with', async t => {
  const done = await networkOf(t, {
    shell: 'ash',
    environment: { SVC_MAC: '52:54:00:aa:bb:cc' },
    data: { interfaces: [installInterface({ macaddress: '' })] }
  })
  completed(t, done)
  t.match(
    done.machine.read('etc/NetworkManager/system-connections/svc-BOOTIF.nmconnection'),
    'mac-address=52:54:00:aa:bb:cc'
  )
})

t.test('the network files of the node that an image was taken from are removed', async t => {
  const systems = {
    redhat: ['etc/NetworkManager/system-connections', 'svc-ib7.nmconnection'],
    debian: ['etc/systemd/network', '05-svc-ib7.network']
  }
  for (const [distribution, [directory, old]] of Object.entries(systems)) {
    const files = { [`${directory}/${old}`]: 'old', [`${directory}/99-own`]: 'kept' }
    const done = await networkOf(t, { shell: 'ash', data: { distribution } }, files)
    completed(t, done)
    const left = readdirSync(done.machine.image(`${directory}`))
    t.notOk(left.includes(`${old}`), distribution)
    t.equal(left.length, 2, `${distribution}: one of ours, and the other`)
    t.equal(done.machine.read(`${directory}/99-own`), 'kept')
  }
})

t.test('options that are not understood are named on the console, once', async t => {
  const options = 'mtu=9000 colour=blue vlan=4095 vlan=5 mode=fast bond=eth1,$(touch${IFS}/pwned) mtu=1"x'
  const done = await networkOf(t, {
    shell: 'ash',
    data: { interfaces: [installInterface({ options })] }
  })
  completed(t, done)
  const named = done.run.output.split('\n').filter(line => line.includes('not understood'))
  t.equal(named.length, 1)
  for (const word of options.split(' ').slice(1))
    t.ok(named[0]?.includes(word.replace('"', '\\u0022')), 'a word')
  t.match(done.machine.read('etc/NetworkManager/system-connections/svc-BOOTIF.nmconnection'), '\nmtu=9000\n')
  t.notOk(done.machine.has('pwned'))
})

t.test('an option beside on= is named, and the further address is set all the same', async t => {
  const interfaces = [
    installInterface(),
    plainOf('more', '10.151.0.1', 'dhcp=yes on=BOOTIF mtu=9000 defaultroute=no')
  ]
  const done = await networkOf(t, { shell: 'ash', data: { interfaces } })
  completed(t, done)
  const [named = '', ...others] = done.run.output.split('\n').filter(line => line.includes('not understood'))
  t.match(named, /options of interface more are not understood: "dhcp=yes mtu=9000"/)
  t.same(others, [])
  const file = 'etc/NetworkManager/system-connections/svc-BOOTIF.nmconnection'
  t.match(done.machine.read(file), /^address\d=10\.151\.0\.1\/24$/m)
})

t.test('one default route, where it is wanted', async t => {
  const route = async (own: string, other: string): Promise<string[]> => {
    const interfaces = [
      installInterface({ options: own }),
      { ...storage, gateway: '10.150.0.254', options: other }
    ]
    const done = await networkOf(t, { shell: 'ash', data: { distribution: 'ubuntu', interfaces } })
    completed(t, done)
    return done.machine.read('etc/netplan/60-svc.yaml').match(/(?<=via: ").*(?=")/g) ?? []
  }
  t.strictSame(await route('', ''), ['10.141.255.254'])
  t.strictSame(await route('', 'defaultroute=yes'), ['10.150.0.254'])
  t.strictSame(await route('defaultroute=no', ''), ['10.150.0.254'])
  t.strictSame(await route('defaultroute=no', 'defaultroute=no'), [])
  t.strictSame(await route('defaultroute=yes', 'defaultroute=yes'), ['10.141.255.254'])
})
