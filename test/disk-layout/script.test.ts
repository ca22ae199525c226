import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import t, { type Test } from 'tap'
import type { DisklayoutDoc } from '../../lib/model/types/disklayout.js'
import { InstallingNode, type Run } from '../install/installing-node.js'
import { base64, installData } from '../support/install-data.js'
import { installScript } from '../support/install-script.js'
import { layoutScript, shippedLayout, wholeLayout } from '../support/layout-script.js'

// The scripts of disk layouts on a machine whose sysfs is made here, with programs that note what they are
// asked: no disk of this machine is near. test/long/disk-layouts.test.ts has real ones.

interface Disk {
  readonly mib: number
  readonly rotational?: boolean
  readonly byId?: string
  readonly removable?: boolean
  /** Labels of file systems on it: 0 is the disk itself. */
  readonly labels?: Readonly<Record<number, string>>
  /** Sizes of its partitions in MiB. */
  readonly partitions?: readonly number[]
}
type Disks = Readonly<Record<string, Disk>>

const note = (name: string, more = '') => `echo "${name} $*" >> /calls\n${more}`
const programs = {
  ...Object.fromEntries(
    ['mkfs.ext4', 'mkfs.xfs', 'mkfs.btrfs', 'mkfs.vfat', 'mkswap', 'lvm', 'mdadm', 'svc_wipe'].map(name => [
      name,
      note(name)
    ])
  ),
  // $disk1 and its kin appear.
  sfdisk: note(
    'sfdisk',
    'cat > /table\nsed "s/^/  /" /table >> /calls\nn=0\nwhile read -r line; do\n' +
      'case $line in label*) continue ;; esac\nn=$((n + 1))\n' +
      'case $2 in *[0-9]) p=p ;; *) p= ;; esac\n/tools/busybox mknod "$2$p$n" b 240 $n\ndone < /table'
  ),
  cryptsetup: note('cryptsetup', 'case $1 in luksUUID) echo the-uuid ;; esac'),
  blkid: 'shift\ncase $1 in -s) cat "/labels/${5##*/}" ;; *) [ -e "/used/${1##*/}" ] || exit 2 ;; esac',
  mount: note('mount'),
  swapon: note('swapon')
}

/** The function of the install script that gives these secrets to the script of a layout. */
function secretsOf(paths: Readonly<Record<string, string>>): string {
  const secrets = Object.entries(paths).map(([name, path]) => ({
    name,
    path,
    content: base64(`the ${name}`)
  }))
  const script = installScript(installData({ secrets, layout_secrets: Object.keys(paths) }))
  const [text] = /^layout_secrets\(\) \{\n[\s\S]*?^\}$/m.exec(script) ?? []
  return `_RUN=/svcrun\ndecode() { printf %s "$1" | base64 -d; }\n${text}\nlayout_secrets || exit 1\n`
}

async function run(
  t: Test,
  layout: DisklayoutDoc,
  disks: Disks,
  {
    kind = '',
    secrets = {},
    prepare = () => {}
  }: {
    kind?: '' | '_kickstart'
    /** Paths of the node's secrets by name. */
    secrets?: Readonly<Record<string, string>>
    prepare?: (m: InstallingNode) => void
  } = {}
): Promise<Run & { readonly calls: string; readonly machine: InstallingNode }> {
  // Busybox would run its own mount and blkid. The kernel of this machine has neither md nor a device mapper.
  const environment = { SVC_NODE: 'node009', SVC_PARTITIONING: '/words' }
  const machine = new InstallingNode(t, { shell: 'dash', programs, environment })
  machine.mkdir('sys/block', 'labels', 'used', 'dev/disk/by-id', 'svcrun')
  for (const [
    name,
    { mib, rotational = false, removable = false, byId, labels, partitions = [] }
  ] of Object.entries(disks)) {
    const at = `sys/block/${name}`
    machine.write(`${at}/device`, '')
    machine.write(`${at}/size`, `${mib * 2048}\n`)
    machine.write(`${at}/ro`, '0\n')
    machine.write(`${at}/removable`, `${Number(removable)}\n`)
    machine.write(`${at}/queue/rotational`, `${Number(rotational)}\n`)
    machine.write(`dev/${name}`, '')
    if (byId) machine.link('dev/disk/by-id', [[byId, `../../${name}`]])
    for (const [i, size] of partitions.entries()) {
      machine.write(`${at}/${name}${i + 1}/partition`, `${i + 1}\n`)
      machine.write(`${at}/${name}${i + 1}/size`, `${size * 2048}\n`)
    }
    for (const [i, label] of Object.entries(labels ?? {})) {
      machine.write(`labels/${name}${i === '0' ? '' : i}`, `${label}\n`)
      machine.write(`used/${name}`, '')
    }
  }
  prepare(machine)
  const script = layoutScript(layout, kind).replace(/^kernel=.*$/m, "kernel=''")
  const given = Object.keys(secrets).length > 0 ? secretsOf(secrets) : ''
  const [done] = await machine.run(given + script)
  if (!done) throw new Error('no run')
  return { ...done, machine, calls: machine.has('calls') ? machine.text('calls') : '' }
}

