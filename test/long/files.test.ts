import { chmod, cp, mkdir, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import t from 'tap'
import { kernelOptions, makeImage } from '../machine/image.js'
import { busybox } from '../machine/initramfs.js'
import { Daemon } from '../support/daemon.js'
import { output, requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'

// A virtual machine installs with its files, runs the system that it has installed, and fetches what the
// admin changes.

const mac = '52:54:00:14:03:01'
const name = 'node001'

/** The first process of the installed system: brings the network up and runs svc-files again and again. */
const system = `#!/bin/sh
PATH=/usr/bin
export PATH
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1
ip link set lo up
ip link set eth0 up
ip address add "$(tr ' ' '\\n' </proc/cmdline | sed -n 's/^svc.ip=//p')" dev eth0
echo "SYSTEM installed: $(cat /etc/time.conf)"
while :; do
  said=$(svc-files 2>&1)
  echo "SYSTEM files $? $(cat /etc/time.conf) $(stat -c '%a' /etc/time.conf) $said"
  sleep 2
done
`

/** What the installed system needs: busybox, curl with its libraries, and its first process. */
async function programs(root: string): Promise<void> {
  for (const directory of ['usr/bin', 'usr/local/sbin', 'var/tmp', 'proc', 'sys', 'dev', 'run', 'etc'])
    await mkdir(join(root, directory), { recursive: true })
  await cp(busybox, join(root, 'usr/bin/busybox'), { dereference: true })
  const applets = (await output(busybox, ['--list'])).split('\n').filter(Boolean)
  for (const applet of applets)
    if (applet !== 'busybox') await symlink('busybox', join(root, 'usr/bin', applet))
  await symlink('usr/bin', join(root, 'bin'))
  await symlink('../local/sbin/svc-files', join(root, 'usr/bin/svc-files'))
  const libraries = (await output('ldd', ['/usr/bin/curl'])).match(/\/\S+/g) ?? []
  for (const file of ['/usr/bin/curl', ...libraries]) {
    await mkdir(dirname(join(root, file)), { recursive: true })
    await cp(file, join(root, file), { dereference: true })
  }
  await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n')
  await writeFile(join(root, 'etc/group'), 'root:x:0:\n')
  await writeFile(join(root, 'usr/bin/system'), system)
  await chmod(join(root, 'usr/bin/system'), 0o755)
}

t.test('a virtual machine installs with its files, and fetches what the admin changes', async t => {
  requirePrograms('curl', 'ldd')
  const directory = scratch(t)
  await programs(join(directory, 'source'))
  await makeImage(join(directory, 'files'), join(directory, 'source'))
  const network = await startNetwork([{ mac, ipaddress: '10.141.0.11' }])
  t.teardown(() => network.close())
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter: network.enter })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', { network: '10.141.0.0/24' })
  await controller.create('osimage', 'test', {
    kernelfile: 'vmlinuz',
    initrdfile: 'initrd.img',
    imagefile: 'image.tar.gz',
    kerneloptions: kernelOptions
  })
  const template = 'time {{ variables.time }} for {{ node }}'
  await controller.create('file', 'time', { path: '/etc/time.conf', mode: '0640', template })
  await controller.create('group', 'compute', {
    osimage: 'test',
    files: ['time'],
    variables: { time: 'one' },
    kerneloptions: 'test.init=/usr/bin/system',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  })
  await controller.create('node', name, {
    group: 'compute',
    macaddr: mac,
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.11' }]
  })

  const change = async (type: string, name: string, fields: object) => {
    const { status } = await controller.request('POST', `/config/${type}/${name}`, {
      config: { [type]: { [name]: fields } }
    })
    t.equal(status, 204, `${type} ${name} is changed`)
  }
  /** What the running node shows, and what the admin does then. */
  const steps: [RegExp, () => Promise<void>][] = [
    [/SYSTEM files 0 time one for node001/, () => change('node', name, { variables: { time: 'two' } })],
    [
      /SYSTEM files 0 time two for node001/,
      () => change('file', 'time', { template: 'broken\n{{ variables.none }}' })
    ],
    [
      /SYSTEM files 1 time two for node001.*file time cannot be rendered: time:2:14/,
      () => change('file', 'time', { template })
    ],
    [/SYSTEM files 0 time two for node001/, () => change('node', name, { variables: { time: null } })]
  ]
  const doing: Promise<void>[] = []
  const run = await runMachine({
    name,
    mac,
    network: { tap: network.tap(mac) },
    enter: network.enter,
    timeLimitMs: 600_000,
    until:
      /SYSTEM files 0 time two[\s\S]*SYSTEM files 1 [\s\S]*SYSTEM files 0 time two[\s\S]*SYSTEM files 0 time one for node001 640/,
    onLine: line => {
      if (steps[0]?.[0].test(line)) doing.push(steps.shift()?.[1]() ?? Promise.resolve())
    }
  })
  await Promise.all(doing)
  const about = { console: tail(run.console) }
  t.match(run.console, /svc: step files/, 'the installation had a step for its files', about)
  t.match(run.console, /SYSTEM installed: time one for node001/, 'the installation placed its file', about)
  t.same(steps, [], 'every change reached the running node', about)
  t.equal((await controller.monitor(name)).state, 'installer.completed')
})
