import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { base64, installInterface } from '../support/install-data.js'
import { completed, install } from './install.js'
import { allShells, everyCase, shells } from './installing-node.js'
import { packImage } from './packed-image.js'

const connection = '[connection]\nid=office\ntype=ethernet\n[ipv4]\nmethod=manual\naddress1=192.168.1.5/24\n'
const network = '[Match]\nName=*\n\n[Network]\nDHCP=yes\n'

/** Files of another machine, of all kinds. */
const aside: Record<string, string> = {
  'etc/netplan/50-cloud-init.yaml': 'network: {version: 2, ethernets: {ens3: {dhcp4: true}}}\n',
  'etc/netplan/01-netcfg.yaml': 'network: {version: 2}\n',
  'etc/network/interfaces': 'auto lo\niface lo inet loopback\nauto ens18\niface ens18 inet dhcp\n',
  'etc/network/interfaces.d/50-cloud-init': 'auto eth0\niface eth0 inet dhcp\n',
  'etc/systemd/network/10-cloud.network': network,
  'etc/systemd/network/br9.netdev': '[NetDev]\nName=br9\nKind=bridge\n',
  'etc/NetworkManager/system-connections/office.nmconnection': connection,
  'etc/NetworkManager/system-connections/Wired connection 1': connection,
  'etc/sysconfig/network-scripts/ifcfg-eth0': 'DEVICE=eth0\nBOOTPROTO=dhcp\n',
  'etc/sysconfig/network/ifcfg-eth0': "BOOTPROTO='dhcp'\n",
  'etc/udev/rules.d/70-persistent-net.rules': 'SUBSYSTEM=="net"\n',
  'etc/nvme/hostnqn': 'nqn.2014-08.org.nvmexpress:uuid:1\n',
  'etc/nvme/hostid': '1\n',
  'etc/iscsi/initiatorname.iscsi': 'InitiatorName=iqn.1993-08.org.debian:01:1\n',
  'etc/lvm/devices/system.devices': 'VERSION=1\n',
  'etc/initramfs-tools/conf.d/resume': 'RESUME=UUID=1\n',
  '.dockerenv': '',
  'run/.containerenv': 'engine="podman"\n'
}
/** What the image has for all its nodes. */
const kept: Record<string, string> = {
  'etc/netplan/README': 'text',
  'etc/systemd/network/README': 'text',
  'etc/systemd/network/99-default.link': '[Match]\n\n[Link]\nNamePolicy=kernel\n',
  'etc/systemd/network/80-wifi.network': '-> /dev/null',
  'etc/sysconfig/network-scripts/ifcfg-lo': 'DEVICE=lo\n',
  'etc/iscsi/iscsid.conf': 'node.startup = automatic\n'
}
const hosts =
  '127.0.0.1 localhost server1\n::1\tlocalhost server1.old.org\tip6-localhost\n127.0.1.1\tserver1.old.org server1\n' +
  '192.168.1.5 server1.old.org\n192.168.1.6\tserver10 # not server1\n10.9.9.9 license server1x\n'
const fstab =
  '# /etc/fstab\nUUID=1111 / ext4 defaults 0 1\nLABEL=UEFI\t/boot/efi vfat umask=0077 0 1\n/dev/null /data ext4 nofail 0 2\n' +
  'PARTUUID=2222 /srv xfs defaults 0 0\n"UUID=3333" none swap sw 0 0\n/swap.img none swap sw 0 0\nID=ata-x /x ext4\n' +
  'share /mnt 9p trans=virtio 0 0\ntmpfs /tmp tmpfs size=1g 0 0\nnas:/home /home nfs4 defaults 0 0\n/data/x /y none bind 0 0'

// rules 4.22
for (const shell of shells)
  for (const [distribution, own] of [
    ['ubuntu', 'etc/netplan/60-svc.yaml'],
    ['debian', 'etc/systemd/network/05-svc-BOOTIF.network'],
    ['redhat', 'etc/NetworkManager/system-connections/svc-BOOTIF.nmconnection']
  ] as const) {
    if (!everyCase(shell) && distribution !== 'debian') continue
    t.test(`an image of another machine, ${distribution}, ${shell}`, async t => {
      const files = {
        ...aside,
        ...kept,
        'etc/hostname': 'server1.old.org\n',
        'etc/hosts': hosts,
        'etc/fstab': fstab,
        'etc/crypttab': '# <name>\ncrypt UUID=4444 none luks\n',
        ...(distribution === 'debian' ? { 'etc/debian_version': '12.5\n' } : {})
      }
      const data = { distribution, interfaces: [installInterface()] }
      const done = await install(t, { shell, data, answers: { '/files/rocky9.tar.gz': packImage(files) } })
      completed(t, done)
      const { machine, run } = done
      for (const [path, text] of Object.entries(aside)) {
        const isMade = path === 'etc/iscsi/initiatorname.iscsi' && distribution === 'debian'
        if (isMade) t.equal(machine.read(path), 'GenerateName=yes\n')
        else t.notOk(existsSync(machine.image(path)), path)
        t.equal(machine.read(`etc/svc/aside/${path}`), text, `${path} is not lost`)
        t.ok(run.output.includes(` /${path}`), `${path} is told`)
      }
      for (const [path, text] of Object.entries(kept))
        if (!text.startsWith('->')) t.equal(machine.read(path), text, path)
      t.ok(readdirSync(machine.image('etc/systemd/network')).includes('80-wifi.network'))
      t.ok(existsSync(machine.image(own)))
      t.equal(
        machine.read('etc/hosts'),
        '127.0.0.1 localhost\n::1\tlocalhost\tip6-localhost\n# svc: of another machine: 127.0.1.1\tserver1.old.org server1\n' +
          '# svc: of another machine: 192.168.1.5 server1.old.org\n192.168.1.6\tserver10 # not server1\n10.9.9.9 license server1x\n' +
          '# svc begin\n10.141.0.1 node001.cluster node001\n# svc end\n'
      )
      t.match(run.output, '/etc/hosts of the image names another machine, server1.old.org')
      const lines = fstab.split('\n')
      t.equal(
        machine.read('etc/fstab'),
        `${lines.map((line, i) => (i > 0 && i < 9 ? `# svc: not on this machine: ${line}` : line)).join('\n')}\n`
      )
      t.equal(
        machine.read('etc/crypttab'),
        '# <name>\n# svc: not on this machine: crypt UUID=4444 none luks\n'
      )
      t.match(
        run.output,
        /\/etc\/fstab of the image names devices of another machine: 8 of its lines are comments now/
      )
    })
  }

