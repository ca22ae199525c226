import { execFileSync } from 'node:child_process'
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeSync
} from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { base64 } from '../support/install-data.js'
import { requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { completed, failed, install, type Plan } from './install.js'
import { everyCase, type InstallingNode, shells } from './installing-node.js'

// Disks that were used before (rules 4.29). The kernel of the test may know no arrays and no mappings: so
// sysfs is one that the test makes, and programs note what they are asked. test/long/localinstall.test.ts has
// the real ones.

const wiping = fileURLToPath(new URL('../../templates/install/lib/svc_wipe.sh', import.meta.url))

/** What sysfs shows of a block device: what lies on it, and what it is. */
interface Block {
  readonly holders?: readonly string[]
  readonly files?: Readonly<Record<string, string>>
  /** The disk that it is a partition of. */
  readonly of?: string
}

/**
 * Two disks with an array of their second partitions, on which lies a volume group; and a disk with several
 * paths.
 */
const blocks: Readonly<Record<string, Block>> = {
  sda: {},
  sda1: { of: 'sda' },
  sda2: { of: 'sda', holders: ['md127'] },
  sdb: {},
  sdb1: { of: 'sdb' },
  sdb2: { of: 'sdb', holders: ['md127'] },
  md127: { files: { 'md/array_state': 'clean\n' }, holders: ['dm-0', 'dm-1'] },
  'dm-0': { files: { 'dm/name': 'vg-root\n', 'dm/uuid': 'LVM-1\n' } },
  'dm-1': { files: { 'dm/name': 'vg-swap\n', 'dm/uuid': 'LVM-2\n' } },
  sdc: { holders: ['dm-2'] },
  'dm-2': { files: { 'dm/name': 'mpatha\n', 'dm/uuid': 'mpath-3\n' } }
}

/** Writes that sysfs below the machine's root. What is ended by a program is no more there. */
function sysfs(machine: InstallingNode): void {
  const at = (name: string, of?: string) =>
    of === undefined ? `sys/devices/${name}` : `sys/devices/${of}/${name}`
  machine.mkdir('sys/class/block')
  let minor = 0
  for (const [name, { holders = [], files = {}, of }] of Object.entries(blocks)) {
    const place = at(name, of)
    const all = { dev: `250:${minor++}\n`, size: '8192\n', ...files, ...(of ? { partition: '1\n' } : {}) }
    for (const [file, text] of Object.entries(all)) machine.write(`${place}/${file}`, text)
    machine.mkdir(`${place}/holders`)
    for (const holder of holders) machine.write(`${place}/holders/${holder}`, '')
    symlinkSync(
      `../../devices/${place.slice('sys/devices/'.length)}`,
      join(machine.root, 'sys/class/block', name)
    )
  }
}

const note = (name: string, more = '') => `echo "${name} $*" >> /calls\n${more}`
/** Ends a device as the kernel would: its name, and that it lies on others, are gone. */
const gone =
  'rm -rf /sys/devices/$gone /sys/class/block/$gone /sys/devices/*/holders/$gone /sys/devices/*/*/holders/$gone'
const programs = {
  swapoff: note('swapoff'),
  vgchange: note('vgchange'),
  dmsetup: note(
    'dmsetup',
    `case $3 in vg-root) gone=dm-0 ;; vg-swap) gone=dm-1 ;; *) exit 1 ;; esac\n[ -z "$(ls /sys/devices/$gone/holders)" ] && ${gone}`
  ),
  mdadm: note(
    'mdadm',
    `case $*:$(ls /sys/devices/md127/holders 2>/dev/null) in "--stop /dev/md127:") gone=md127; ${gone} ;; --stop*127:*) exit 1 ;; esac`
  ),
  udevadm: note('udevadm'),
  wipefs: note('wipefs')
}
/** How often a line begins like that before the first that begins like the other. */
const before = (calls: string, first: string, then: string) =>
  calls.indexOf(first) >= 0 && calls.indexOf(first) < calls.indexOf(then)

for (const shell of shells) {
  const plan: Plan = { shell, programs, prepare: sysfs }
  const script = (text: string) => ({ partscript: base64(`${text}\nmount -t tmpfs disk /sysroot`) })

  t.test(`what lies on the disks is ended before the partscript, ${shell}`, async t => {
    const done = await install(t, { ...plan, data: script('echo script >> /calls; ls /sys/class/block') })
    completed(t, done)
    const calls = done.machine.text('calls')
    t.ok(before(calls, 'swapoff -a', 'vgchange -an'), calls)
    t.ok(before(calls, 'vgchange -an', 'dmsetup remove --retry vg-root'))
    t.ok(
      before(calls, 'dmsetup remove --retry vg-swap', 'mdadm --stop /dev/md127'),
      'what is on top goes first'
    )
    t.ok(before(calls, 'mdadm --stop /dev/md127', 'mdadm --stop --scan'))
    t.ok(before(calls, 'mdadm --stop --scan', 'script'), 'all of it before the script')
    t.notMatch(calls, 'mpatha', 'a disk with several paths keeps its mapping')
    t.match(done.run.output, /^dm-2\nsda\n/m)
    t.notMatch(done.run.output, /^md127$/m)
  })

  if (!everyCase(shell)) continue
  t.test(`without a partscript nothing is touched, ${shell}`, async t => {
    const done = await install(t, { ...plan, data: { prescript: base64('true') } })
    completed(t, done)
    t.notOk(done.machine.has('calls'))
  })

  t.test(`svc_wipe says what it cannot do, and touches no disk then, ${shell}`, async t => {
    for (const [disks, reason] of [
      ['/dev/sdz', /svc_wipe: \/dev\/sdz is no block device of this machine/],
      ['', /use: svc_wipe DISK/],
      ['/etc', /svc_wipe: \/etc is no block device/]
    ] as const) {
      const done = await install(t, { ...plan, data: script(`svc_wipe ${disks} || exit 4`) })
      failed(t, done, 'partscript', /ended with status 4/)
      t.match(done.run.output, reason)
      t.notMatch(done.machine.text('calls'), 'wipefs')
    }
  })

  t.test(`svc_wipe is there for each script, also where a disk is mounted on /svctmp, ${shell}`, async t => {
    const asks = base64('mount -t tmpfs disk /svctmp; command -v svc_wipe >> /asked')
    const done = await install(t, { ...plan, data: { ...script('true'), prescript: asks, postscript: asks } })
    completed(t, done)
    t.equal(done.machine.text('asked'), '/svcrun/svc_wipe\n/svcrun/svc_wipe\n')
  })
}

/** A disk of this machine, made of a file, with what an earlier life has left on it. */
function usedDisk(t: Test, file: string): string {
  const disk = openSync(file, 'w')
  truncateSync(file, 16 << 20)
  const put = (text: string | Buffer, at: number) => writeSync(disk, Buffer.from(text), 0, text.length, at)
  // A partition of 8 MiB from 1 MiB on, by a table of the old kind; a superblock of RAID 1.2 in it, one of
  // 1.0 at its end, LVM.
  const entry = Buffer.alloc(16)
  entry.writeUInt8(0xfd, 4)
  entry.writeUInt32LE(2048, 8)
  entry.writeUInt32LE(16384, 12)
  put(entry, 446)
  put(Buffer.from([0x55, 0xaa]), 510)
  const magic = Buffer.from([0xfc, 0x4e, 0x2b, 0xa9])
  put(magic, (1 << 20) + 4096)
  put(magic, (9 << 20) - 8192)
  put('LABELONE', (1 << 20) + 512)
  put('LVM2 001', (1 << 20) + 512 + 24)
  put('EFI PART', (16 << 20) - 512)
  put('kept', 4 << 20)
  closeSync(disk)
  const loop = execFileSync('losetup', ['--find', '--show', '--partscan', file], { encoding: 'utf8' }).trim()
  t.teardown(() => execFileSync('losetup', ['--detach', loop]))
  const part = `${loop}p1`
  // A kernel may know no partition table of this kind.
  if (!existsSync(`/sys/class/block/${part.slice(5)}`)) execFileSync('addpart', [loop, '1', '2048', '16384'])
  if (!existsSync(part)) {
    // Nobody makes the names of partitions on a machine without udev.
    const [major = '', minor = ''] = readFileSync(`/sys/class/block/${part.slice(5)}/dev`, 'utf8')
      .trim()
      .split(':')
    execFileSync('mknod', [part, 'b', major, minor])
    t.teardown(() => rmSync(part))
  }
  return loop
}

t.test('svc_wipe empties real disks, and refuses all where one is in use', async t => {
  requirePrograms('losetup', 'wipefs', 'mkfs.ext4')
  const directory = scratch(t)
  const files = ['one', 'two'].map(name => join(directory, name))
  const [one = '', two = ''] = files.map(file => usedDisk(t, file))
  const wipe = ([program = '', ...words]: readonly string[], ...disks: string[]) => {
    try {
      return execFileSync(program, [...words, ...disks], { encoding: 'utf8', stdio: 'pipe' })
    } catch (error) {
      return String((error as { stderr: string }).stderr)
    }
  }
  const bytes = (file: string, at: number, length: number) => {
    const opened = openSync(file, 'r')
    const buffer = Buffer.alloc(length)
    readSync(opened, buffer, 0, length, at)
    closeSync(opened)
    return buffer
  }
  execFileSync('mkfs.ext4', ['-q', `${two}p1`])
  const place = join(directory, 'mounted')
  mkdirSync(place)
  const before = bytes(files[0] ?? '', 0, 16 << 20)
  // In a mount namespace that ends with it: another test's namespace would take a copy, and keep the disk busy.
  const used = ['sh', '-c', 'mount "$1" "$2" && shift 2 && exec sh "$@"', 'sh', `${two}p1`, place, wiping]
  const refused = wipe(['unshare', '--mount', ...used], one, two)
  t.match(refused, `svc_wipe: ${two} is in use: something of it is mounted on ${place}`)
  t.ok(before.equals(bytes(files[0] ?? '', 0, 16 << 20)), 'the other one is as it was')

  const plain = ['sh', wiping]
  t.equal(wipe(plain, one, two), '')
  for (const file of files) {
    const found = bytes(file, 0, 16 << 20)
    const none = (at: number, length: number, what: string) =>
      t.ok(
        found.subarray(at, at + length).every(byte => byte === 0),
        what
      )
    none(0, 2 << 20, 'table, and what began the partition')
    none(8 << 20, 1 << 20, 'the end of the partition')
    none(15 << 20, 1 << 20, 'the end of the disk')
  }
  t.equal(
    String(bytes(files[0] ?? '', 4 << 20, 4)),
    'kept',
    'what lies between is not written over: that would take hours'
  )
  // Old controllers of RAID have a slash in the names of their disks, which is ! in sysfs.
  const [odd, devices, sys] = [join(directory, 'odd'), '/dev/cciss-of-svcd', join(directory, 'sys')]
  closeSync(openSync(odd, 'w'))
  truncateSync(odd, 4 << 20)
  execFileSync('mkfs.ext4', ['-q', odd])
  const loop = execFileSync('losetup', ['--find', '--show', odd], { encoding: 'utf8' }).trim()
  t.teardown(() => execFileSync('losetup', ['--detach', loop]))
  t.teardown(() => rmSync(devices, { recursive: true }))
  for (const path of [devices, sys]) mkdirSync(path)
  const real = `/sys/class/block/${loop.slice(5)}`
  symlinkSync(real, join(sys, 'cciss-of-svcd!c0d0'))
  const number = readFileSync(`${real}/dev`, 'utf8').trim().split(':')
  execFileSync('mknod', [`${devices}/c0d0`, 'b', ...number])
  const edited = readFileSync(wiping, 'utf8').replace('sys=/sys/class/block', `sys=${sys}`)
  execFileSync('sh', ['-c', edited, 'svc_wipe', `${devices}/c0d0`])
  t.ok(bytes(odd, 0, 1 << 20).every(byte => byte === 0))

  t.throws(() =>
    execFileSync('ls', [`/sys/class/block/${one.slice(5)}/${one.slice(5)}p1`], { stdio: 'pipe' })
  )
  t.equal(wipe(plain, one), '', 'an empty disk is wiped too')
})