const hdd = (mib: number): Disk => ({ mib, rotational: true })
const raid1 = shippedLayout('raid1')
const kept = shippedLayout('second-kept')

t.test('what a node lacks is told before anything is written', async t => {
  for (const [layout, disks, reason] of [
    [
      raid1,
      { vda: hdd(9000) },
      /^node009 has 1 fitting disk\(s\) for "system", the disk layout raid1 needs 2 .*; its disks: vda hdd 9000 MiB/
    ],
    [
      shippedLayout('second-kept'),
      { vda: hdd(9000) },
      /has 0 fitting disk\(s\) for "data", .*\); vda is taken by "system"; its disks: vda hdd/
    ],
    [raid1, { vda: hdd(9000), vdb: hdd(100) }, /has 1 fitting .*vdb hdd 100 MiB/],
    [raid1, { vda: hdd(9000), sdb: { mib: 9000, removable: true } }, /has 1 fitting/],
    [
      shippedLayout('scratch-nvme'),
      { sda: hdd(9000) },
      /has 0 fitting disk\(s\) for "scratch", .* needs 1 \(nvme,/
    ],
    [
      kept,
      { sda: hdd(9000), sdb: { ...hdd(9000), labels: { 0: 'other' } } },
      /has something on sdb that is not data, .* type svc_wipe \/dev\/sdb/
    ],
    [
      kept,
      { sda: { ...hdd(9000), labels: { 0: 'data' } }, sdb: { ...hdd(9000), labels: { 0: 'data' } } },
      /has several disks that hold data, .*: sda sdb/
    ]
  ] as const) {
    const { status, output, calls } = await run(t, layout, disks)
    t.equal(status, 1, output)
    t.match(output, reason)
    t.equal(calls, '', 'nothing was touched')
  }
  const { output } = await run(
    t,
    { ...raid1, name: 'raid' },
    { vda: hdd(9000), vdb: hdd(9000) },
    {
      prepare: machine => machine.write('tools/mdadm', '', 0o644)
    }
  )
  t.match(output, /node009 has no mdadm in its initramfs, which the disk layout raid needs/)
})

t.test('the kernel is asked as well', async t => {
  const machine = new InstallingNode(t, { shell: 'ash', programs, environment: { SVC_NODE: 'node009' } })
  machine.mkdir('sys/block', 'svcrun')
  const [done] = await machine.run(layoutScript(raid1).replace(/^kernel=.*$/m, "kernel='raid77'"))
  t.match(done?.output, /node009 has a kernel without raid77, which the disk layout raid1 needs/)
  // The initramfs of an image may have dm_crypt without the ciphers: luksFormat would fail on a wiped disk.
  machine.write('tools/cryptsetup', '#!/bin/sh\n[ "$1" != benchmark ]\n', 0o755)
  const [crypt] = await machine.run(layoutScript(raid1).replace(/^kernel=.*$/m, "kernel='aes-xts'"))
  t.match(crypt?.output, /node009 has a kernel without aes-xts, which the disk layout raid1 needs/)
})

