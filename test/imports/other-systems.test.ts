import t, { type Test } from 'tap'
import { Plan } from '../../lib/imports/plan.js'
import { readWarewulf } from '../../lib/imports/warewulf.js'
import { readXcat } from '../../lib/imports/xcat.js'
import { warewulfBefore, warewulfToday, xcat } from '../support/other-systems.js'

type Read = typeof readXcat

function planned(read: Read, text: string) {
  const plan = new Plan()
  read(text, plan)
  const { config } = plan.document() as ReturnType<typeof JSON.parse>
  return { config, notes: plan.notes }
}

const toldIn = (t: Test, notes: readonly string[], ...wanted: RegExp[]) => {
  for (const one of wanted)
    t.ok(
      notes.some(note => one.test(note)),
      `${one}: ${notes.join('\n')}`
    )
}

t.test('nodes.conf of Warewulf 4.6', async t => {
  const { config, notes } = planned(readWarewulf, warewulfToday)
  t.strictSame(Object.keys(config.group), ['gpu', 'default-ring-a'], 'a group for each list of profiles')
  t.match(config.group.gpu, {
    ...{ osimage: 'rockylinux-9', bmcsetupname: 'bmc1', setupbmc: true },
    ...{ kerneloptions: 'crashkernel=no nouveau.modeset=0', variables: { kind: 'gpu', my_tag: 'x' } },
    interfaces: [
      { interface: 'BOOTIF', network: 'default', options: 'mtu=9000' },
      { interface: 'ib0', network: 'ib' },
      { interface: 'BMC', network: 'bmc' }
    ]
  })
  t.match(config.node.n1, {
    ...{ group: 'gpu', assettag: 'A1' },
    interfaces: [
      { interface: 'BOOTIF', ipaddress: '10.141.0.11', macaddress: '52:54:00:12:34:56', own: undefined },
      { interface: 'ib0', ipaddress: '10.149.0.11' },
      { interface: 'BMC', network: 'bmc', ipaddress: '10.148.0.11', options: 'vlan=7' }
    ]
  })
  t.match(config.node.n2, { domain: 'cluster.local', comment: 'no' })
  t.equal(config.node.n2.interfaces[0].macaddress, '52:54:00:12:34:57')
  t.notOk('osimage' in config.node.n1, 'what all members have is in the group alone')
  t.match(config.group['default-ring-a'], {
    ...{ provision_interface: 'bond0', osimage: 'other', kerneloptions: 'quiet crashkernel=no' },
    variables: { ring: 'a' },
    interfaces: [
      { interface: 'bond0', network: 'default', options: 'bond=BOOTIF,en2 mode=balance-rr' },
      { interface: 'v42', network: 'store', options: 'vlan=42 link=bond0' }
    ]
  })
  t.match(config.node.n3.interfaces, [
    { interface: 'bond0', macaddress: '52:54:00:12:34:58' },
    { interface: 'en2', macaddress: '52:54:00:12:34:59', own: true },
    { interface: 'v42' }
  ])
  t.strictSame(config.network.default, { network: '10.141.0.0/22', gateway: '10.141.0.1' })
  t.match(config.bmcsetup.bmc1, { username: 'admin', password: 'never-shown' })
  t.match(config.osimage['rockylinux-9'], { distribution: 'rocky' })
  toldIn(
    t,
    notes,
    /^node n1,n2\.cluster\.local,n3 .*: field "resources" is left out|^node .*n\[1,3\] .*"resources" is left out/,
    /^node n2\.cluster\.local: field "discoverable" is left out/,
    /^node n2\.cluster\.local: field "disks" is left out/,
    /^node n2\.cluster\.local: field "default: tag DNS1" is left out/,
    /^node n3: field "store: ipaddr6" is left out/,
    /"tag my-tag" is the variable my_tag$/,
    /"kerneloptions" holds root=\/dev\/sda1.*: the word is left out/,
    /^node ñandú: is left out: its name must be a host name/,
    /^profile unused: is left out: no node has it/,
    /^profile default,unused .*: field "comment" is left out/
  )
  t.notMatch(notes.join('\n'), /never-shown|"init"|"root"/)
})

