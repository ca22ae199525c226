import {
  appendFile,
  chmod,
  copyFile,
  mkdir,
  readdir,
  rename,
  rm,
  symlink,
  truncate,
  writeFile
} from 'node:fs/promises'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { Daemon } from '../support/daemon.js'
import { signedLoaders } from '../support/kernel.js'
import { output, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { type RealBoot, realBoot } from '../support/real-boot.js'
import { scratch } from '../support/scratch.js'
import { debianImage, systemOptions } from './debian-image.js'

// rules 16.1 to 16.3: a rehearsal finds what is wrong with an image before a node gets it, and finds nothing in
// a good one. Each case is one virtual machine, a minute or two; REHEARSALS=name,name runs some of them. With
// REHEARSALS_BESIDE=1 one case of each kind is also booted as the node itself, on a provisioning network, and
// the verdicts of both must be the same.

const minutes = 60_000
const address = '10.141.0.71'
const mac = '52:54:00:14:20:01'
const secondMac = '52:54:00:14:20:02'
const memoryMiB = 2048

/** A case: what is changed in a copy of the tree, and beside it. Its rehearsal must say `says`. */
interface Case {
  readonly tree?: (at: (path: string) => string) => Promise<unknown>
  /** Fields of its image, and of its node. */
  readonly image?: object
  readonly node?: object
  /** Of its first interface. */
  readonly own?: object
  /** The report of the node's hardware. */
  readonly inventory?: object
  /** Changes a file of the files directory: a kernel, an initramfs, a pack. */
  readonly file?: { readonly field: string; change(path: string): Promise<unknown> }
  /** The system comes up all the same: all of these are in one image, and its verdict names each. */
  readonly soft?: true
  /** The first line, which describes the machine. */
  readonly machine?: RegExp
  /** Undefined: the image is good. */
  readonly says?: RegExp
}

/** One case of each kind; all that are `soft` come with them, in one image. */
const kinds: readonly string[] = [
  ...['as-it-is', 'wrong-fstab', 'no-init', 'postscript', 'pack-cut', 'kernel-damaged', 'by-bios'],
  ...['rescue-target', 'disk-too-small', 'no-libc', 'root-full', 'no-networkd', 'on-a-disk'],
  ...['unit-that-hangs', 'emergency-by-fstab', 'no-driver', 'no-curl']
]

const put = async (path: string, text: string) => {
  await mkdir(dirname(path), { recursive: true })
  await rm(path, { force: true })
  await writeFile(path, text)
}
/** A unit that is started at each boot. */
const unit = (at: (path: string) => string, name: string, service: string, more = '') =>
  put(
    at(`etc/systemd/system/${name}.service`),
    `[Unit]\nDescription=${name}\n${more}\n[Service]\n${service}\n`
  ).then(() =>
    symlink(`../${name}.service`, at(`etc/systemd/system/multi-user.target.wants/${name}.service`))
  )
const libs = 'usr/lib/x86_64-linux-gnu'
const base64 = (text: string) => Buffer.from(text).toString('base64')
const empty = async (path: string) => {
  await rm(path, { force: true })
  await writeFile(path, '', { mode: 0o755 })
}

const faults: Readonly<Record<string, Case>> = {
  'no-init': { tree: at => rm(at('usr/sbin/init')), says: /init/ },
  'empty-systemd': { tree: at => empty(at('usr/lib/systemd/systemd')), says: /panicked|init/ },
  'no-libc': { tree: at => rm(at(`${libs}/libc.so.6`)), says: /./ },
  'no-shell': {
    tree: async at => {
      for (const name of ['sh', 'dash', 'bash']) await rm(at(`usr/bin/${name}`), { force: true })
    },
    says: /./
  },
  'root-shell-missing': {
    soft: true,
    tree: at => output('sed', ['-i', '1s|/bin/bash|/bin/zsh|', at('etc/passwd')]),
    says: /no-root-shell/
  },
  'no-passwd': { tree: at => empty(at('etc/passwd')), says: /./ },
  'broken-unit': {
    soft: true,
    tree: at => unit(at, 'broken', 'Type=oneshot\nExecStart=/bin/false'),
    says: /broken\.service/
  },
  'unit-of-missing-program': {
    soft: true,
    tree: at => unit(at, 'absent', 'ExecStart=/usr/bin/absent'),
    says: /absent\.service/
  },
  'unit-that-hangs': {
    tree: at => unit(at, 'hangs', 'Type=oneshot\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity'),
    says: /hangs\.service/
  },
  'wrong-fstab': {
    tree: at => appendFile(at('etc/fstab'), 'tmpfs /scratch tmpfs size=much 0 0\n'),
    says: /scratch\.mount|emergency/
  },
  'emergency-by-fstab': {
    tree: async at => {
      await put(
        at('etc/systemd/system/data.mount'),
        '[Unit]\nBefore=local-fs.target\n[Mount]\nWhat=/dev/vdz\nWhere=/data\nType=ext4\n[Install]\nRequiredBy=local-fs.target\n'
      )
      await mkdir(at('etc/systemd/system/local-fs.target.requires'), { recursive: true })
      await symlink('../data.mount', at('etc/systemd/system/local-fs.target.requires/data.mount'))
    },
    says: /emergency|data\.mount/
  },
  'default-target-missing': {
    tree: async at => {
      await rm(at('etc/systemd/system/default.target'), { force: true })
      await symlink('/lib/systemd/system/absent.target', at('etc/systemd/system/default.target'))
    },
    says: /./
  },
  'rescue-target': {
    image: { kerneloptions: `${systemOptions} systemd.unit=rescue.target` },
    says: /emergency/
  },
  'too-large': {
    // Of more than its machine has, and not sparse.
    tree: at =>
      output('sh', ['-c', 'yes | head -c 3G >"$1"', 'sh', at('var/large')], { timeout: 5 * minutes }),
    says: /memory|space/
  },
  'root-full': {
    tree: at =>
      unit(
        at,
        'fills',
        'Type=oneshot\nExecStart=-/bin/dd if=/dev/zero of=/var/fills bs=1M',
        'Before=svc-running.service'
      ),
    says: /root-full/
  },
  // The daemons that are not root see nothing: it has no network.
  'root-closed': { tree: at => chmod(at('.'), 0o700), says: /not reported|root-closed/ },
  'tmp-closed': {
    soft: true,
    tree: async at => {
      await chmod(at('tmp'), 0o755)
      await put(at('etc/tmpfiles.d/tmp.conf'), '')
    },
    says: /tmp-closed/
  },
  'no-resolver': {
    soft: true,
    tree: async at => {
      await rm(at('etc/resolv.conf'), { force: true })
      await symlink('/run/absent', at('etc/resolv.conf'))
    },
    says: /no-resolver/
  },
  'no-hosts': {
    soft: true,
    tree: at => put(at('etc/nsswitch.conf'), 'passwd: files\ngroup: files\nhosts: dns\n'),
    says: /no-hosts/
  },
  // The machine keeps the address of its boot: it can tell.
  'no-networkd': {
    tree: at => rm(at('usr/lib/systemd/systemd-networkd')),
    says: /systemd-networkd\.service|has not reported/
  },
  'sshd-config': {
    soft: true,
    tree: at => appendFile(at('etc/ssh/sshd_config'), 'NoSuchOption yes\n'),
    says: /ssh\.service/
  },
  'empty-sshd': { tree: at => empty(at('usr/sbin/sshd')), says: /ssh\.service/ },
  'no-journald': { tree: at => rm(at('usr/lib/systemd/systemd-journald')), says: /./ },
  'empty-udevd': { tree: at => empty(at('usr/bin/udevadm')), says: /./ },
  'other-modules': {
    soft: true,
    tree: async at => {
      const [version = ''] = await readdir(at('usr/lib/modules'))
      await rename(at(`usr/lib/modules/${version}`), at('usr/lib/modules/0.0.0'))
    },
    says: /no-kernel-modules/
  },
  'no-curl': {
    tree: async at => {
      for (const name of ['curl', 'wget']) await rm(at(`usr/bin/${name}`), { force: true })
    },
    says: /./
  },
  'disk-too-small': {
    node: {
      partscript: base64('mke2fs /dev/vda 6144\nmkdir -p /sysroot\nmount -t ext2 /dev/vda /sysroot\n')
    },
    says: /no space/i
  },
  postscript: { node: { postscript: base64('exit 7') }, says: /failed in step postscript/ },
  prescript: { node: { prescript: base64('exit 7') }, says: /failed in step prescript/ },
  'role-missing': { node: { roles: 'absent' }, says: /failed in step roles/ },
  'no-driver': { image: { kerneloptions: `${systemOptions} modprobe.blacklist=virtio_net` }, says: /./ },
  'initramfs-cut': { file: { field: 'initrdfile', change: path => truncate(path, 5_000_000) }, says: /./ },
  'pack-cut': {
    file: { field: 'imagefile', change: path => truncate(path, 20_000_000) },
    says: /unpack|download/
  },
  'kernel-damaged': {
    file: { field: 'kernelfile', change: path => writeFile(path, 'no kernel at all\n'.repeat(9999)) },
    says: /could not load or start the kernel/
  },
  'pack-missing': { file: { field: 'imagefile', change: path => rm(path) }, says: /missing|download/ },
  'kernel-missing': { file: { field: 'kernelfile', change: path => rm(path) }, says: /missing/ }
}

/** A node whose provision interface is a bond or a bridge over the card that it boots from. */
const over = (name: string, options: string, ...more: object[]): Case => ({
  own: { network: null, ipaddress: null, macaddress: null },
  node: {
    provision_interface: name,
    interfaces: [
      ...more,
      { interface: name, network: 'cluster', ipaddress: address, macaddress: mac, options }
    ]
  }
})

const good: Readonly<Record<string, Case>> = {
  'as-it-is': {},
  'no-console-option': { image: { kerneloptions: 'no_timer_check' } },
  'two-cards': {
    node: {
      interfaces: [{ interface: 'eth1', network: 'other', ipaddress: '10.9.0.5', macaddress: secondMac }]
    }
  },
  'more-units': { tree: at => unit(at, 'fine', 'Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true') },
  'noexec-mount': {
    tree: at =>
      appendFile(at('etc/fstab'), 'tmpfs /scratch tmpfs size=10m,noexec 0 0\n').then(() =>
        mkdir(at('scratch'))
      )
  },
  scripts: { node: { prescript: base64('true'), postscript: base64('echo fine > /sysroot/etc/motd') } },
  'masked-unit': { tree: at => symlink('/dev/null', at('etc/systemd/system/fstrim.timer')) },
  'other-shell': { tree: at => output('sed', ['-i', '1s|/bin/bash|/bin/sh|', at('etc/passwd')]) },
  'no-issue': { tree: at => rm(at('etc/issue'), { force: true }) },
  'by-grub': { node: { loader: 'grub' } },
  // The layout of images for bootc: what is written lies below /var, which the first boot fills.
  'like-bootc': {
    tree: async at => {
      await mkdir(at('sysroot/ostree/repo'), { recursive: true })
      await rm(at('tmp'), { recursive: true })
      await mkdir(at('sysroot/tmp'))
      await chmod(at('sysroot/tmp'), 0o1777)
      const links = { ostree: 'sysroot/ostree', tmp: 'sysroot/tmp' }
      const below = { root: 'roothome', home: 'home', srv: 'srv', mnt: 'mnt', opt: 'opt' }
      for (const [name, to] of Object.entries(below)) Object.assign(links, { [name]: `var/${to}` })
      for (const [name, to] of Object.entries(links)) {
        await rm(at(name), { recursive: true, force: true })
        await symlink(to, at(name))
      }
      const made = ['roothome 0700', 'home', 'srv', 'mnt', 'opt'].map(name => `d /var/${name}\n`)
      await put(at('etc/tmpfiles.d/bootc.conf'), made.join(''))
    }
  },
  'by-dhcp': { own: { ipaddress: null } },
  vlan: {
    node: {
      interfaces: [{ interface: 'BOOTIF.20', network: 'other', ipaddress: '10.9.0.6', options: 'vlan=20' }]
    }
  },
  'second-by-dhcp': {
    node: {
      interfaces: [{ interface: 'eth1', network: 'other', macaddress: secondMac, options: 'dhcp=yes' }]
    }
  },
  bonded: over('bond0', 'bond=BOOTIF,eth1', { interface: 'eth1', macaddress: secondMac }),
  lacp: over('bond0', 'bond=BOOTIF,eth1 mode=802.3ad', { interface: 'eth1', macaddress: secondMac }),
  bridged: over('br0', 'bridge=BOOTIF'),
  'by-bios': { inventory: { firmware: { mode: 'bios' } }, machine: /, bios, ipxe,/ },
  'on-a-disk': {
    machine: /, 1 disk\(s\)/,
    node: { partscript: base64('mke2fs -q /dev/vda\nmkdir -p /sysroot\nmount -t ext2 /dev/vda /sysroot\n') }
  },
  'with-tpm': { node: { trust: 'report' }, machine: /, a TPM$/ }
}

t.test('rehearsals of good and of faulty images', { timeout: 300 * minutes }, async t => {
  requirePrograms('qemu-system-x86_64', 'debootstrap', 'zstd', 'swtpm')
  const directory = scratch(t)
  const files = join(directory, 'files')
  const base = join(directory, 'base')
  const { SVCD_REHEARSED: kept, REHEARSALS: some, REHEARSALS_BESIDE: beside } = process.env
  const made = await debianImage({ tool: 'initramfs-tools', name: 'base', files, tree: base, prepare: slim })
  // New host keys take half a minute in software: here a node has those of the image.
  const identity = 'image.identity=/etc/machine-id'
  const loaders = await signedLoaders()
  const tftp = [`tftp.shim_x64=${loaders['shimx64.efi']}`, `tftp.grub_x64=${loaders['grubx64.efi']}`]
  const network = await startNetwork([{ mac, ipaddress: address }])
  t.teardown(() => network.close())
  const controller = await Daemon.start({
    directory,
    listen: '10.141.0.1:7050',
    enter: network.enter,
    set: [`rehearsal.memory=${memoryMiB}m`, 'rehearsal.time_limit=14m', identity, ...tftp]
  })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', {
    ...{ network: '10.141.0.0/24', gateway: '10.141.0.1', dhcp: true },
    ...{ dhcp_range_begin: '10.141.0.200', dhcp_range_end: '10.141.0.220' }
  })
  await controller.create('network', 'other', { network: '10.9.0.0/24' })
  const found = new Set<string>()
  let run = 0
  /** Boots the node itself on the machine that the rehearsal describes: both must come to the same verdict. */
  const bootBeside = async (t: Test, name: string, described: string, rehearsed: Outcome['results']) => {
    const disk = join(directory, 'disk')
    await writeFile(disk, '')
    await truncate(disk, 20 * 2 ** 30)
    const real = await realBoot(controller, {
      ...{ name, mac, memoryMiB, network: { tap: network.tap(mac) }, enter: network.enter },
      firmware: described.includes(', bios,') ? 'bios' : 'uefi',
      ...(described.includes(', no disk') ? {} : { disk })
    })
    const { isUp, state, seconds } = real
    const well = isUp && real.rule === 'all-well'
    const seen = rehearsed.faults.filter(fault => !ofWaiting.test(fault))
    const line = `${well ? 'well' : 'NOT WELL'} for real after ${seconds} s: ${state}`
    t.comment(line)
    if (kept)
      for (const text of [line, `real: ${told(real)}`, `rehearsed: ${told(rehearsed)}`])
        await appendFile(kept, `  = ${text}\n`)
    t.equal(well, rehearsed.well, 'the real node is as well as the rehearsed one')
    t.equal(timeless(real), timeless(rehearsed), 'the daemon says the same of both')
    // The first fault ends a rehearsal: on the other console some may follow.
    t.equal(real.faults.length > 0, seen.length > 0, 'both consoles show faults, or none does')
    for (const fault of seen) t.ok(real.faults.includes(fault), fault)
  }
  const rehearse = async (t: Test, name: string, each: Case, i: number) => {
    const { fields, forget } = await imageOf({ ...made }, each, name, { base, directory, files })
    const node = `node${100 + i}`
    const own = { interface: 'BOOTIF', network: 'cluster', ipaddress: address, macaddress: mac, ...each.own }
    const { interfaces = [], ...more } = (each.node ?? {}) as { interfaces?: object[] }
    await controller.create('osimage', name, {
      ...fields,
      distribution: 'debian',
      kerneloptions: systemOptions,
      ...each.image
    })
    await controller.create('node', node, { osimage: name, ...more, interfaces: [own, ...interfaces] })
    if (each.inventory) await controller.request('POST', `/monitor/inventory/${node}`, each.inventory)
    const start = Date.now()
    const body = { config: { node: { [node]: {} } } }
    const { status, body: said } = await controller.request(
      'POST',
      `/config/node/${node}/_rehearse`,
      body,
      900
    )
    const { body: all } = await controller.request('GET', '/monitor/request')
    const [id = ''] = Object.keys((all as { monitor: { request: object } }).monitor.request)
    const { body: one } = await controller.request('GET', `/monitor/request/${id}`)
    const { lines, results } = (one as { monitor: { request: Record<string, Outcome> } }).monitor.request[
      id
    ] as Outcome
    const { message } = said as { message: string }
    const line = `${name}: ${status === 200 ? 'well' : 'NOT WELL'} after ${Math.round((Date.now() - start) / 1000)} s: ${message}`
    t.comment(line)
    if (kept) await appendFile(kept, `${[line, ...lines].join('\n    ')}\n`)
    if (beside) await bootBeside(t, node, lines[0] ?? '', results)
    await controller.request('POST', `/config/node/${node}/_delete`)
    await forget()
    run++
    return { status, message, machine: lines[0] ?? '' }
  }
  const known: Readonly<Record<string, Case>> = { ...faults, ...good }
  const isChosen = (name: string) => !beside || kinds.includes(name) || known[name]?.soft
  const names = some?.split(',') ?? Object.keys(known).filter(isChosen)
  const cases = names.map(name => [name, known[name] as Case] as const)
  const soft = cases.filter(([, each]) => each.soft)
  const hard = cases.filter(([, each]) => !each.soft)
  const many: Case = {
    tree: async at => {
      for (const [, { tree }] of soft) await tree?.(at)
    },
    says: /./
  }
  const all = [...(soft.length > 0 ? [['many', many] as const] : []), ...hard]
  for (const [i, [name, each]] of all.entries())
    await t.test(name, async t => {
      const { status, message, machine } = await rehearse(t, name, each, i)
      if (each.machine) t.match(machine, each.machine)
      if (name in good) return t.equal(status, 200, message)
      const planted = name === 'many' ? soft : [[name, each] as const]
      if (status !== 200) for (const [one, { says }] of planted) if (says?.test(message)) found.add(one)
      const missed = planted.filter(([one]) => !found.has(one)).map(([one]) => one)
      const told = `${found.size} faults found in ${run} machines; missed here: ${missed.join(', ') || 'none'}`
      t.comment(told)
      if (kept) await appendFile(kept, `  = ${told}\n`)
    })
  const sought = names.filter(name => name in faults).length
  t.ok(found.size >= sought * 0.9, `found ${found.size} of ${sought}`)
})