t.test('two disks as one', async t => {
  const { status, output, calls } = await run(t, shippedLayout('raid1-lvm'), {
    vdb: hdd(9000),
    vda: hdd(9000)
  })
  t.equal(status, 0, output)
  const lines = calls.trim().split('\n')
  t.equal(lines[0], 'svc_wipe /dev/vda /dev/vdb', 'one call empties both: it refuses before it erases')
  t.match(
    calls,
    /^sfdisk --quiet \/dev\/vda\n {2}label: gpt\n {2}size=1MiB, type=21686148\S+, name="firmware"\n {2}type=A19D880F\S+, name="lvm"\n/m
  )
  t.match(calls, 'svc_wipe /dev/vda1 /dev/vdb1 /dev/vda2 /dev/vdb2', 'what lay there before')
  t.match(calls, /^mdadm --create \/dev\/md0 .*--level=1 --raid-devices=2 .* \/dev\/vda2 \/dev\/vdb2$/m)
  t.match(
    calls,
    /^lvm pvcreate -ff -y \/dev\/md0\nlvm vgcreate -y system \/dev\/md0\nlvm lvcreate .*-n swap -L 2048M system\nmkswap /m
  )
  t.match(
    calls,
    /^lvm lvcreate -y -Wn -n root -l 100%FREE system\nmkfs.ext4 .*\/dev\/system\/root\nmount \/dev\/system\/root \/sysroot\/$/m
  )
})

t.test('a kept disk is found by its label, whatever the order of disks is', async t => {
  const empty = await run(t, kept, { sda: hdd(9000), sdb: hdd(9000) })
  t.equal(empty.status, 0, empty.output)
  t.match(empty.calls, /^mkfs.ext4 -q -F -L data \/dev\/sdb1$/m, 'made once')
  t.match(empty.machine.text('svcrun/layout/options'), '/data defaults,nofail')
  const data = { ...hdd(9000), partitions: [8998], labels: { 1: 'data' } }
  const again = await run(t, kept, { sda: data, sdb: hdd(9000) })
  t.equal(again.status, 0, again.output)
  t.match(again.calls, 'svc_wipe /dev/sdb\n')
  t.match(again.calls, /^mount \/dev\/sdb2 \/sysroot\/\nmount \/dev\/sda1 \/sysroot\/data$/m)
  t.notMatch(again.calls, /(?:wipe|sfdisk|mkfs).*sda/)
})

t.test('a kept partition stays in its place', async t => {
  const layout: DisklayoutDoc = {
    name: 'home',
    disks: [
      {
        name: 'system',
        partitions: [
          { name: 'firmware', use: 'firmware' },
          { name: 'root', size: '4G', format: 'xfs', mount: '/' },
          { name: 'home', size: 'rest', format: 'ext4', mount: '/home', label: 'home', keep: true }
        ]
      }
    ]
  }
  const disk = { ...hdd(9000), partitions: [1, 4096, 4800], labels: { 3: 'home' } }
  const again = await run(t, layout, { sda: disk })
  t.equal(again.status, 0, again.output)
  t.equal(again.calls.split('\n')[0], 'svc_wipe /dev/sda1 /dev/sda2')
  t.notMatch(again.calls, /sfdisk|(?:wipe|mkfs).*sda3/)
  for (const partitions of [
    [1, 100, 8000],
    [1, 4096]
  ]) {
    const { status, output, calls } = await run(t, layout, { sda: { ...disk, partitions } })
    t.not(status, 0)
    t.match(
      output,
      /keeps a partition of sda, but \/dev\/sda[23] is not (root|home) of the disk layout home|has something on sda/
    )
    t.equal(calls, '')
  }
})

const machineOfAll: Disks = {
  sda: { mib: 100_000, byId: 'ata-one' },
  sdb: { mib: 50_000 },
  sdc: { mib: 50_000 },
  sdd: hdd(2_000_000),
  sde: hdd(40_000)
}

