import { chmod, copyFile, mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import t from 'tap'
import type { InstallBmc } from '../../lib/boot/install-data.js'
import { busybox } from '../machine/initramfs.js'
import { startChild } from '../support/child.js'
import { freePort } from '../support/free-port.js'
import { installBmc, installData } from '../support/install-data.js'
import { installScript } from '../support/install-script.js'
import { debianKernel, type Kernel } from '../support/kernel.js'
import { checkout, locate, output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { emulated } from '../support/virtual-machine.js'

const admin = { user: 'admin', password: 'factory' }
const operator = { user: 'operator', password: `it's a # "word"` }
const modules = ['ipmi_msghandler', 'ipmi_devintf', 'ipmi_si']

const init = `#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /svctmp
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1
for module in ${modules.join(' ')}; do insmod "/modules/$module.ko"; done
sh /setup.sh
echo "STAGE bmc_setup ended with $?"
poweroff -f
`

/** The shipped install script, of which only the step that sets up the BMC is run. */
function setupScript(bmc: InstallBmc): string {
  const script = installScript(installData({ setupbmc: true, bmc }))
  const [functions, rest] = script.split('\ninstall_node\n')
  if (functions === undefined || rest !== '') throw new Error('the script does not end with install_node')
  return `${functions}\nbmc_setup\n`
}

/** An initramfs with busybox, the real ipmitool and the drivers of a BMC's system interface. */
async function buildInitramfs(directory: string, kernel: Kernel, script: string): Promise<string> {
  const root = join(directory, 'root')
  const add = async (from: string, to: string) => {
    await mkdir(dirname(join(root, to)), { recursive: true })
    await copyFile(from, join(root, to))
    await chmod(join(root, to), 0o755)
  }
  const ipmitool = locate('ipmitool') ?? ''
  await add(busybox, 'bin/busybox')
  await add(ipmitool, 'bin/ipmitool')
  for (const [library] of (await output('ldd', [ipmitool])).matchAll(/\/\S+/g)) await add(library, library)
  // Without its list of makers ipmitool does not start.
  await add('/usr/share/misc/enterprise-numbers.txt', 'usr/share/misc/enterprise-numbers.txt')
  for (const module of modules)
    await add(join(kernel.modules, `drivers/char/ipmi/${module}.ko`), `modules/${module}.ko`)
  await writeFile(join(root, 'init'), init, { mode: 0o755 })
  await writeFile(join(root, 'setup.sh'), script)
  const file = join(directory, 'initrd.img')
  const pack = 'cd "$1" && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1 > "$2"'
  await output('sh', ['-c', pack, 'sh', root, file])
  return file
}

t.test('the install script sets up a BMC from inside, and its user logs in from outside', async t => {
  requirePrograms('ipmi_sim', 'ipmitool', 'qemu-system-x86_64', 'cpio', busybox)
  const kernel = await debianKernel(join(checkout, '.cache/kernel-full'), 'linux-image-amd64')
  const directory = scratch(t)
  const [lan, kcs] = [await freePort(), await freePort()]
  await writeFile(
    join(directory, 'lan.conf'),
    `name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 ${lan}
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  serial 15 127.0.0.1 ${kcs} codec VM
  user 1 true "" "test" user 10 none md2 md5 straight
  user 2 true "${admin.user}" "${admin.password}" admin 10 none md2 md5 straight
`
  )
  await writeFile(
    join(directory, 'bmc.emu'),
    'mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n'
  )
  const outside = (who: { user: string; password: string }, ...words: string[]) =>
    output('env', [
      `IPMI_PASSWORD=${who.password}`,
      ...['ipmitool', '-I', 'lanplus', '-C', '3', '-H', '127.0.0.1', '-p', String(lan), '-U', who.user, '-E'],
      ...words
    ])
  const file = (name: string) => join(directory, name)
  const bmc = await startChild(
    ['ipmi_sim', '-c', file('lan.conf'), '-f', file('bmc.emu'), '-s', file('state'), '-n'],
    () =>
      outside(admin, 'mc', 'info').then(
        () => true,
        () => false
      )
  )
  t.teardown(() => bmc.stop())
  await t.rejects(outside(operator, 'mc', 'info'), 'nobody of that name before')

  const wanted = {
    netchannel: 1,
    username: operator.user,
    password: operator.password,
    unmanaged_bmc_users: 'delete',
    vlan: '42'
  } as const
  const initrd = await buildInitramfs(directory, kernel, setupScript(installBmc(wanted)))
  const machine = () =>
    output('qemu-system-x86_64', [
      ...[...emulated, '-m', '512', '-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio'],
      ...[
        '-kernel',
        kernel.image,
        '-initrd',
        initrd,
        '-append',
        'console=ttyS0 quiet panic=-1 no_timer_check'
      ],
      ...['-chardev', `socket,id=kcs,host=127.0.0.1,port=${kcs},reconnect=1`],
      ...['-device', 'ipmi-bmc-extern,id=bmc,chardev=kcs', '-device', 'isa-ipmi-kcs,bmc=bmc']
    ])
  for (const time of ['the first time', 'and again, as on every installation']) {
    const console = await machine()
    t.match(console, 'STAGE bmc_setup ended with 0', time)
    t.match(await outside(operator, 'mc', 'info'), 'Device ID')
    const settings = await outside(operator, 'lan', 'print', '1')
    t.match(settings, /^IP Address Source +: Static/m)
    t.match(settings, /^IP Address +: 10\.148\.0\.1$/m)
    t.match(settings, /^Subnet Mask +: 255\.255\.0\.0$/m)
    t.match(settings, /^Default Gateway IP +: 10\.148\.255\.254$/m)
    t.match(settings, /^802\.1q VLAN ID +: 42$/m)
    const users = await outside(operator, '-c', 'user', 'list', '1')
    t.match(users, /^3,operator,true,true,true,ADMINISTRATOR$/m)
    t.match(users, /^2,,/m, 'the user of the factory is gone')
    await t.rejects(outside(admin, 'mc', 'info'))
    await t.rejects(outside({ ...operator, password: 'another' }, 'mc', 'info'))
  }
})