/** The record of a rehearsal's request. */
interface Outcome {
  readonly lines: readonly string[]
  readonly results: Verdict & { readonly well: boolean }
}

type Verdict = Pick<RealBoot, 'rule' | 'verdict' | 'faults'>

/** Faults that tell how long a rehearsal waited, and that its machine ended. */
const ofWaiting = /^(?:nothing was seen|it was started|the machine ended|\[rehearsal\] time_limit)/
const timeless = ({ rule, verdict }: Verdict) =>
  `${rule}: ${verdict.replace(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/g, 'TIME')}`
const told = (verdict: Verdict) => [...verdict.faults, timeless(verdict)].join('; ')

/** Removes what a case would only unpack. */
async function slim(tree: string): Promise<void> {
  for (const name of [
    'usr/share/doc',
    'usr/share/man',
    'usr/share/locale',
    'var/lib/apt/lists',
    'var/cache/apt'
  ])
    await rm(join(tree, name), { recursive: true, force: true })
  for (const name of [
    'apt-daily.timer',
    'apt-daily-upgrade.timer',
    'e2scrub_all.timer',
    'dpkg-db-backup.timer'
  ])
    await symlink('/dev/null', join(tree, 'etc/systemd/system', name)).catch(() => {})
}

interface Places {
  readonly base: string
  readonly directory: string
  readonly files: string
}

/** Makes the files of a case; `forget` removes them. */
async function imageOf(
  made: Readonly<Record<string, string>>,
  { tree, file }: Case,
  name: string,
  { base, directory, files }: Places
) {
  const fields = { ...made }
  const begun: string[] = []
  if (tree) {
    const copy = join(directory, 'case')
    await rm(copy, { recursive: true, force: true })
    await output('cp', ['-a', '-x', base, copy], { timeout: 5 * minutes })
    await tree(path => join(copy, path))
    fields.imagefile = `${name}.tar.zst`
    const pack = ['--numeric-owner', '--xattrs', '--acls', '--one-file-system', '-I', 'zstd -1 -T0']
    await output('tar', [...pack, '-cf', join(files, fields.imagefile), '-C', copy, '.'], {
      timeout: 10 * minutes
    })
    await rm(copy, { recursive: true, force: true })
    begun.push(fields.imagefile)
  }
  if (file) {
    const to = `${name}-${fields[file.field]}`
    await copyFile(join(files, fields[file.field] as string), join(files, to))
    await file.change(join(files, to))
    fields[file.field] = to
    begun.push(to)
  }
  const forget = async () => {
    for (const one of begun) await rm(join(files, one), { force: true })
  }
  return { fields, forget }
}
