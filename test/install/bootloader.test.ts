import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { base64 } from './data.js'
import { packImage } from './image.js'
import { completed, failed, install, type Plan } from './install.js'
import { type Machine, shells } from './machine.js'

const busybox = readFileSync('/usr/bin/busybox')
const partscript = base64(
  'mount -t tmpfs /dev/fake1 /sysroot; mkdir -p /sysroot/boot/efi; mount -t tmpfs /dev/fake2 /sysroot/boot/efi'
)
const record =
  'echo "$0 $*" >> /calls; cut -d" " -f2 /proc/mounts | grep -E "^/(dev|proc|sys|run)$" | sort | tr "\\n" " " >> /calls'

/** An image whose GRUB programs note how they were called and what was mounted then. */
function grubImage(prefix: string, install = ''): Buffer {
  return packImage({
    'boot/vmlinuz-6.1': '',
    [`usr/sbin/${prefix}-install`]: `#!/bin/sh\n${record}\n${install}\n`,
    [`usr/sbin/${prefix}-mkconfig`]: `#!/bin/sh\n${record}\n: > "$2"\n`,
    'usr/sbin/blkid': '#!/bin/sh\ncase $5 in /dev/fake1) echo 1111-2222 ;; esac\n',
    'etc/fstab': '# none\n',
    'etc/default/grub': 'GRUB_TIMEOUT=5\n'
  })
}

/** The partition fake1 of the disk fake, as sysfs shows them. */
function disk(machine: Machine): void {
  machine.write('sys/devices/fake/fake1/partition', '1\n')
  machine.mkdir('sys/class/block')
  symlinkSync('../../devices/fake/fake1', join(machine.root, 'sys/class/block/fake1'))
  machine.mkdir('sys/devices/fake/slaves')
  // A shell for the programs of the image: the part script's file system is empty before.
  machine.write('busybox', busybox, 0o755)
}

/** Puts a shell and a few tools into the image before the boot loader step. */
const postscript = base64(
  'mkdir -p $_SYSTEMROOT/bin; cp /busybox $_SYSTEMROOT/bin/busybox; ' +
    'echo $PPID > $_SYSTEMROOT/pid; for i in sh cut grep sort tr cat sleep; do ln -s busybox $_SYSTEMROOT/bin/$i; done'
)
const data = { localinstall: true, partscript, postscript, kerneloptions: "console=ttyS0 it's" }
const plan = (shell: Plan['shell'], image: Buffer): Plan => ({
  shell,
  data,
  answers: { '/files/rocky9.tar.gz': image },
  prepare: disk
})
const allMounted = '/dev /proc /run /sys '

for (const shell of shells) {
  t.test(`GRUB goes to the disk under BIOS, ${shell}`, async t => {
    const done = await install(t, plan(shell, grubImage('grub2')))
    completed(t, done)
    t.equal(
      done.machine.read('calls'),
      `/usr/sbin/grub2-install --target=i386-pc /dev/fake\n${allMounted}` +
        `/usr/sbin/grub2-mkconfig -o /boot/grub2/grub.cfg\n${allMounted}`
    )
    t.notMatch(done.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
    t.equal(
      done.machine.read('etc/fstab'),
      '# none\n# svc begin\nUUID=1111-2222 / tmpfs defaults 0 1\n/dev/fake2 /boot/efi tmpfs defaults 0 2\n# svc end\n'
    )
    t.match(done.machine.read('etc/default/grub'), `GRUB_CMDLINE_LINUX='console=ttyS0 it'\\''s'`)
  })

  t.test(`GRUB goes to the EFI system partition under EFI, ${shell}`, async t => {
    const efi = plan(shell, grubImage('grub'))
    const done = await install(t, {
      ...efi,
      prepare: machine => {
        disk(machine)
        machine.mkdir('sys/firmware/efi')
      }
    })
    completed(t, done)
    t.match(
      done.machine.read('calls'),
      /^\/usr\/sbin\/grub-install --target=(x86_64|arm64)-efi --efi-directory=\/boot\/efi --removable --no-nvram\n/
    )
    t.notMatch(done.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
  })

  t.test(`mounts are undone when GRUB fails, or is killed with the script, ${shell}`, async t => {
    const fails = await install(t, plan(shell, grubImage('grub', 'exit 1')))
    failed(t, fails, 'bootloader', /grub-install failed on \/dev\/fake/)
    t.notMatch(fails.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
    const killing = grubImage('grub', 'kill -TERM $(cat /pid); sleep 0.3')
    const killed = await install(t, plan(shell, killing))
    failed(t, killed, 'bootloader', /signal/)
    t.notMatch(killed.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
  })
}

t.test('what cannot get a boot loader', async t => {
  const grub = grubImage('grub')
  const memory = await install(t, { ...plan('ash', grub), data: { localinstall: true } })
  failed(t, memory, 'bootloader', /not on a disk/)
  const bare = await install(t, plan('ash', packImage({ 'usr/sbin/grub-install': '#!/bin/sh' })))
  failed(t, bare, 'bootloader', /no kernel/)
  const noEsp = await install(t, {
    ...plan('ash', grub),
    data: { ...data, partscript: base64('mount -t tmpfs /dev/fake1 /sysroot') },
    prepare: machine => {
      disk(machine)
      machine.mkdir('sys/firmware/efi')
    }
  })
  failed(t, noEsp, 'bootloader', /no EFI system partition/)
})
