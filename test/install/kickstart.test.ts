import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { InstallData, InstallInterface } from '../../lib/boot/install-data.js'
import { base64, bmcBytes, installBmc, installData, installInterface } from '../support/install-data.js'
import { kickstart } from '../support/install-script.js'
import { hostile } from './hostile.js'
import { exits, startFakeController } from './install.js'
import { InstallingNode } from './installing-node.js'

interface Parsed {
  /** Command lines outside of sections, split as the installer splits them. */
  readonly commands: string[][]
  readonly sections: { readonly head: string; readonly body: string }[]
}

/**
 * Reads a kickstart as pykickstart does: lines by Python's splitlines, words by shlex, sections until %end.
 */
function parse(text: string): Parsed {
  const program = `
import sys, json, shlex
commands, sections, body = [], [], None
for line in sys.stdin.buffer.read().decode().splitlines():
    if body is not None:
        if line.strip() == '%end': sections.append({'head': head, 'body': '\\n'.join(body) + '\\n'}); body = None
        else: body.append(line)
    elif line.split(' ')[0] in ('%pre', '%post', '%onerror', '%packages'): head, body = line, []
    else:
        words = shlex.split(line, comments=True)
        if words: commands.append(words)
assert body is None, 'a section has no end'
json.dump({'commands': commands, 'sections': sections}, sys.stdout)
`
  return JSON.parse(execFileSync('/usr/bin/python3', ['-c', program], { input: text, encoding: 'utf8' }))
}

const known = [
  'text',
  'reboot',
  'lang',
  'keyboard',
  'timezone',
  'firstboot',
  'rootpw',
  'zerombr',
  '%include',
  'bootloader',
  'liveimg',
  'network'
]
const heads = [/^%pre .*--erroronfail/, /^%post --nochroot .*--erroronfail/, /^%onerror /]

t.test('the commands of a node', async t => {
  const data = installData({
    imagesum: 'ab12',
    rootpw: '$6$salt$hash/x.',
    kerneloptions: "console=ttyS0 it's",
    interfaces: [installInterface()]
  })
  const { commands, sections } = parse(kickstart(data))
  const of = (name: string) => commands.filter(([first]) => first === name).map(words => words.slice(1))
  t.strictSame(of('rootpw'), [['--iscrypted', '$6$salt$hash/x.']])
  t.strictSame(of('liveimg'), [['--url=http://127.0.0.1:7050/files/rocky9.tar.gz', '--checksum=ab12']])
  t.strictSame(of('bootloader'), [["--append=console=ttyS0 it's"]])
  t.strictSame(of('network'), [['--hostname=node001.cluster']])
  t.strictSame(of('%include'), [['/tmp/svc-partitioning.ks'], ['/tmp/svc-network.ks']])
  t.strictSame([...new Set(commands.map(([first]) => first))].sort(), [...known].sort())
  heads.forEach((head, i) => {
    t.match(sections[i]?.head, head)
  })
  t.equal(sections.length, 3)
})

// rules 4.7, 5.6
t.test('no root password locks the account; a certificate that cannot be verified', async t => {
  const { commands } = parse(kickstart(installData({ insecure: true })))
  const lines = commands.map(words => words.join(' '))
  t.ok(lines.includes('rootpw --lock'))
  t.ok(lines.includes('liveimg --url=http://127.0.0.1:7050/files/rocky9.tar.gz --noverifyssl'))
})

/** A kickstart's scripts run as the installer runs them, on one machine. */
async function installer(t: Tap, data: Partial<InstallData>, programs: Record<string, string> = {}) {
  // No SVC_ variable of ours is set there.
  const environment = { SVC_BOOTIF: '', SVC_BOOTPROTO: '', SVC_MAC: '' }
  const controller = await startFakeController(t)
  controller.files.set(
    '/boot/roles/ntp',
    JSON.stringify({ target: 'multi-user.target', script: base64('true\n') })
  )
  const machine = new InstallingNode(t, { shell: 'bash', programs, environment })
  machine.mkdir('tmp')
  machine.write('mnt/sysimage/etc/chrony.conf', 'pool x\n')
  machine.write('dev/ipmi0', '')
  const { sections } = parse(kickstart(installData({ ...controller.place, ...data })))
  return { controller, machine, sections, scripts: sections.map(({ body }) => body) }
}