t.test('each kind of choice', async t => {
  const { status, output, calls, machine } = await run(t, wholeLayout, machineOfAll, {
    secrets: { key: '/etc/key', swapkey: '/etc/swapkey' }
  })
  t.equal(status, 0, output)
  t.strictSame(machine.text('svcrun/layout/chosen').trim().split('\n').sort(), [
    'ceph sdd',
    'data sda',
    'home sde',
    'system sdb',
    'system sdc'
  ])
  t.notMatch(calls, 'sdd', 'nothing of the layout is on it: it is not touched')
  t.match(calls, /^sfdisk --quiet \/dev\/sde\n {2}label: dos\n {2}size=3999MiB, type=82\n {2}type=83\n/m)
  t.match(calls, /^cryptsetup luksFormat -q --key-file \/svcrun\/keys\/content\/key \/dev\/system\/scratch$/m)
  t.match(
    machine.text('svcrun/layout/crypttab'),
    'luks-scratch UUID=the-uuid /etc/key luks,nofail',
    'the system finds the key where the secret is placed'
  )
  const mounted = [...calls.matchAll(/^mount (\S+) \/sysroot(\S*)$/gm)].map(([, , path]) => path)
  t.strictSame(mounted, ['/', '/boot', '/data', '/home', '/scratch'])
  const without = await run(t, wholeLayout, machineOfAll)
  t.match(without.output, /node009 has no secret swapkey, which encrypts swap/)
  t.equal(without.calls, '')
})

/** Data encrypted with the secrets `key`, `key.path` and `path`. */
const encrypted: DisklayoutDoc = {
  name: 'encrypted',
  disks: [
    {
      name: 'system',
      partitions: [
        { name: 'root', size: '4G', format: 'ext4', mount: '/' },
        ...['key', 'key.path', 'path'].map((secret, i) => ({
          ...{ name: `data${i}`, size: '1G', format: 'xfs' as const, mount: `/srv/data${i}`, secret }
        }))
      ]
    }
  ]
}

t.test('crypttab gets the paths of secrets, whatever their names are', async t => {
  const secrets = { key: '/etc/k1', 'key.path': '/etc/k2', path: '/etc/k3' }
  const { status, output, calls, machine } = await run(t, encrypted, { sda: hdd(9000) }, { secrets })
  t.equal(status, 0, output)
  t.equal(
    machine.text('svcrun/layout/crypttab'),
    [1, 2, 3].map(i => `luks-data${i - 1} UUID=the-uuid /etc/k${i} luks,nofail\n`).join('')
  )
  const files = [...calls.matchAll(/^cryptsetup luksFormat -q --key-file (\S+) /gm)].map(
    ([, file = '']) => file
  )
  t.strictSame(
    files.map(file => machine.text(file.slice(1))),
    Object.keys(secrets).map(name => `the ${name}`)
  )
})

/** A sealed / beside a sealed file system for data. */
const sealed: DisklayoutDoc = {
  name: 'sealed',
  disks: [
    {
      name: 'system',
      partitions: [
        { name: 'boot', size: '1G', format: 'ext4', mount: '/boot' },
        { name: 'root', size: '4G', format: 'ext4', mount: '/', secret: 'key', tpm: true },
        { name: 'data', size: 'rest', format: 'xfs', mount: '/srv', secret: 'key', tpm: true }
      ]
    }
  ]
}
const secureBoot = 'sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c'

// rules 15.16
t.test('what a sealed file system needs is looked for before anything is written', async t => {
  const secrets = { key: '/etc/key' }
  const ready = (m: InstallingNode) => {
    m.write('dev/tpmrm0', '')
    m.write(secureBoot, '\x06\0\0\0\x01')
    m.write('etc/svc/seal-lacks', '')
  }
  for (const [spoil, says] of [
    [
      (m: InstallingNode) => rmSync(`${m.root}/${'dev/tpmrm0'}`),
      /node009 has no TPM 2\.0, to which the disk layout sealed/
    ],
    [
      (m: InstallingNode) => m.write(secureBoot, '\x06\0\0\0\0'),
      /node009 has Secure Boot off, .* loader=grub/
    ],
    [(m: InstallingNode) => rmSync(`${m.root}/${secureBoot}`), /node009 has Secure Boot off/],
    [
      (m: InstallingNode) => rmSync(`${m.root}/${'etc/svc/seal-lacks'}`),
      /initramfs of an older svcd: pack its image again/
    ],
    [
      (m: InstallingNode) => m.write('etc/svc/seal-lacks', 'tpm2-tools\ncryptsetup-initramfs\n'),
      /node009 has an image without tpm2-tools cryptsetup-initramfs, which the disk layout sealed needs to open root/
    ]
  ] as const) {
    const prepare = (m: InstallingNode) => {
      ready(m)
      spoil(m)
    }
    const { status, output, calls } = await run(t, sealed, { sda: hdd(9000) }, { secrets, prepare })
    t.equal(status, 1)
    t.match(output, says)
    t.notMatch(calls, /wipe|sfdisk|cryptsetup/, 'nothing was written')
  }
  const { status, output, machine } = await run(t, sealed, { sda: hdd(9000) }, { secrets, prepare: ready })
  t.equal(status, 0, output)
  t.equal(
    machine.text('svcrun/layout/crypttab'),
    'luks-root UUID=the-uuid none luks,tpm2-device=auto,x-initrd.attach\n' +
      'luks-data UUID=the-uuid none luks,tpm2-device=auto,nofail\n'
  )
  t.equal(machine.text('svcrun/layout/seal'), '/dev/sda2 root\n/dev/sda3 data\n')
  t.equal(
    machine.text('svcrun/layout/seal-keys/data'),
    'the key',
    'it is opened with it once more, to seal it'
  )
})