t.test('the spellings of Warewulf 4.3', async t => {
  const { config, notes } = planned(readWarewulf, warewulfBefore)
  t.match(config.node.w1, { group: 'default' }, 'the profile default is that of a node without profiles')
  t.match(config.group.default, {
    ...{ osimage: 'centos', kerneloptions: 'loud', bmcsetupname: 'bmc1', variables: { site: 'a' } },
    interfaces: [
      { interface: 'BOOTIF', network: 'eth0' },
      { interface: 'bond0', network: 'bond', options: 'bond=eth2 mode=802.3ad' },
      { interface: 'eth1.20', network: 'eth1.20', options: 'vlan=20 link=eth1' },
      { interface: 'BMC', network: 'bmc' }
    ]
  })
  t.match(config.network, { eth0: { network: '10.141.0.0/16' }, bmc: { network: '10.148.0.0/24' } })
  toldIn(t, notes, /^node w1: field "kernel override" is left out/)
})

t.test('stanzas of xCAT', async t => {
  const { config, notes } = planned(readXcat, xcat)
  t.strictSame(config.network.cluster, {
    ...{ network: '10.141.0.0/16', ns_ip: '10.141.255.254', dhcp: true },
    ...{ dhcp_range_begin: '10.141.200.1', dhcp_range_end: '10.141.200.254' }
  })
  t.match(config.osimage['rhels8.4-netboot-compute'], {
    ...{ path: '/install/netboot/compute/rootimg', kernelversion: '4.18', osrelease: '8.4' }
  })
  t.match(config.node.cn1, {
    ...{ group: 'compute', switch: 'sw1', switchport: 7, bmcsetupname: 'bmc1' },
    osimage: 'rhels8.4-netboot-compute',
    kerneloptions: 'console=tty0 console=ttyS1,115200n8r quiet nouveau.modeset=0',
    variables: { rack: 'r1' },
    interfaces: [
      { interface: 'BOOTIF', network: 'cluster', macaddress: '52:54:00:00:02:01' },
      { interface: 'ib0', network: 'ib', ipaddress: '10.149.0.1', own: true },
      { interface: 'ib0-2', network: 'other', options: 'on=ib0' },
      { interface: 'bond0', options: 'bond=eth1,eth2 mtu=9000' },
      { interface: 'BMC', network: 'bmc', ipaddress: '10.148.0.1' }
    ]
  })
  t.strictSame(config.group.compute.variables, { groups: 'all,compute,rack1' })
  t.strictSame(config.node.cn2.variables, { groups: 'compute,all' })
  t.match(config.node.cn2.interfaces, [{ interface: 'BOOTIF', macaddress: '52:54:00:00:02:03' }])
  t.equal(config.node.cn2.interfaces.length, 1)
  toldIn(
    t,
    notes,
    /^network cluster: attribute "gateway" is left out/,
    /^network cluster: attribute "mtu" is left out/,
    /^OS image rhels8.4-netboot-compute: attribute "exlist" is left out/,
    /^group compute: attribute "ip" is a rule of a table/,
    /^node cn2: attribute "usercomment" is a rule of a table/,
    /^node cn1: attribute "mac" has several MACs/,
    /^node cn1: attribute "nichostnamesuffixes\.ib0" is left out/,
    /^node cn2: attribute "bmc" is no address/,
    /^node cn2: attribute "provmethod" names no image/,
    /^node cn1: interface ib0 has no netmask/,
    /^node sw1: attribute "nodetype" is switch: add it/,
    /^policy 1\.0: is left out/
  )
  t.notMatch(notes.join('\n'), /never-shown/)
  const alike = 'a:\n  objtype=group\na:\n  objtype=osimage\na:\n  objtype=node\n'
  t.strictSame(
    Object.keys(planned(readXcat, alike).config.node),
    ['a'],
    'objects of several types have one name'
  )
})

t.test('a value is in the group if it is that of most members, and if all have one', async t => {
  const nodes = [...Array(5).keys()].map(i => {
    const image = i === 3 ? 'b' : 'a'
    const tag = i === 4 ? '' : 'tags: {all: most}, '
    return `  n${i}: {profiles: [p], image name: ${image}, ${tag}kernel: {args: [quiet, x=${i}]}}`
  })
  const { config } = planned(readWarewulf, `nodes:\n${nodes.join('\n')}\n`)
  t.match(config.group.p, { osimage: 'a', kerneloptions: 'quiet', variables: undefined })
  t.match(config.node.n3, { osimage: 'b', kerneloptions: 'x=3', variables: { all: 'most' } })
  t.strictSame(config.node.n4, { group: 'p', kerneloptions: 'x=4', interfaces: [] })
})