type Tap = Parameters<typeof startFakeController>[0]

/** The network commands that %pre writes, without the first word. */
async function network(t: Tap, interfaces: readonly InstallInterface[]): Promise<readonly string[]> {
  const { machine, scripts } = await installer(t, { interfaces })
  exits(t, await machine.run(scripts[0] ?? ''), [0])
  const lines = machine.text('tmp/svc-network.ks').trimEnd().split('\n')
  return lines.map(line => line.replace(/^network /, ''))
}

const eth1 = installInterface({ interface: 'eth1', network: 'storage', macaddress: '', provision: false })
const unused = { ...eth1, network: '', ipaddress: '', nameserver: '', gateway: '' }

t.test('the interfaces of a node', async t => {
  t.strictSame(
    await network(t, [
      installInterface({ options: 'mtu=9000' }),
      { ...eth1, ipaddress: '' },
      installInterface({ interface: 'BMC', bmc: true })
    ]),
    [
      '--device=52:54:00:00:00:01 --onboot=yes --activate --mtu=9000 --bootproto=static --ip=10.141.0.1 ' +
        '--netmask=255.255.0.0 --gateway=10.141.255.254 --nameserver=10.141.255.253',
      '--device=eth1 --onboot=yes --bootproto=dhcp --nodefroute'
    ]
  )
  t.strictSame(
    await network(t, [installInterface({ ipaddress: '', macaddress: '' })]),
    ['--device=bootif --onboot=yes --activate --bootproto=dhcp'],
    'without a MAC it is the boot interface'
  )
})

// rules 3.20
t.test('several name servers; what a kickstart cannot say is left out, and its log warns', async t => {
  const interfaces = [
    installInterface({
      nameserver: '10.141.255.253 10.141.255.252',
      routes: ['10.9.0.0/16 via 10.141.0.254'],
      options: 'metric=50'
    }),
    { ...eth1, interface: 'more', options: 'on=BOOTIF' }
  ]
  const { machine, scripts } = await installer(t, { interfaces })
  const done = await machine.run(scripts[0] ?? '')
  exits(t, done, [0])
  t.equal(
    machine.text('tmp/svc-network.ks'),
    'network --device=52:54:00:00:00:01 --onboot=yes --activate --bootproto=static --ip=10.141.0.1 ' +
      '--netmask=255.255.0.0 --gateway=10.141.255.254 --nameserver=10.141.255.253,10.141.255.252\n'
  )
  t.match(
    JSON.stringify(done),
    /a kickstart tells no metric, no further address and no static route of interface BOOTIF/
  )
})

t.test('bonds, bridges and VLANs', async t => {
  t.strictSame(
    await network(t, [
      installInterface({ interface: 'bond0', options: 'bond=eth0,eth1 mode=802.3ad mtu=9000' }),
      { ...unused, interface: 'eth0', macaddress: '52:54:00:00:00:01' },
      {
        ...eth1,
        interface: 'bond0.20',
        ipaddress: '10.150.0.1',
        gateway: '',
        nameserver: '',
        options: 'vlan=20'
      },
      { ...eth1, interface: 'outside', ipaddress: '', options: 'vlan=7 link=eth2 defaultroute=yes' },
      { ...unused, interface: 'br0', options: 'bridge=eth3,eth4' }
    ]),
    [
      '--device=bond0 --bondslaves=eth0,eth1 --bondopts=mode=802.3ad,miimon=100 --onboot=yes --activate ' +
        '--mtu=9000 --bootproto=static --ip=10.141.0.1 --netmask=255.255.0.0 --nameserver=10.141.255.253 --nodefroute',
      '--device=bond0 --vlanid=20 --interfacename=bond0.20 --onboot=yes --bootproto=static --ip=10.150.0.1 ' +
        '--netmask=255.255.0.0 --nodefroute',
      '--device=eth2 --vlanid=7 --interfacename=outside --onboot=yes --bootproto=dhcp',
      '--device=br0 --bridgeslaves=eth3,eth4 --bridgeopts=stp=no --onboot=yes --noipv4 --noipv6 --nodefroute'
    ]
  )
})