// rules 15.16
t.test('a recovery key is not placed on the node', async t => {
  const secrets = ['key', 'other'].map(name => ({ name, path: `/etc/${name}`, content: base64(name) }))
  const script = installScript(installData({ secrets, sealed_secrets: ['key'], localinstall: true }))
  const [text = ''] = /^secrets\(\) \{\n[\s\S]*?^\}$/m.exec(script) ?? []
  t.match(text, "place_secret '/etc/other'")
  t.notMatch(text, '/etc/key')
  const alone = { secrets: secrets.slice(0, 1), sealed_secrets: ['key'], localinstall: true }
  const { status, stderr } = spawnSync('sh', ['-n'], { input: installScript(installData(alone)) })
  t.equal(status, 0, String(stderr))
})

t.test(
  'a path with blanks is refused before the disks are written: it would shift fields of crypttab',
  async t => {
    for (const path of ['/etc/my keys/k1', '/etc/k1\nb']) {
      const secrets = { key: '/etc/k1', 'key.path': path, path: '/etc/k3' }
      const { status, output, calls } = await run(t, encrypted, { sda: hdd(9000) }, { secrets })
      t.equal(status, 1)
      t.match(output, 'node009 cannot encrypt data1: secret key.path: field "path" holds blanks')
      t.equal(calls, '', 'nothing was touched')
    }
  }
)

t.test('in the words of the Red Hat installer', async t => {
  const lvm = await run(
    t,
    shippedLayout('raid1-lvm'),
    { vda: hdd(9000), vdb: hdd(9000) },
    { kind: '_kickstart' }
  )
  t.equal(lvm.status, 0, lvm.output)
  t.strictSame(
    lvm.machine
      .text('words')
      .trimEnd()
      .split('\n')
      .map(line => line.trimEnd()),
    [
      'ignoredisk --only-use=vda,vdb',
      'clearpart --all --initlabel --drives=vda,vdb --disklabel=gpt',
      'part biosboot --size=1 --ondisk=vda --fstype=biosboot',
      'part biosboot --size=1 --ondisk=vdb --fstype=biosboot',
      'part raid.lvm-vda --size=64 --grow --ondisk=vda',
      'part raid.lvm-vdb --size=64 --grow --ondisk=vdb',
      'raid pv.lvm --level=1 --device=lvm raid.lvm-vda raid.lvm-vdb',
      'volgroup system pv.lvm',
      'logvol swap --vgname=system --name=swap --size=2048 --fstype=swap',
      'logvol / --vgname=system --name=root --size=64 --grow --fstype=ext4'
    ]
  )
  const data = { ...hdd(9000), partitions: [8998], labels: { 1: 'data' } }
  const again = await run(t, kept, { sda: data, sdb: hdd(9000) }, { kind: '_kickstart' })
  t.match(again.machine.text('words'), /only-use=sdb,sda\nclearpart .*--drives=sdb /)
  t.match(
    again.machine.text('words'),
    'part /data --fstype=ext4 --label=data --fsoptions=defaults,nofail --noformat --onpart=sda1'
  )
  const both = await run(t, wholeLayout, machineOfAll, {
    kind: '_kickstart',
    secrets: { key: '/etc/key', swapkey: '/etc/swapkey' }
  })
  t.match(both.output, /is installed by a kickstart, which cannot/)
})
