import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { start } from '../support/child.js'
import { checkout, output, requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { imageTree } from './debian-image.js'
import { debianTree } from './debian-tree.js'

// The installed units and their sandbox allow all this. A Debian with its own systemd, in namespaces of its own,
// installs the package of the last commit. There an image is packed, and rehearsed
// (rules 16.1 to 16.3) by UEFI in memory, and by BIOS and with a TPM onto a disk; and an archive of a container
// image is imported (9.16), packed with a squashfs (4.46), and rehearsed. The image comes from podman's
// storage too.

const minutes = 60_000
const packages = 'systemd-sysv dbus udev kmod iproute2 curl openssh-client procps rsync zstd util-linux'
  .concat(' qemu-system-x86 ovmf swtpm skopeo umoci squashfs-tools cryptsetup-bin')
  .split(' ')
const ofImage = 'fdisk e2fsprogs dosfstools grub-efi-amd64-bin grub-pc-bin grub2-common mdadm cryptsetup-bin'

const setup = `set -e
sed -i 's/^listen = .*/listen = 0.0.0.0:7050/; s/^address =$/address = 10.141.0.1/' /etc/svcd/svcd.ini
sed -i 's,^containers_storage =$,containers_storage = /var/lib/containers/storage,' /etc/svcd/svcd.ini
ip address add 10.141.0.1/24 dev lo
systemctl restart svcd
until curl -sf http://127.0.0.1:7050/version; do sleep 0.2; done
svcctl login admin --stdin </var/lib/svcd/admin-password
svcctl network add cluster network=10.141.0.0/24 gateway=10.141.0.1
svcctl disklayout add whole-disk --shipped
svcctl osimage add debian distribution=debian path=/var/lib/svcd/images/debian kerneloptions='console=ttyS0 panic=-1 no_timer_check'
svcctl osimage pack debian
svcctl osimage import oci-archive:/srv/image.tar imported
own='containers-storage:[overlay@/var/lib/containers/storage+/run/containers/storage]'
skopeo copy --quiet oci-archive:/srv/image.tar "$own"localhost/compute:1
svcctl osimage import containers-storage:localhost/compute:1 stored
cmp /var/lib/svcd/images/imported/etc/os-release /var/lib/svcd/images/stored/etc/os-release
svcctl osimage set imported root_format=squashfs kerneloptions='console=ttyS0 panic=-1 no_timer_check'
svcctl osimage pack imported
for i in 1 2 3; do
  svcctl node add n$i osimage=debian BOOTIF.network=cluster BOOTIF.ipaddress=10.141.0.7$i BOOTIF.macaddress=52:54:00:14:20:0$i
done
svcctl node set n3 osimage=imported
svcctl node set n2 localinstall=yes netboot_once=yes disklayout=whole-disk trust=report
token=$(curl -sS -d "{\\"username\\":\\"admin\\",\\"password\\":\\"$(cat /var/lib/svcd/admin-password)\\"}" http://127.0.0.1:7050/token |
  sed 's/.*"token":"\\([^"]*\\)".*/\\1/')
curl -sSf -H "x-access-tokens: $token" -d '{"firmware":{"mode":"bios"}}' http://127.0.0.1:7050/monitor/inventory/n2
`

/** Makes a container image of a tree, as an archive. */
const archive = `
cd "$1"
umoci init --layout oci
umoci new --image oci:debian
umoci insert --image oci:debian "$2" /
skopeo copy --quiet oci:oci:debian "oci-archive:$3"
rm -r oci
`

t.test('images and rehearsals under the installed units', { timeout: 90 * minutes }, async t => {
  requireRoot()
  requirePrograms('debootstrap', 'dpkg-deb', 'git', 'unshare', 'nsenter', 'setpriv', 'skopeo', 'umoci')
  const directory = scratch(t)
  const [clone, root] = [join(directory, 'clone'), join(directory, 'root')]
  const long = { timeout: 60 * minutes }
  await output('git', ['clone', '-q', checkout, clone], long)
  await output('env', ['--unset=NODE_OPTIONS', 'make', '-C', clone, 'deb'], long)
  await output('cp', ['-a', '-x', await debianTree({ packages }), root], long)
  const [deb = ''] = (await readdir(join(clone, 'out'))).filter(name => name.endsWith('_amd64.deb'))
  await copyFile(join(clone, 'out', deb), join(root, 'root/svcd.deb'))
  await writeFile(join(root, 'root/setup.sh'), setup)
  await mkdir(join(root, 'var/lib/svcd/images'), { recursive: true })
  const image = join(root, 'var/lib/svcd/images/debian')
  await output(
    'cp',
    ['-a', '-x', await imageTree({ tool: 'initramfs-tools', packages: ofImage.split(' ') }), image],
    long
  )
  for (const tree of [root, image]) await rm(join(tree, 'usr/sbin/policy-rc.d'))
  await output('sh', ['-euc', archive, 'sh', directory, image, join(root, 'srv/image.tar')], long)

  const script = join(checkout, 'test/long/package/container.sh')
  const system = start('sh', [script, root], { input: '' })
  t.teardown(async () => {
    await system.kill()
    // Its control groups are empty now, and stay.
    const [cgroups = ''] = (await output('findmnt', ['-nro', 'TARGET', '-t', 'cgroup2'])).split('\n')
    const own = join(cgroups, `svcd-test-${system.pid}`)
    await until(async () => /populated 0/.test(await readFile(join(own, 'cgroup.events'), 'utf8')))
    await output('find', [own, '-depth', '-type', 'd', '-exec', 'rmdir', '{}', '+'])
  })
  // Before systemd it has other children, which end.
  const first = async () => {
    const pid = (await output('pgrep', ['-P', String(system.pid)]).catch(() => '')).trim()
    const name = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '')
    return name === 'systemd\n' ? pid : undefined
  }
  await until(async () => (await first()) !== undefined, 'systemd')
  const pid = (await first()) ?? ''
  const plain = ['env', '-i', 'PATH=/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/root', 'LC_ALL=C.UTF-8']
  const inside = async (...words: string[]) => {
    const { code, stdout, stderr } = await start('nsenter', ['-t', pid, '-a', ...plain, ...words], {
      input: ''
    }).ended
    return { code, text: `${stdout}${stderr}` }
  }
  await until(
    async () => /running|degraded/.test((await inside('systemctl', 'is-system-running')).text),
    'systemd'
  )
  const installed = await inside(
    'env',
    'DEBIAN_FRONTEND=noninteractive',
    'apt-get',
    'install',
    '-y',
    '/root/svcd.deb'
  )
  t.equal(installed.code, 0, installed.text)
  const made = await inside('sh', '/root/setup.sh')
  t.equal(made.code, 0, made.text)

  const rehearsal = inside('svcctl', 'node', 'rehearse', 'n1')
  await until(async () => (await inside('pgrep', '-f', 'tb-size=')).code === 0, 'the machine')
  t.equal((await inside('sh', '-c', 'ps -o user= -p $(pgrep -f tb-size= | head -n 1)')).text, 'svcd\n')
  const units = await inside('systemctl', 'list-units', '--plain', '--no-legend', 'svcd-rehearsal-*')
  t.match(units.text, /^svcd-rehearsal-[0-9a-f]{16}\.service +loaded active running A rehearsal by svcd\n$/)
  const machines = [
    /^n1: .*, uefi, ipxe, .*, no disk$/m,
    /^n2: .*, bios, ipxe, .*, 1 disk\(s\), a TPM$/m,
    /^n3: \d+ s: image imported-\S+\.squashfs/m
  ]
  const ends = [await rehearsal]
  for (const name of ['n2', 'n3']) ends.push(await inside('svcctl', 'node', 'rehearse', name))
  for (const [i, { code, text }] of ends.entries()) {
    t.equal(code, 0, text)
    t.match(text, machines[i])
    t.comment(text)
  }
  const kept = await inside('svcctl', 'osimage', 'show', 'debian')
  t.match(kept.text, /_rehearsed +on [-\d]+ as n2 \(bios\): well/)
  t.equal(
    (
      await inside('sh', '-c', 'ls -d /var/lib/svcd/rehearsal; systemctl list-units -q "svcd-rehearsal-*"')
    ).text.replace(/^ls: .*\n/, ''),
    '',
    'nothing is left'
  )
})
