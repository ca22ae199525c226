import { readFileSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { Daemon } from '../support/daemon.js'
import { addNamespace, removeNamespace } from '../support/namespaces.js'
import { output, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { debianTree } from './debian-tree.js'

// Debian's cloud-init with a seed from svcd over http, in a tree of Debian in a network namespace that has
// the node's address: its stages as systemd runs them, at the next boot, and after a new installation. Debian
// 12's cloud-init does not ask an http seed for its network-config; that of Debian 13 does.

const node = 'node001'
const mac = '52:54:00:14:0b:01'
const ipaddress = '10.141.0.11'
const base64 = (text: string) => Buffer.from(text).toString('base64')

const stages = (option: string) => `
export DEBUG_PROC_CMDLINE='root=/dev/vda ${option}'
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
# Debian 13 has a program for all stages, and this one too.
for stage in 'init --local' init 'modules --mode=config' 'modules --mode=final'; do
  cloud-init $stage 2>&1 || echo "REPORT failed $stage"
done
echo "REPORT instance $(cat /var/lib/cloud/data/instance-id)"
echo "REPORT source $(cat /var/lib/cloud/instance/datasource)"
echo "REPORT hostname $(cat /etc/hostname)"
`

t.setTimeout(3_600_000)

for (const { suite, asksNetwork } of [
  { suite: 'bookworm', asksNetwork: false },
  { suite: 'trixie', asksNetwork: true }
])
  t.test(`cloud-init of Debian ${suite} reads the seed of its node`, async t => {
    requirePrograms('debootstrap', 'unshare', 'chroot', 'ip')
    const directory = scratch(t)
    const tree = join(directory, 'tree')
    const packages = ['cloud-init', 'netplan.io', 'iproute2', 'systemd', 'udev', 'openssh-server']
    await output('cp', ['-a', '-x', await debianTree({ packages, release: { suite } }), tree], {
      timeout: 600_000
    })
    // No systemd runs in here, which sshd's settings ask.
    await rm(join(tree, 'usr/bin/systemctl'))
    await writeFile(join(tree, 'usr/bin/systemctl'), '#!/bin/sh\nexit 0\n', { mode: 0o755 })
    const network = await startNetwork([{ mac, ipaddress }])
    t.teardown(() => network.close())
    const machine = await addNamespace('cloud')
    t.teardown(() => removeNamespace(machine))
    const ip = (...args: string[]) => output('ip', args)
    await ip(
      '-n',
      network.namespace,
      'link',
      'add',
      'node0',
      'type',
      'veth',
      'peer',
      'eth0',
      'netns',
      machine
    )
    await ip('-n', network.namespace, 'link', 'set', 'node0', 'master', 'br0', 'up')
    await ip('-n', machine, 'link', 'set', 'eth0', 'address', mac, 'up')
    await ip('-n', machine, 'address', 'add', `${ipaddress}/24`, 'dev', 'eth0')
    await ip('-n', machine, 'link', 'set', 'lo', 'up')
    const listen = '10.141.0.1:7050'
    const controller = await Daemon.start({ directory, listen, enter: network.enter })
    t.teardown(() => controller.stop())
    await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
    await controller.create('osimage', 'golden', { distribution: 'debian' })
    await controller.create('node', node, {
      ...{ osimage: 'golden', macaddr: mac, variables: { timezone: 'Europe/Berlin', locale: 'C.UTF-8' } },
      interfaces: [
        { interface: 'BOOTIF', network: 'cluster', ipaddress },
        { interface: 'eth0.20', network: 'cluster', ipaddress: '10.141.0.99', options: 'vlan=20 link=BOOTIF' }
      ]
    })
    const key = { name: 'key', path: '/root/.ssh/authorized_keys', content: base64('ssh-ed25519 AAAA me\n') }
    await controller.request('POST', `/config/secrets/node/${node}`, [key])
    const seedfrom = `http://${listen}/boot/cloud-init/${node}/`
    await mkdir(join(tree, 'etc/cloud/cloud.cfg.d'), { recursive: true })
    await writeFile(
      join(tree, 'etc/cloud/cloud.cfg.d/99-svcd.cfg'),
      JSON.stringify({ datasource_list: ['NoCloud'], datasource: { NoCloud: { seedfrom } } })
    )
    const run = (option = '') =>
      output(
        'ip',
        ['netns', 'exec', machine, 'unshare', '--mount', '--pid', '--fork', '--uts', '--kill-child'].concat([
          'chroot',
          tree,
          'sh',
          '-c',
          stages(option)
        ]),
        { timeout: 900_000 }
      )
    const said = (text: string, word: string) => new RegExp(`^REPORT ${word} (.*)$`, 'm').exec(text)?.[1]
    const first = await run()
    t.match(said(first, 'instance'), new RegExp(`^${node}-`), 'its instance', { first })
    t.match(said(first, 'source'), /NoCloudNet.*10\.141\.0\.1/)
    t.equal(said(first, 'failed'), undefined, 'every stage went well', { first })
    t.equal(said(first, 'hostname'), node, 'as Debian has it')
    const file = (path: string) => readFileSync(join(tree, path), 'utf8')
    t.equal(file('root/.ssh/authorized_keys'), 'ssh-ed25519 AAAA me\n', 'its secret is placed')
    t.equal(file('etc/timezone').trim(), 'Europe/Berlin')
    if (asksNetwork) {
      const netplan = file('etc/netplan/50-cloud-init.yaml')
      t.match(netplan, /macaddress: "?52:54:00:14:0b:01/)
      t.match(netplan, /eth0\.20:[\s\S]*10\.141\.0\.99\/24/)
    }
    const again = await run()
    t.equal(said(again, 'instance'), said(first, 'instance'), 'the same instance at the next boot')
    const ran = await output('ip', [
      ...['netns', 'exec', machine, 'curl', '--silent', '--show-error', '--fail'],
      `http://${listen}/boot/running/${node}/other.tar.gz`
    ])
    t.match(ran, /noted/)
    // As docs/installers.md has it: no file, but an option of the kernel, which cloud-init takes from here too.
    await rm(join(tree, 'etc/cloud/cloud.cfg.d/99-svcd.cfg'))
    const anew = await run(`ds=nocloud-net;s=${seedfrom}`)
    t.match(said(anew, 'source'), /NoCloudNet.*10\.141\.0\.1/, 'by the option')
    t.not(said(anew, 'instance'), said(first, 'instance'), 'another one after an installation')
    await rm(tree, { recursive: true })
  })
