import { existsSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { base64 } from '../support/install-data.js'
import { completed, failed, inPlace, install, type Plan, without } from './install.js'
import { everyCase, type InstallingNode, shells } from './installing-node.js'
import { packImage } from './packed-image.js'

// They wait for programs in turns.
t.jobs = 3

const busybox = readFileSync('/usr/bin/busybox')
const mounts =
  'mount -t tmpfs /dev/fake1 /sysroot; mkdir -p /sysroot/boot/efi; mount -t tmpfs /dev/fake2 /sysroot/boot/efi'
const record =
  'echo "$0 $*" >> /calls; cut -d" " -f2 /proc/mounts | grep -E "^/(dev|proc|sys|run)$" | sort | tr "\\n" " " >> /calls'

/** An image whose GRUB programs note how they were called and what was mounted then. */
function grubImage(prefix: string, install = '', files: Record<string, string> = {}): Buffer {
  return packImage({
    'boot/vmlinuz-6.1': '',
    [`usr/sbin/${prefix}-install`]: `#!/bin/sh\n${record}\n${install}\n`,
    [`usr/sbin/${prefix}-mkconfig`]: `#!/bin/sh\n${record}\n: > "$2"\n`,
    [`usr/sbin/${prefix}-mkrelpath`]: '#!/bin/sh\necho "$1"\n',
    [`usr/sbin/${prefix}-probe`]: '#!/bin/sh\necho 1111-2222\n',
    'usr/sbin/blkid': '#!/bin/sh\ncase $5 in /dev/fake1) echo 1111-2222 ;; esac\n',
    'usr/sbin/findfs':
      '#!/bin/sh\ncase $1 in *=root) echo /dev/fake1 ;; *=swap) echo /dev/fake3 ;; *) exit 1 ;; esac\n',
    'etc/fstab': '# none\n',
    'etc/default/grub': 'GRUB_TIMEOUT=5\n',
    ...files
  })
}

/** The partition fake1 of the disk fake, as sysfs shows them. */
function disk(machine: InstallingNode): void {
  machine.write('sys/devices/fake/fake1/partition', '1\n')
  machine.mkdir('sys/class/block')
  symlinkSync('../../devices/fake/fake1', join(machine.root, 'sys/class/block/fake1'))
  machine.mkdir('sys/devices/fake/slaves')
  // A shell for the programs of the image: the part script's file system is empty before.
  machine.write('busybox', busybox, 0o755)
}

/** Puts a shell and a few tools into the image before the boot loader step. */
const tools =
  'mkdir -p $_SYSTEMROOT/bin; cp /busybox $_SYSTEMROOT/bin/busybox; ' +
  'echo $PPID > $_SYSTEMROOT/pid; for i in sh cut grep sort tr cat sleep cp rm mkdir; do ln -s busybox $_SYSTEMROOT/bin/$i; done'
const options = { localinstall: true, kerneloptions: "console=ttyS0 it's" }
const data = { ...options, partscript: base64(mounts), postscript: base64(tools) }
/** An installation as it is. */
const whole = (shell: Plan['shell'], image: Buffer): Plan => ({
  shell,
  data,
  answers: { '/files/rocky9.tar.gz': image },
  prepare: disk
})
/** An installation with an image that is unpacked as ever, for what its time or its modes decide. */
const unpacked = (shell: Plan['shell'], image: Buffer): Plan =>
  without(whole(shell, image), 'inventory', 'network')
/** The plan without the steps that the boot loader is not about: the partscript puts all in its place. */
function placed(plan: Plan, image: Buffer, on = mounts, last = ''): Plan {
  const lean = without(inPlace(plan, image, on, 'download', 'unpack', 'network'), 'inventory')
  const script = Buffer.from(lean.data?.partscript ?? '', 'base64')
  return { ...lean, data: { ...options, partscript: base64(`${script}\n${tools}\n${last}`) } }
}
const plan = (shell: Plan['shell'], image: Buffer, last = ''): Plan =>
  placed({ shell, prepare: disk }, image, mounts, last)
/** The same on a machine whose firmware is EFI. */
const underEfi = (plan: Plan): Plan => ({
  ...plan,
  prepare: (machine, controller) => {
    plan.prepare?.(machine, controller)
    machine.mkdir('sys/firmware/efi')
  }
})
const allMounted = '/dev /proc /run /sys '
const selinux = {
  'etc/selinux/config': '# SELINUX=disabled\nSELINUX=enforcing\nSELINUXTYPE=targeted\n',
  'etc/selinux/targeted/contexts/files/file_contexts': '',
  'usr/sbin/setfiles': `#!/bin/sh\n${record}\n`
}
/** A boot loader entry as the image came with it. */
const entryOf = (kernel: string) =>
  `title Rocky (${kernel})\nlinux /vmlinuz-${kernel}\ninitrd /initramfs-${kernel}.img $tuned_initrd /ucode\n` +
  'options root=UUID=old ro rhgb root=svc\ngrub_class rocky'

for (const shell of shells) {
  // In the other shell "each part of the step" and "signed loaders that came with the image" show the same.
  if (everyCase(shell))
    t.test(`GRUB goes to the disk under BIOS, ${shell}`, async t => {
      const done = await install(t, whole(shell, grubImage('grub2')))
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
      // The image has no boot loader entries.
      t.match(done.machine.read('etc/default/grub'), '\nGRUB_ENABLE_BLSCFG=false\n')
      t.notOk(existsSync(done.machine.image('etc/kernel/cmdline')))
    })

  t.test(`signed loaders that came with the image are used under EFI, ${shell}`, async t => {
    const suffix = process.arch === 'arm64' ? 'aa64' : 'x64'
    const vendor = 'boot/efi/EFI/rocky'
    const files = {
      [`${vendor}/shim${suffix}.efi`]: 'shim',
      [`${vendor}/grub${suffix}.efi`]: 'grub',
      [`boot/efi/EFI/BOOT/fb${suffix}.efi`]: 'fallback',
      [`boot/efi/EFI/BOOT/BOOT${suffix}.EFI`]: 'old',
      // The EFI system partition is a file system of its own.
      'usr/sbin/grub2-mkconfig': '#!/bin/sh\ncp -r /boot/efi /esp\n'
    }
    const done = await install(t, underEfi(plan(shell, grubImage('grub2', '', files))))
    completed(t, done)
    const { machine } = done
    t.notOk(existsSync(machine.image('calls')), 'grub2-install was not asked')
    t.match(machine.read('etc/fstab'), /^# svc begin\nUUID=1111-2222 \/ tmpfs defaults 0 1\n/m)
    const esp = { [`BOOT${suffix}.EFI`]: 'shim', [`grub${suffix}.efi`]: 'grub' }
    t.strictSame(readdirSync(machine.image('esp/EFI/BOOT')).sort(), Object.keys(esp).sort())
    for (const [name, content] of Object.entries(esp)) t.equal(machine.read(`esp/EFI/BOOT/${name}`), content)
    t.equal(
      machine.read('esp/EFI/rocky/grub.cfg'),
      'search --no-floppy --fs-uuid --set=dev 1111-2222\nset prefix=($dev)/boot/grub2\n' +
        'export $prefix\nconfigfile $prefix/grub.cfg\n'
    )
  })

  t.test(`signed loaders of Debian's packages go to the EFI partition, ${shell}`, async t => {
    const arm = process.arch === 'arm64'
    const [suffix, target] = arm ? ['aa64', 'arm64-efi'] : ['x64', 'x86_64-efi']
    const shim = `usr/lib/shim/shim${suffix}.efi.signed`
    const files: Record<string, string> = {
      // Ubuntu's is a link.
      [shim]: `-> shim${suffix}.efi.signed.latest`,
      [`${shim}.latest`]: 'shim',
      [`usr/lib/shim/mm${suffix}.efi.signed`]: 'manager',
      [`usr/lib/grub/${target}-signed/grub${suffix}.efi.signed`]: 'MZ\0\xe4(hd0)/EFI/ubuntu\0 /EFI/other\0',
      'usr/sbin/grub-mkconfig': '#!/bin/sh\ncp -r /boot/efi /esp\n'
    }
    const done = await install(t, underEfi(plan(shell, grubImage('grub', '', files))))
    completed(t, done)
    const { machine } = done
    t.notOk(existsSync(machine.image('calls')), 'grub-install was not asked')
    t.match(done.run.output, /svc: the boot loader is shim and GRUB as the image's distribution signed them/)
    for (const [name, content] of [
      [`BOOT/BOOT${suffix}.EFI`, 'shim'],
      [`BOOT/grub${suffix}.efi`, files[`usr/lib/grub/${target}-signed/grub${suffix}.efi.signed`]],
      [`BOOT/mm${suffix}.efi`, 'manager'],
      [
        'ubuntu/grub.cfg',
        'search --no-floppy --fs-uuid --set=dev 1111-2222\nset prefix=($dev)/boot/grub\n' +
          'export $prefix\nconfigfile $prefix/grub.cfg\n'
      ]
    ] as const)
      t.equal(machine.read(`esp/EFI/${name}`), content, name)
  })

  if (!everyCase(shell)) {
    t.test(`each part of the step, ${shell}`, async t => {
      const files = {
        'etc/fstab': 'LABEL=root / ext4 noatime 0 1\nUUID=other /boot/efi vfat umask=0077 0 1\n',
        'usr/lib/modules/6.1/modules.dep': '',
        'usr/bin/dracut': `#!/bin/sh\n${record}\n`,
        'boot/loader/entries/0a1b-6.1.conf': entryOf('6.1'),
        ...selinux
      }
      const done = await install(t, plan(shell, grubImage('grub2', '', files)))
      completed(t, done)
      t.strictSame(done.machine.read('calls').match(/(?<=\/usr\/s?bin\/)[\w-]+/g), [
        'dracut',
        'grub2-install',
        'grub2-mkconfig',
        'setfiles'
      ])
      t.match(
        done.machine.read('calls'),
        `/usr/sbin/grub2-install --target=i386-pc /dev/fake\n${allMounted}` +
          `/usr/sbin/grub2-mkconfig -o /boot/grub2/grub.cfg\n${allMounted}`
      )
      t.match(done.machine.read('etc/default/grub'), `GRUB_CMDLINE_LINUX='console=ttyS0 it'\\''s'`)
      t.equal(
        done.machine.read('etc/fstab'),
        'LABEL=root / ext4 noatime 0 1\n# svc: not on this machine: UUID=other /boot/efi vfat umask=0077 0 1\n' +
          '# svc begin\n/dev/fake2 /boot/efi tmpfs defaults 0 2\n# svc end\n'
      )
      t.match(
        done.machine.read('boot/loader/entries/0a1b-6.1.conf'),
        "options root=UUID=1111-2222 ro console=ttyS0 it's\n"
      )
      t.notMatch(done.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
    })
    continue
  }

  t.test(`GRUB goes to the EFI system partition under EFI, ${shell}`, async t => {
    const done = await install(t, underEfi(plan(shell, grubImage('grub'))))
    completed(t, done)
    t.match(
      done.machine.read('calls'),
      /^\/usr\/sbin\/grub-install --target=(x86_64|arm64)-efi --efi-directory=\/boot\/efi --removable --no-nvram --force\n/
    )
    // rules 4.31
    t.match(done.run.output, /no entry is made in the boot list of the firmware/)
    t.notMatch(done.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
  })

  t.test(`fstab keeps what is true on this machine, ${shell}`, async t => {
    const fstab = [
      '# <file system> <mount point>',
      'LABEL=root / ext4 noatime,errors=remount-ro 0 1',
      'UUID=other /boot/efi vfat umask=0077 0 1',
      'PARTLABEL=swap none swap sw 0 0',
      'UUID=gone\t/home  xfs defaults 0 0',
      '/dev/sdz1 /data ext4 defaults 0 0',
      '* ? $(touch /pwned) [a-z]',
      'tmpfs /tmp tmpfs size=1G 0 0',
      'server:/export /export nfs defaults 0 0',
      '# svc begin',
      'UUID=old / ext4 defaults 0 1',
      '# svc end'
    ]
    const done = await install(
      t,
      plan(shell, grubImage('grub', '', { 'etc/fstab': `${fstab.join('\n')}\n` }))
    )
    completed(t, done)
    t.strictSame(done.machine.read('etc/fstab').split('\n'), [
      ...fstab.slice(0, 2),
      `# svc: not on this machine: ${fstab[2]}`,
      fstab[3],
      `# svc: not on this machine: ${fstab[4]}`,
      `# svc: not on this machine: ${fstab[5]}`,
      ...fstab.slice(6, 9),
      '# svc begin',
      '/dev/fake2 /boot/efi tmpfs defaults 0 2',
      '# svc end',
      ''
    ])
    const another = grubImage('grub', '', { 'etc/fstab': 'PARTLABEL=swap / ext4 defaults 0 1' })
    const moved = await install(t, plan(shell, another))
    completed(t, moved)
    t.match(
      moved.machine.read('etc/fstab'),
      /^# svc: another device here: PARTLABEL=swap \/ .*\n# svc begin\nUUID=1111-2222 \/ /
    )
  })

  t.test(`the initramfs is made anew on the node, for its disk, ${shell}`, async t => {
    const kernels = {
      'boot/vmlinuz-5.10': '',
      'usr/lib/modules/6.1/modules.dep': '',
      'lib/modules/5.10/x': ''
    }
    const debian = { ...kernels, 'usr/sbin/update-initramfs': `#!/bin/sh\n${record}\n` }
    const done = await install(t, plan(shell, grubImage('grub', '', { ...debian, 'boot/vmlinuz-4.19': '' })))
    completed(t, done)
    t.strictSame(
      done.machine.read('calls').split(allMounted).slice(0, 2),
      ['5.10', '6.1'].map(version => `/usr/sbin/update-initramfs -c -k ${version}\n`)
    )
    t.match(done.run.output, /kernel 4\.19 stays as it is: the image holds no modules/)
    const names = { 'boot/initrd-5.10': '', 'boot/initrd.img-5.10.old': '' }
    const dracut = (text: string) => grubImage('grub2', '', { ...kernels, ...names, 'usr/bin/dracut': text })
    const redhat = await install(t, plan(shell, dracut(`#!/bin/sh\n${record}\n`)))
    completed(t, redhat)
    t.match(
      redhat.machine.read('calls'),
      /^\/usr\/bin\/dracut --quiet --force --no-hostonly \/boot\/initrd-5\.10 5\.10\n.* \/boot\/initramfs-6\.1\.img 6\.1\n/
    )
    failed(t, await install(t, plan(shell, dracut('#!/bin/sh\nexit 1\n'))), 'bootloader', /dracut failed/)
  })

  t.test(
    `the kernel of the image is booted from the disk, with the initramfs that was packed, ${shell}`,
    async t => {
      const versions = ['6.1.0-9', '6.1.0-10', '6.11.0-9']
      const kernels = Object.fromEntries(
        versions.flatMap(version => [
          [`boot/vmlinuz-${version}`, ''],
          [`boot/initrd.img-${version}`, 'packed'],
          [`usr/lib/modules/${version}/modules.dep`, '']
        ])
      )
      const entries = versions
        .map(
          v => `  menuentry 'Debian ${v}' --class os $menuentry_id_option 'gnulinux-${v}-advanced-1111' {\n`
        )
        .join('')
      const debian = (more: Record<string, string> = {}) =>
        grubImage('grub', '', {
          ...kernels,
          'usr/sbin/update-initramfs': `#!/bin/sh\n${record}\n`,
          'etc/cfg': `submenu 'More' $menuentry_id_option 'gnulinux-advanced-1111' {\n${entries}}\n`,
          'usr/sbin/grub-mkconfig': `#!/bin/sh\n${record}\ncat /etc/cfg > "$2"\n`,
          ...more
        })
      const run = async (files: Record<string, string> = {}, more: object = {}, by = plan) => {
        const made = by(shell, debian(files))
        const done = await install(t, {
          ...made,
          data: {
            ...made.data,
            kernelversion: '6.1.0-9',
            initrdfile: 'compute-0123456789ab-initrd.img-6.1.0-9',
            ...more
          }
        })
        completed(t, done)
        const calls = done.machine.read('calls').split('\n')
        return { ...done, built: calls.flatMap(line => line.match(/update-initramfs -c -k (.*)/)?.[1] ?? []) }
      }
      const default_ = "\nGRUB_DEFAULT='gnulinux-advanced-1111>gnulinux-6.1.0-9-advanced-1111'\n"
      // It is compared with the time of the unpacking.
      const usual = await run({}, {}, unpacked)
      t.strictSame(usual.built, [])
      t.match(usual.run.output, 'the initramfs of kernel 6.1.0-9 is the one that came with the image')
      t.match(usual.machine.read('etc/default/grub'), default_)
      t.match(usual.machine.read('etc/default/grub'), "GRUB_CMDLINE_LINUX='console")
      t.equal(
        usual.machine.read('calls').match(/grub-mkconfig/g)?.length,
        2,
        'the entries are there before the default'
      )

      // Where the default is written has nothing to do with what is built.
      const more = await run({ 'etc/default/grub.d/x.cfg': '' }, { initrdfile: 'own.img' })
      t.match(`\n${more.machine.read('etc/default/grub.d/zz-svc-default.cfg')}`, default_)
      t.strictSame(more.built, ['6.1.0-9'], 'not the one that was packed')
      const flat = await run({ 'etc/cfg': entries, 'boot/initrd.img-6.1.0-9': '' })
      t.match(flat.machine.read('etc/default/grub'), "\nGRUB_DEFAULT='gnulinux-6.1.0-9-advanced-1111'\n")
      t.strictSame(flat.built, ['6.1.0-9'], 'for the kernel in force alone')
      t.strictSame(
        (await run({ 'sbin/logsave': '' })).built,
        ['6.1.0-9'],
        'one of an older svcd cannot check a disk'
      )
      const changed = base64(
        `${tools}; sleep 1; mkdir -p $_SYSTEMROOT/etc/modprobe.d; echo x > $_SYSTEMROOT/etc/modprobe.d/x`
      )
      t.strictSame(
        (await run({}, { postscript: changed }, unpacked)).built,
        ['6.1.0-9'],
        'a script has changed what is in it'
      )
      const none = await run({}, { kernelversion: '6.9' })
      t.strictSame(none.built.sort(), [...versions].sort())
      t.match(none.run.output, 'GRUB has no entry of kernel 6.9: it boots the newest one')

      const entry = (v: string) => `title R\nlinux /vmlinuz-${v}\ninitrd /initramfs-${v}.img\noptions ro\n`
      const rocky = grubImage('grub2', '', {
        ...Object.fromEntries(versions.map(v => [`boot/loader/entries/0a1b-${v}.conf`, entry(v)])),
        ...kernels,
        'etc/default/grub': 'GRUB_DEFAULT=saved\n'
      })
      const made = plan(shell, rocky)
      const bls = await install(t, { ...made, data: { ...made.data, kernelversion: '6.1.0-10' } })
      completed(t, bls)
      t.match(bls.machine.read('etc/default/grub'), "\nGRUB_DEFAULT='0a1b-6.1.0-10'\n")
      const container = grubImage('grub', '', { 'usr/lib/modules/6.1.0-9/vmlinuz': 'kernel' })
      const alone = plan(shell, container, 'rm $_SYSTEMROOT/boot/vmlinuz-6.1')
      const copied = await install(t, { ...alone, data: { ...alone.data, kernelversion: '6.1.0-9' } })
      t.equal(copied.machine.read('boot/vmlinuz-6.1.0-9'), 'kernel', 'GRUB looks in /boot alone')
      completed(t, copied)
    }
  )

  t.test(`boot loader entries get this machine's root and options, ${shell}`, async t => {
    const files = {
      'boot/loader/entries/0a1b-5.14.conf': entryOf('5.14'),
      'boot/loader/entries/a b $(touch pwned).conf': entryOf('4.18'),
      'boot/loader/entries/link.conf': '-> /svctmp/token'
    }
    const done = await install(t, plan(shell, grubImage('grub2', '', files)))
    completed(t, done)
    const options = "root=UUID=1111-2222 ro console=ttyS0 it's"
    for (const [name, kernel] of [
      ['0a1b-5.14', '5.14'],
      ['a b $(touch pwned)', '4.18']
    ])
      t.equal(
        done.machine.read(`boot/loader/entries/${name}.conf`),
        `title Rocky (${kernel})\nlinux /boot/vmlinuz-${kernel}\n` +
          `initrd /boot/initramfs-${kernel}.img $tuned_initrd /boot/ucode\noptions ${options}\ngrub_class rocky\n`
      )
    t.equal(done.machine.read('etc/kernel/cmdline'), `${options}\n`)
    t.notMatch(done.machine.read('etc/default/grub'), 'BLSCFG')
    t.notOk(done.machine.has('pwned'))
  })

  t.test(`SELinux labels are set at the end, ${shell}`, async t => {
    const done = await install(t, plan(shell, grubImage('grub', '', selinux)))
    completed(t, done)
    t.match(
      done.machine.read('calls'),
      /grub-mkconfig.*\n.*setfiles -m -e \/dev .* \/etc\/selinux\/targeted\/contexts\/files\/file_contexts \/\n\/dev \/proc .*$/
    )
    t.notMatch(done.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
    t.ok(done.controller.states.includes('installer.labels'))
    for (const config of [
      'SELINUX=disabled\nSELINUXTYPE=targeted',
      'SELINUXTYPE=../../tmp',
      'SELINUXTYPE=mls'
    ]) {
      const image = grubImage('grub', '', { ...selinux, 'etc/selinux/config': config })
      // Without the boot loader setfiles is the only program that could be called.
      const unlabelled = await install(t, without(plan(shell, image), 'bootloader'))
      completed(t, unlabelled)
      t.notOk(unlabelled.controller.states.includes('installer.bootloader'))
      t.notOk(existsSync(unlabelled.machine.image('calls')))
    }
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

t.test(
  'options and settings that name a disk of another machine are taken out, and no other ones',
  async t => {
    const options =
      'root=/dev/vda1 quiet rd.luks.root=a my-root=b systemd.root=c resume=UUID=1  rd.lvm.lv=x/y no.rd.lvm.lv=z rootflags=q'
    const kept = ' quiet rd.luks.root=a my-root=b systemd.root=c    no.rd.lvm.lv=z '
    const image = grubImage('grub', '', {
      'etc/default/grub': `GRUB_CMDLINE_LINUX_DEFAULT="${options}"\nGRUB_CMDLINE_LINUX=root=/dev/sda1\n# root=/dev/sdb\n`,
      'etc/default/grub.d/50-site.cfg': `GRUB_CMDLINE_LINUX='${options}'\n`,
      // Debian's cloud image has it.
      'etc/default/grub.d/40-force-partuuid.cfg': "GRUB_FORCE_PARTUUID='old'\n"
    })
    const done = await install(t, plan('ash', image))
    completed(t, done)
    t.equal(
      done.machine.read('etc/default/grub'),
      `GRUB_CMDLINE_LINUX_DEFAULT="${kept}"\nGRUB_CMDLINE_LINUX=\n# root=/dev/sdb\n`
    )
    t.equal(done.machine.read('etc/default/grub.d/50-site.cfg'), `GRUB_CMDLINE_LINUX='${kept}'\n`)
    t.equal(
      done.machine.read('etc/default/grub.d/zz-svc.cfg'),
      "GRUB_CMDLINE_LINUX='console=ttyS0 it'\\''s'\n" +
        'GRUB_TERMINAL_OUTPUT="${GRUB_TERMINAL_OUTPUT:-console}"\nGRUB_FORCE_PARTUUID=\'\'\n'
    )
  }
)

t.test('what cannot get a boot loader', async t => {
  const grub = grubImage('grub')
  const memory = await install(t, {
    ...whole('ash', grub),
    without: ['udevadm'],
    data: { localinstall: true }
  })
  failed(t, memory, 'partscript', /localinstall needs a partscript/)
  t.notOk(memory.controller.gets().includes('/files/rocky9.tar.gz'), 'nothing was downloaded for it')
  const ash = { shell: 'ash', prepare: disk } as const
  const tmpfs = placed(ash, grub, 'mount -t tmpfs memory /sysroot')
  failed(t, await install(t, tmpfs), 'bootloader', /not on a disk/)
  const bare = await install(t, plan('ash', packImage({ 'usr/sbin/grub-install': '#!/bin/sh' })))
  failed(t, bare, 'bootloader', /no kernel/)
  const noEsp = await install(t, underEfi(placed(ash, grub, 'mount -t tmpfs /dev/fake1 /sysroot')))
  failed(t, noEsp, 'bootloader', /no EFI system partition/)
})

/** The boot loader's step alone, by ash. */
const bootloaderOf = (
  image: Buffer,
  mounts: string,
  prepare: (machine: InstallingNode) => void,
  edit = (script: string) => script
): Plan => {
  const shelled = (machine: InstallingNode) => {
    machine.write('busybox', busybox, 0o755)
    prepare(machine)
  }
  const plan: Plan = { shell: 'ash', data, edit, prepare: shelled }
  return without(inPlace(plan, image, mounts, 'download', 'unpack', 'network'), 'inventory')
}

/** A block device in sysfs: what it lies on, the disk that it is a partition of, and other files. */
interface Block {
  readonly on?: readonly string[]
  readonly of?: string
  readonly files?: Readonly<Record<string, string>>
}

/** Writes devices to sysfs, and the file systems of btrfs with their devices. */
function sysfs(
  machine: InstallingNode,
  blocks: Readonly<Record<string, Block>>,
  btrfs: readonly string[] = []
): void {
  const place = (name: string) => {
    const of = blocks[name]?.of
    return of === undefined ? `sys/devices/${name}` : `sys/devices/${of}/${name}`
  }
  machine.mkdir('sys/class/block', 'sys/fs/btrfs/1111/devices')
  for (const [name, { on = [], of, files = {} }] of Object.entries(blocks)) {
    const at = place(name)
    machine.mkdir(`${at}/slaves`)
    for (const [file, text] of Object.entries({ ...files, ...(of ? { partition: '1\n' } : {}) }))
      machine.write(`${at}/${file}`, text)
    for (const lower of on) symlinkSync(`/${place(lower)}`, join(machine.root, at, 'slaves', lower))
    symlinkSync(`/${at}`, join(machine.root, 'sys/class/block', name))
  }
  for (const name of btrfs)
    symlinkSync(`/${place(name)}`, join(machine.root, 'sys/fs/btrfs/1111/devices', name))
}

const twoDisks: Readonly<Record<string, Block>> = {
  sda: {},
  sda1: { of: 'sda' },
  sda2: { of: 'sda' },
  nvme0n1: {},
  nvme0n1p1: { of: 'nvme0n1' },
  nvme0n1p2: { of: 'nvme0n1' },
  sdz: {}
}
const array: Block = { on: ['sda2', 'nvme0n1p2'], files: { 'md/level': 'raid1\n' } }
const mapping = (name: string, uuid: string, ...on: string[]): Block => ({
  on,
  files: { 'dm/name': `${name}\n`, 'dm/uuid': `${uuid}\n` }
})
/** The source of the root file system, the devices, and the disks that get a boot loader. */
const roots: Readonly<
  Record<
    string,
    readonly [
      source: string,
      blocks: Readonly<Record<string, Block>>,
      disks: readonly string[],
      needs?: readonly string[]
    ]
  >
> = {
  'a partition': ['/dev/sda2', twoDisks, ['sda']],
  'a whole disk': ['/dev/sdz', twoDisks, ['sdz']],
  'RAID 1': ['/dev/md0', { ...twoDisks, md0: array }, ['nvme0n1', 'sda'], ['mdadm']],
  'a partition of RAID 1': [
    '/dev/md0p1',
    { ...twoDisks, md0: array, md0p1: { of: 'md0' } },
    ['nvme0n1', 'sda'],
    ['mdadm']
  ],
  'a logical volume on RAID 1': [
    '/dev/mapper/system-root',
    { ...twoDisks, md0: array, 'dm-0': mapping('system-root', 'LVM-1', 'md0') },
    ['nvme0n1', 'sda'],
    ['mdadm', 'lvm']
  ],
  'a logical volume on two disks': [
    '/dev/mapper/system-root',
    { ...twoDisks, 'dm-7': mapping('system-root', 'LVM-1', 'sda2', 'nvme0n1p2') },
    ['nvme0n1', 'sda'],
    ['lvm']
  ],
  'encryption on a logical volume on RAID 1': [
    '/dev/mapper/secret',
    {
      ...twoDisks,
      md0: array,
      'dm-0': mapping('system-root', 'LVM-1', 'md0'),
      'dm-1': mapping('secret', 'CRYPT-LUKS2-1-secret', 'dm-0')
    },
    ['nvme0n1', 'sda'],
    ['mdadm', 'lvm', 'cryptsetup']
  ],
  'a disk with two paths': [
    '/dev/mapper/mpatha',
    { sdb: {}, sdc: {}, 'dm-0': mapping('mpatha', 'mpath-3600', 'sdb', 'sdc') },
    ['dm-0']
  ],
  'a disk whose name has a slash': [
    '/dev/cciss/c0d0p2',
    { 'cciss!c0d0': {}, 'cciss!c0d0p2': { of: 'cciss!c0d0' } },
    ['cciss/c0d0']
  ],
  'btrfs of two partitions': ['/dev/sda2', twoDisks, ['nvme0n1', 'sda']]
}

for (const [name, [source, blocks, disks, needs = []]] of Object.entries(roots)) {
  // rules 4.31
  const plan = (files: Record<string, string>) =>
    bootloaderOf(grubImage('grub', '', files), `mount -t tmpfs ${source} /sysroot`, machine =>
      sysfs(machine, blocks, name.startsWith('btrfs') ? ['sda2', 'nvme0n1p2'] : [])
    )
  const programs = Object.fromEntries(needs.map(program => [`usr/sbin/${program}`, '#!/bin/sh\n']))

  t.test(`${name}: each disk below it gets a boot loader`, async t => {
    const done = await install(t, plan(programs))
    completed(t, done)
    const installed = [...done.machine.read('calls').matchAll(/grub-install --target=i386-pc (.*)$/gm)]
    t.strictSame(
      installed.map(([, to]) => to),
      disks.map(disk => `/dev/${disk}`)
    )
  })
  // The root that needs most of them is enough for every day.
  for (const lacking of needs.length === 3 || process.env.SVCD_LONG ? needs : [])
    t.test(`${name}: an image without ${lacking} could not start from it`, async t => {
      const rest = Object.fromEntries(
        Object.entries(programs).filter(([path]) => !path.endsWith(`/${lacking}`))
      )
      const done = await install(t, plan(rest))
      failed(t, done, 'bootloader', new RegExp(`the image holds no ${lacking}: its system would not find /`))
    })
}

t.test('under EFI each disk below the root gets the boot loader on its own EFI system partition', async t => {
  const blocks = { ...twoDisks, md0: array }
  const prepare = (machine: InstallingNode) => {
    machine.write('busybox', busybox, 0o755)
    machine.mkdir('sys/firmware/efi')
    sysfs(machine, blocks)
  }
  const files = {
    'usr/sbin/mdadm': '#!/bin/sh\n',
    'usr/sbin/blkid':
      '#!/bin/sh\ncase $* in "-p -s PART_ENTRY_TYPE -o value /dev/nvme0n1p1") echo c12a7328-f81f-11d2-ba4b-00a0c93ec93b ;; esac\n'
  }
  const grub = grubImage(
    'grub',
    'mkdir -p /boot/efi/EFI/BOOT; echo loader > /boot/efi/EFI/BOOT/BOOTX64.EFI',
    files
  )
  const on =
    'mount -t tmpfs /dev/md0 /sysroot; mkdir -p /sysroot/boot/efi; mount -t tmpfs /dev/sda1 /sysroot/boot/efi'
  // The second partition is a directory here, that is mounted in its place.
  const mount =
    'case $1 in /dev/nvme0n1p1) mkdir -p /other; exec /usr/bin/mount --bind /other "$2" ;; esac; exec /usr/bin/mount "$@"'
  const usual = placed({ shell: 'bash', prepare }, grub, on)
  const done = await install(t, { ...usual, programs: { mount } })
  completed(t, done)
  t.equal(done.machine.text('other/EFI/BOOT/BOOTX64.EFI'), 'loader\n')
  t.match(done.run.output, /the boot loader is on \/dev\/nvme0n1p1 too/)
  t.notMatch(done.run.mounts, 'svcrun/esp')
  // rules 4.31
  t.match(
    done.machine.read('etc/fstab'),
    /^\/dev\/sda1 \/boot\/efi tmpfs defaults,nofail,x-systemd\.device-timeout=10s 0 2$/m,
    'the system starts without that disk'
  )

  const unformatted = await install(t, {
    ...usual,
    programs: { mount: mount.replace(/mkdir.*"\$2"/, 'exit 32') }
  })
  completed(t, unformatted)
  t.match(
    unformatted.run.output,
    /warning: .*\/dev\/nvme0n1p1 cannot be mounted: the partscript has to format it/
  )
  t.notMatch(unformatted.run.output, /has no EFI system partition/)

  const none = grubImage('grub', 'mkdir -p /boot/efi/EFI', { ...files, 'usr/sbin/blkid': '#!/bin/sh\n' })
  const alone = await install(t, placed({ shell: 'bash', prepare }, none, on))
  completed(t, alone)
  t.match(alone.run.output, /warning: \/dev\/nvme0n1 has no EFI system partition/)
})

t.test('fstab gets the options of the disk layout, and /tmp may be a file system', async t => {
  const places = ['/srv/a-b ro,nosuid', '/srv/a.b noatime', '/tmp nodev']
  const mounted = ['/srv/a-b', '/srv/a.b', '/tmp', '/srv/c'].map(
    (path, i) => `mkdir -p /sysroot${path}; mount -t tmpfs -o mode=755 /dev/data${i} /sysroot${path}; `
  )
  const lines = `mkdir -p /svcrun/layout; printf '%s\\n' ${places.map(line => `'${line}'`).join(' ')} > /svcrun/layout/options`
  const partscript = base64(`mount -t tmpfs /dev/fake1 /sysroot; ${mounted.join('')}${lines}`)
  const image = grubImage('grub', '', { 'tmp/': '1777' })
  const postscript = base64(`${tools}; stat -c %a /sysroot/tmp > /sysroot/mode`)
  const done = await install(t, { ...unpacked('ash', image), data: { ...options, partscript, postscript } })
  completed(t, done)
  t.equal(done.machine.read('mode'), '1777\n', 'everyone may write to /tmp, as in the image')
  t.match(
    done.machine.read('etc/fstab'),
    '/dev/data0 /srv/a-b tmpfs ro,nosuid 0 2\n/dev/data1 /srv/a.b tmpfs noatime 0 2\n' +
      '/dev/data2 /tmp tmpfs nodev 0 2\n/dev/data3 /srv/c tmpfs defaults 0 2\n'
  )
})

t.test('swap of the partscript has its line in fstab', async t => {
  const blocks = {
    ...twoDisks,
    sda3: { of: 'sda' },
    sdz9: { of: 'sdz' },
    'dm-0': mapping('system-root', 'LVM-1', 'sda2'),
    'dm-1': mapping('system-swap', 'LVM-2', 'sda2')
  }
  const files = {
    'usr/sbin/lvm': '#!/bin/sh\n',
    'usr/sbin/blkid': `#!/bin/sh
case $* in
  '-p -s TYPE -o value /dev/'sda3 | '-p -s TYPE -o value /dev/'sdz9 | '-p -s TYPE -o value /dev/'dm-1) echo swap ;;
  '-p -s TYPE '*) echo ext4 ;;
  '-s UUID -o value /dev/'sda3) echo 3333 ;;
  '-s UUID -o value /dev/'dm-1) echo 4444 ;;
esac
`
  }
  const prepare = (machine: InstallingNode) => {
    // Swap that is on, as the kernel of this machine would tell.
    machine.write('swaps', 'Filename Type Size\n/dev/zram0 partition 9\n/sysroot/swapfile file 9\n')
    sysfs(machine, blocks)
  }
  const swapLines = async (fstab: string) => {
    const image = grubImage('grub', '', { ...files, 'etc/fstab': fstab })
    const edit = (script: string) => script.replaceAll('/proc/swaps', '/swaps')
    const mounts = 'mount -t tmpfs /dev/mapper/system-root /sysroot'
    const done = await install(t, bootloaderOf(image, mounts, prepare, edit))
    completed(t, done)
    return done.machine
      .read('etc/fstab')
      .split('\n')
      .filter(line => / swap /.test(line))
  }
  const [file, partition, volume] = [
    '/swapfile none swap sw 0 0',
    'UUID=3333 none swap sw 0 0',
    'UUID=4444 none swap sw 0 0'
  ]
  t.strictSame(
    (await swapLines('# none\n')).sort(),
    [file, partition, volume].sort(),
    'not that of another disk'
  )
  const kept = 'PARTLABEL=swap none swap sw,pri=5 0 0'
  files['usr/sbin/findfs' as keyof typeof files] = '#!/bin/sh\n[ "$1" = PARTLABEL=swap ] && echo /dev/sda3\n'
  t.strictSame(
    (await swapLines(`${kept}\n`)).sort(),
    [kept, file, volume].sort(),
    'a line of the image stays, and is not doubled'
  )
})