t.test('BOOTIF as a member of the bond that the node is installed over is the card with its MAC', async t => {
  const { machine, scripts } = await installer(t, {
    interfaces: [installInterface({ interface: 'bond0', options: 'bond=BOOTIF,eth1' })]
  })
  machine.write('sys/class/net/ens7/device', '')
  machine.write('sys/class/net/ens7/address', '52:54:00:00:00:01\n')
  exits(t, await machine.run(scripts[0] ?? ''), [0])
  t.match(machine.text('tmp/svc-network.ks'), /^network --device=bond0 --bondslaves=ens7,eth1 /)
})

t.test('what a kickstart cannot say stops it in %pre, by name', async t => {
  const stacks = {
    'br0 is: "bridge=eth3"': { ...unused, interface: 'br0', options: 'bridge=eth3' },
    'bond0 is: "bond=eth0"': { ...unused, interface: 'bond0', options: 'bond=eth0' }
  }
  const over: InstallInterface[] = [
    { ...eth1, interface: 'br0.5', options: 'vlan=5' },
    { ...eth1, interface: 'br1', options: 'bridge=bond0' }
  ]
  for (const [i, [named, lower]] of Object.entries(stacks).entries()) {
    const interfaces = [lower, ...over.slice(i, i + 1)]
    const { controller, machine, scripts } = await installer(t, { interfaces })
    const [run] = await machine.run(scripts[0] ?? '')
    t.not(run?.status, 0)
    const name = i === 0 ? 'br0.5 is: "vlan=5"' : named
    t.match(controller.states.at(-1), `failed: network: a kickstart cannot say what interface ${name}`)
  }
})

t.test('no secret is left to others, or in the installed system', async t => {
  const prescript = base64('ls -ld /tmp/svc.sh /svctmp > /pre')
  const { machine, scripts } = await installer(t, { prescript })
  machine.write('tmp/svc.sh', 'old', 0o644)
  for (const name of ['anaconda-ks.cfg', 'original-ks.cfg', 'kept'])
    machine.write(`mnt/sysimage/root/${name}`, 'x')
  exits(t, await machine.run(...scripts.slice(0, 2)), [0, 0])
  t.match(machine.text('pre'), /^drwx------ .* \/svctmp$/m)
  t.match(machine.text('pre'), /^-rw------- .* \/tmp\/svc\.sh$/m)
  t.notOk(machine.has('tmp/svc.sh'))
  t.ok(machine.has('tmp/NOSAVE_INPUT_KS'))
  t.strictSame(readdirSync(join(machine.root, 'mnt/sysimage/root')), ['kept'])
  const failing = await installer(t, { postscript: base64('exit 1') })
  exits(t, await failing.machine.run(...failing.scripts), [0, 1, 0])
  t.notOk(failing.machine.has('tmp/svc.sh'), 'nor after a failure')
})

t.test('its scripts do what the install script does', async t => {
  const { controller, machine, scripts } = await installer(
    t,
    {
      prescript: base64('echo "$SVC_NODE $_HOSTNAME" > /pre'),
      partscript: base64('echo "part / --size=1" > $SVC_PARTITIONING'),
      postscript: base64('echo post > $_SYSTEMROOT/post'),
      setupbmc: true,
      bmc: installBmc(),
      secrets: [{ name: 'k', path: '/etc/key', content: base64('secret') }],
      identity: ['/etc/machine-id', '/etc/ssh/ssh_host_*'],
      roles: ['ntp']
    },
    { ipmitool: 'cat "$5" >> /ipmi', dmidecode: 'echo ACME' }
  )
  machine.write('mnt/sysimage/etc/machine-id', '0123456789abcdef0123456789abcdef\n')
  machine.write('mnt/sysimage/etc/ssh/ssh_host_rsa_key', 'of the image')
  const runs = await machine.run(...scripts.slice(0, 2))
  exits(t, runs, [0, 0])
  t.strictSame(
    controller.states.map(state => state.replace('installer.', '')),
    [
      'started',
      'prescript',
      'bmcsetup',
      'network',
      'partscript',
      'download',
      'unpack',
      'network',
      'secrets',
      'postscript',
      'roles',
      'completed'
    ]
  )
  t.equal(machine.text('pre'), 'node001 node001.cluster\n')
  t.equal(machine.text('tmp/svc-partitioning.ks'), 'part / --size=1\n')
  t.match(machine.text('ipmi'), `raw 6 71 3 2 ${bmcBytes(installBmc().password, 16)}\n`)
  t.equal(machine.text('mnt/sysimage/post'), 'post\n')
  t.equal(machine.text('mnt/sysimage/etc/key'), 'secret')
  t.equal(machine.text('mnt/sysimage/etc/machine-id'), '')
  t.notOk(machine.has('mnt/sysimage/etc/ssh/ssh_host_rsa_key'))
  t.equal(statSync(join(machine.root, 'mnt/sysimage/etc/key')).mode & 0o777, 0o600)
  t.match(machine.text('mnt/sysimage/etc/chrony.conf'), 'server 10.141.255.252 iburst prefer')
  t.ok(existsSync(join(machine.root, 'mnt/sysimage/etc/systemd/system/svc-role-ntp.service')))
  t.strictSame(JSON.parse(controller.posts('/config/')[0]?.body ?? ''), {
    config: { node: { node001: { vendor: 'ACME', assettag: 'ACME' } } }
  })
})