t.test('a file that cannot be read is refused with its line, and none of its words', async t => {
  for (const [read, text, why] of [
    [readWarewulf, 'nodes:\n  a: {}\n  a: {password: never-shown}\n', /^line 3: duplicated mapping key$/],
    [readWarewulf, 'nodes:\n\ta: never-shown\n', /^line 2: tab characters/],
    [readWarewulf, `nodes: ${'['.repeat(200_000)}`, /^line 1: nesting exceeded/],
    [readWarewulf, `nodes:\n  a: &a {}\n  b: [${'*a,'.repeat(20_000)}]\n`, /^line \d+: .*alias/],
    [readWarewulf, 'nodes: !!js/function never-shown\n', /^line 1: unknown/],
    [readWarewulf, '', /^line 1: /],
    [readWarewulf, 'password: never-shown\n', /^is no nodes\.conf of Warewulf 4: "nodes" is missing/],
    [readWarewulf, `nodeprofiles:\n${chain(5000)}nodes:\n  n: {profiles: [p0]}\n`, /more than 1000 profiles/],
    [readXcat, 'Object name: n1\n    ip=never-shown\n', /^line 1: is no stanza: give lsdef the option -z/],
    [readXcat, 'n1:\n  objtype=node\nn1:\n  objtype=node\n', /^has the node n1 twice/],
    [readXcat, '    bmcpassword=never-shown\n', /^line 1: must be NAME:/],
    [readXcat, '# nothing\n', /^has no nodes/]
  ] as const) {
    const error = await Promise.resolve()
      .then(() => planned(read as Read, text))
      .then(
        () => undefined,
        error => error
      )
    t.match(error?.message, why)
    t.notMatch(error?.message, /never-shown/)
  }
})

const chain = (length: number) =>
  [...Array(length).keys()].map(i => `  p${i}: {profiles: [p${i + 1}]}\n`).join('')

t.test('profiles that are costly to put together are refused', async t => {
  const tags = [...Array(900).keys()].map(i => `t${i}: x`).join(', ')
  const profiles = [...Array(900).keys()].map(i => `  p${i}: {tags: {${tags}}}`)
  const all = [...Array(900).keys()].map(i => `p${i}`)
  const nodes = [...Array(100).keys()].map(i => `  n${i}: {profiles: [${all.toSpliced(i, 1)}]}`)
  const text = `nodeprofiles:\n${profiles.join('\n')}\nnodes:\n${nodes.join('\n')}\n`
  t.throws(() => readWarewulf(text, new Plan(), 100_000), /too many steps/)
})

t.test('names of parts of objects are names like others', async t => {
  const { config } = planned(
    readWarewulf,
    'nodeprofiles:\n  __proto__: {image name: a}\n  constructor: {tags: {__proto__: x, constructor: y}}\n' +
      'nodes:\n  __proto__: {image name: c}\n  n1: {profiles: [__proto__, constructor], image name: toString}\n'
  )
  t.strictSame(Object.keys(config.node), ['n1'])
  t.strictSame(config.node.n1, { group: 'proto__-constructor', interfaces: [] })
  t.match(config.group['proto__-constructor'], { osimage: 'toString', variables: { constructor: 'y' } })
  t.equal(({} as { tags?: unknown }).tags, undefined)
  const stanzas = planned(readXcat, '__proto__:\n  objtype=node\nn1:\n  objtype=node\n  __proto__=x\n')
  t.strictSame(Object.keys(stanzas.config.node), ['n1'])
})

t.test('a name that is none here is like it, and no two are the same', async t => {
  const { config, notes } = planned(
    readWarewulf,
    'nodes:\n  a: {image name: "x/y:1"}\n  b: {image name: "x-y-1"}\n  c: {image name: "x y 1"}\n  A: {}\n'
  )
  t.strictSame(Object.keys(config.osimage), ['x-y-1', 'x-y-1-2', 'x-y-1-3'])
  toldIn(t, notes, /^OS image x\/y:1: is called x-y-1 here/, /^node A: is left out: a is there already/)
})

t.test('the work grows with the number of nodes alone', async t => {
  const of = (count: number) => {
    const nodes = [...Array(count).keys()].map(
      i =>
        `  n${i}: {profiles: [p], comment: c${i}, network devices: {default: {netmask: 255.255.255.0, ` +
        `ipaddr: 10.${i >> 16}.${(i >> 8) & 255}.${i & 255}}}}`
    )
    const begun = performance.now()
    planned(readWarewulf, `nodes:\n${nodes.join('\n')}\n`)
    return performance.now() - begun
  }
  of(500)
  t.ok(of(10_000) < 80 * Math.max(1, of(500)))
})