// rules 4.22
for (const shell of shells)
  t.test(
    `on a disk, without a boot loader of its own, lines of devices that are there stay, ${shell}`,
    async t => {
      const lines = [
        'UUID=root / ext4 defaults 0 1',
        'UUID=gone /srv xfs defaults 0 0',
        '/swapfile none swap sw 0 0'
      ]
      const files = {
        'etc/fstab': `${lines.join('\n')}\n`,
        swapfile: 'swap',
        'usr/sbin/findfs': '#!/busybox sh\ncase $1 in UUID=root) echo /dev/fake1 ;; *) exit 1 ;; esac\n'
      }
      const done = await install(t, {
        shell,
        data: { partscript: base64('mount -t tmpfs /dev/fake1 /sysroot && cp /busybox /sysroot/busybox') },
        answers: { '/files/rocky9.tar.gz': packImage(files) },
        prepare: machine => machine.write('busybox', readFileSync('/usr/bin/busybox'), 0o755)
      })
      completed(t, done)
      t.equal(
        done.machine.read('etc/fstab'),
        `${lines[0]}\n# svc: not on this machine: ${lines[1]}\n${lines[2]}\n`
      )
      t.notMatch(done.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
    }
  )

// rules 4.22
t.test('an export of a container: empty files, and no localhost', async t => {
  for (const [text, gets] of [
    ['', true],
    ['# 127.0.0.1 localhost\n172.17.0.2 0a1b2c3d4e5f\n', true],
    ['127.0.0.1 localhost.localdomain\n', true],
    ['127.0.0.1 me localhost\n', false],
    ['127.0.0.1\tlocalhost # loop\n', false]
  ] as const) {
    const files = {
      'etc/hosts': text,
      'etc/hostname': '0a1b2c3d4e5f\n',
      'etc/fstab': '# UNCONFIGURED FSTAB\n'
    }
    const done = await install(t, { shell: 'dash', answers: { '/files/rocky9.tar.gz': packImage(files) } })
    completed(t, done)
    const hosts = done.machine.read('etc/hosts')
    t.equal(/^127\.0\.0\.1 localhost$/m.test(hosts), gets, JSON.stringify(text))
    t.notMatch(hosts, /^172/m)
    t.equal(done.machine.read('etc/fstab'), '# UNCONFIGURED FSTAB\n')
  }
})

// rules 4.22
for (const shell of allShells)
  t.test(`links of an image lead nowhere else, ${shell}`, async t => {
    const files = {
      'etc/svc/aside': '-> /outside',
      'etc/netplan': '-> /outside/netplan',
      'outside/netplan/a.yaml': 'of the image',
      'etc/systemd/network/a.network': '-> /outside/secret',
      'etc/fstab': '-> ../../../../outside/fstab',
      'etc/hosts': '-> /outside/hosts'
    }
    const done = await install(t, {
      shell,
      answers: { '/files/rocky9.tar.gz': packImage(files) },
      prepare: machine => {
        for (const name of ['secret', 'fstab', 'hosts', 'netplan/a.yaml', 'etc/netplan/x'])
          machine.write(`outside/${name}`, 'UUID=1 / ext4\n127.0.1.1 x\n')
        chmodSync(`${machine.root}/outside`, 0o777)
        mkdirSync(`${machine.root}/outside/etc/systemd`, { recursive: true })
      }
    })
    completed(t, done)
    for (const name of ['secret', 'fstab', 'hosts', 'netplan/a.yaml'])
      t.equal(done.machine.text(`outside/${name}`), 'UUID=1 / ext4\n127.0.1.1 x\n', name)
    t.strictSame(readdirSync(`${done.machine.root}/outside/etc/netplan`), ['x'])
    t.strictSame(readdirSync(`${done.machine.root}/outside/etc/systemd`), [])
    t.equal(done.machine.read('outside/etc/netplan/a.yaml'), 'of the image')
  })