t.test('without a part script all disks are taken; a failure is reported once, with its step', async t => {
  const { controller, machine, scripts } = await installer(t, { postscript: base64('exit 4') })
  const runs = await machine.run(...scripts)
  exits(t, runs, [0, 1, 0])
  t.equal(machine.text('tmp/svc-partitioning.ks'), 'clearpart --all --initlabel\nautopart --type=plain\n')
  const failures = controller.states.filter(state => state.startsWith('installer.failed'))
  t.strictSame(failures, ['installer.failed: postscript: the postscript ended with status 4'])
})

t.test("the installer's own failure is reported", async t => {
  const { controller, machine, scripts } = await installer(t, {})
  await machine.run(scripts[0] ?? '', scripts[2] ?? '')
  t.match(controller.states.at(-1), /^installer\.failed: the installer stopped/)
})

t.test('an image that the installer cannot unpack stops it in %pre', async t => {
  for (const [imagefile, reason] of [
    ['image.tar.zst', /cannot unpack image\.tar\.zst/],
    ['', /has no packed image file/]
  ] as const) {
    const { controller, machine, scripts } = await installer(t, { imagefile })
    const [run] = await machine.run(scripts[0] ?? '')
    t.equal(run?.status, 1)
    t.match(controller.states.at(-1), reason)
  }
})

// rules 4.7
t.test('masked: a first comment says so, and %pre stops with the reason', async t => {
  const masked = {
    masked: true,
    token: '********',
    rootpw: '********',
    setupbmc: true,
    bmc: installBmc({ password: '********' })
  }
  const text = kickstart(installData(masked))
  t.match(text.split('\n', 1)[0], /^# Secrets are masked .*not this node/)
  t.notMatch(kickstart(installData()), /masked/)
  const { controller, machine, scripts } = await installer(t, masked)
  const [run] = await machine.run(scripts[0] ?? '')
  t.not(run?.status, 0)
  t.match(run?.output, /not fetched by the node itself/)
  t.equal(controller.requests.length, 0)
})

t.test('hostile text cannot end a section, add a command or run', async t => {
  const text = hostile.replaceAll('/', '_')
  const changes: Partial<InstallData> = {
    node: text.slice(0, 90),
    hostname: text,
    domain: text,
    group: text,
    comment: text,
    osimage: text,
    distribution: text,
    provision_method: text,
    provision_interface: text,
    rootpw: text,
    ntp_server: text,
    imagefile: `${text}.tar.gz`,
    setupbmc: true,
    bmc: installBmc({ username: text.slice(0, 16), ipaddress: text, ntp_server: text }),
    interfaces: [
      installInterface({
        interface: text,
        macaddress: text,
        ipaddress: text,
        nameserver: text,
        ntp_server: text
      })
    ],
    secrets: [{ name: text, path: `/etc/${text.slice(0, 150)}`, content: base64(text) }]
  }
  const { commands, sections } = parse(kickstart(installData(changes)))
  t.strictSame([...new Set(commands.map(([first]) => first))].sort(), [...known].sort())
  t.equal(sections.length, 3)
  const { controller, machine, scripts } = await installer(t, changes, {
    ipmitool: 'cat "$5" >> /ipmi'
  })
  const runs = await machine.run(...scripts.slice(0, 2))
  exits(t, runs, [0, 0])
  t.equal(controller.states.at(-1), 'installer.completed')
  t.notOk(machine.has('pwned'))
  t.match(machine.text('ipmi'), `raw 6 69 3 ${bmcBytes(text, 16)}\n`)
})
