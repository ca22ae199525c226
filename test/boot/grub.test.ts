import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  copyFileSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import {
  commandLine,
  kernelWords,
  measuredBoot,
  quoted,
  straightCommands
} from '../../lib/boot/grub/script.js'
import { BootTree } from '../../lib/boot/grub/tree.js'
import type { GrubConfigs } from '../../lib/boot/grub-configs.js'
import { Controller } from '../support/controller.js'
import { debianKernel } from '../support/kernel.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

// rules 4.43, 4.45. What GRUB made of these lines was read from the event log of a virtual machine.

const sha256 = (text: string | Buffer) => createHash('sha256').update(text).digest('hex')

t.test('kernel options become words of GRUB, which hands them on as the kernel reads them', async t => {
  const words = kernelWords('console=ttyS0  foo="a b" ds=nocloud-net;s=http://x x$y "q r"')
  t.strictSame(words, ['console=ttyS0', 'foo=a b', 'ds=nocloud-net;s=http://x', 'x$y', 'q r'])
  const line = `linux /svcd/kernel ${words.map(quoted).join(' ')}`
  t.equal(line, "linux /svcd/kernel console=ttyS0 'foo=a b' 'ds=nocloud-net;s=http://x' 'x$y' 'q r'")
  const [read] = straightCommands(line, {}, 'x')
  t.equal(read?.join(' '), 'linux /svcd/kernel console=ttyS0 foo=a b ds=nocloud-net;s=http://x x$y q r')
  t.equal(
    commandLine(read?.slice(1) ?? []),
    '/svcd/kernel console=ttyS0 ds=nocloud-net;s=http://x "foo=a b" x$y "q r"'.replace(
      'ds=nocloud-net;s=http://x "foo=a b"',
      '"foo=a b" ds=nocloud-net;s=http://x'
    )
  )
  for (const odd of ["it's", 'a\\b']) t.throws(() => kernelWords(odd), /GRUB cannot hand on/, odd)
  for (const odd of ['ö', 'a\nb']) t.throws(() => quoted(odd), /does not take/, odd)
})

t.test('every text that is quoted is read as it was', async t => {
  for (const text of ["it's", '"', '$x', '`id`', '#', ';', '', 'a b', '\\', '{{', '${m1}', '*', '!', '~'])
    t.strictSame([...straightCommands(`echo ${quoted(text)}`, {}, 'x')], [['echo', text]], text)
})

t.test('a script that is no plain list of commands is refused, with its line', async t => {
  const wrong = [
    'if true; then boot; fi',
    'for x in a b',
    'set x=1; boot',
    'x=1',
    'linux /k | boot',
    'linux /k $unknown',
    'echo "${unknown}"',
    'linux /*',
    'menuentry a {',
    'function f',
    'source /x',
    "echo 'open"
  ]
  for (const line of wrong)
    t.throws(() => [...straightCommands(`# a comment\n${line}`, {}, 'node.cfg')], /node\.cfg, line 2/, line)
})

const common = {
  path: '/grub/grub.cfg',
  text: `# x
regexp --set=1:m1 --set=2:m2 '^(..):(..)$' "${'$'}{net_default_mac}"
configfile /grub/grub.cfg-01-$m1-$m2-$m3-$m4-$m5-$m6
menuentry 'x' { boot }
`
}
const path = '/grub/grub.cfg-01-52-54-00-15-00-0a'
const of = (text: string) =>
  measuredBoot({
    ...{ server: '10.141.0.1', mac: '52:54:00:15:00:0A'.toLowerCase(), common, node: { path, text } },
    platform: 'x86_64-efi',
    programs: [],
    file: name => (name === '/svcd/k' ? { sha256: sha256('k'), program: 'ab' } : undefined)
  })

t.test('commands and files are measured up to the boot', async t => {
  const { commands, files } = of("echo 'a b'\nlinux /svcd/k 'x=a b'\nboot\nreboot\n")
  t.strictSame(commands, [
    { what: 'grub_cmd', text: '[ -e (tftp,10.141.0.1)/grub/x86_64-efi/grub.cfg ]' },
    { what: 'grub_cmd', text: 'source (tftp,10.141.0.1)/grub/grub.cfg' },
    { what: 'grub_cmd', text: 'regexp --set=1:m1 --set=2:m2 ^(..):(..)$ 52:54:00:15:00:0a' },
    { what: 'grub_cmd', text: `configfile ${path}` },
    { what: 'grub_cmd', text: 'echo a b' },
    { what: 'grub_cmd', text: 'linux /svcd/k x=a b' },
    { what: 'kernel_cmdline', text: '/svcd/k "x=a b"' },
    { what: 'grub_cmd', text: 'boot' }
  ])
  t.strictSame(
    files.map(file => [file.what, file.sha256]),
    [
      ['the common grub.cfg', sha256(common.text)],
      ['the grub.cfg of the node', sha256("echo 'a b'\nlinux /svcd/k 'x=a b'\nboot\nreboot\n")],
      ['the kernel', sha256('k')]
    ]
  )
  t.throws(() => of('linux /other\nboot\n'), /no kernel or initramfs/)
  t.throws(() => of('linux /svcd/k\n'), /has no command boot/)
  t.throws(() => of('if true; then\nboot\n'), /line 1/)
})

t.test('the tree has loaders by name and files by content, for an hour after they were named', async t => {
  const directory = scratch(t)
  const [files, tree] = [join(directory, 'files'), join(directory, 'tree')]
  execFileSync('mkdir', [files])
  const put = (name: string, text: string, mode = 0o644) => writeFileSync(join(files, name), text, { mode })
  put('vmlinuz', 'one')
  put('initrd.img', 'secret', 0o600)
  put('shim', 'shim')
  let now = 0
  const loaders = [
    { name: 'shimx64.efi', from: join(files, 'shim'), install: 'type apt-get install shim-signed' },
    { name: 'mmx64.efi', from: join(files, 'none') },
    { name: 'ipxe.efi', from: join(files, 'link') }
  ]
  symlinkSync('shim', join(files, 'link'))
  const made = new BootTree({ directory: tree, files, loaders, ticks: () => now })
  t.teardown(() => made.close())
  const names = ['vmlinuz', 'initrd.img', 'absent']
  const there = () => readdirSync(join(tree, 'svcd')).sort()
  const contents = (...texts: string[]) => texts.map(sha256).sort()

  t.equal(await made.place(names), true, 'new contents')
  t.strictSame(there(), contents('one', 'secret'))
  t.equal(made.sha256('vmlinuz'), sha256('one'))
  t.equal(made.sha256('absent'), undefined)
  t.equal(readFileSync(join(tree, 'shimx64.efi'), 'utf8'), 'shim')
  t.ok(lstatSync(join(tree, 'ipxe.efi')).isFile(), 'a file, where a link was named')
  t.equal(
    statSync(join(tree, 'svcd', sha256('one'))).ino,
    statSync(join(files, 'vmlinuz')).ino,
    'a hard link'
  )
  t.equal(statSync(join(tree, 'svcd', sha256('secret'))).mode & 0o777, 0o644, 'a copy that others may read')
  t.equal(await made.place(names), false, 'nothing changed')

  rmSync(join(files, 'vmlinuz'))
  put('vmlinuz', 'two')
  t.equal(await made.place(names), true)
  t.equal(made.sha256('vmlinuz'), sha256('two'))
  t.ok(there().includes(sha256('one')), 'a boot may still ask for the kernel that was replaced')
  now += 3_500_000
  await made.place(names)
  t.ok(there().includes(sha256('two')))
  put('vmlinuz', 'written over in place')
  await made.place(names)
  t.notOk(there().includes(sha256('two')), 'its name would be a lie')
  await made.place([])
  t.ok(there().includes(sha256('written over in place')), 'a boot may still ask for it')
  now += 3_700_000
  await made.place([])
  t.strictSame(there(), [], 'after an hour nothing does')

  rmSync(join(files, 'shim'))
  await t.rejects(made.place([]), { message: /shim is missing: type apt-get install shim-signed/ })
})

// rules 4.42, 4.43, 4.44
t.test(
  'the loaders are served over http, and a node that cannot boot has a configuration with the reason',
  async t => {
    const directory = scratch(t)
    for (const name of ['shim', 'grub', 'undionly.kpxe', 'shimx64.efi'])
      writeFileSync(join(directory, name), name)
    const c = await Controller.start(
      t,
      ...['tftp.server=tftpd-hpa', `tftp.directory=${join(directory, 'tree')}`, 'tftp.control=true'],
      ...[`tftp.shim_x64=${join(directory, 'shim')}`, `tftp.grub_x64=${join(directory, 'grub')}`],
      ...[`boot.ipxe_directory=${directory}`, 'boot.efi_x64=shimx64.efi']
    )
    await c.post('/config/network/cluster', { network: '10.141.0.0/16', loader: 'grub' })
    const interfaces = [{ interface: 'BOOTIF', network: 'cluster', macaddress: '52:54:00:00:00:01' }]
    await c.post('/config/node/n1', { interfaces })
    const { status, body } = await c.get('/config/tftp/_preview')
    t.equal(status, 200, JSON.stringify(body))
    t.match(JSON.stringify(body), /grub\.cfg-01-52-54-00-00-00-01/)
    t.match(JSON.stringify(body), /node n1 has no OS image/)
    t.equal((await c.get('/boot/shimx64.efi')).status, 200)
    t.equal((await c.get('/boot/mmx64.efi')).status, 404)
    t.equal(readFileSync(join(directory, 'tree/undionly.kpxe'), 'utf8'), 'undionly.kpxe', 'iPXE for others')
    t.equal(readFileSync(join(directory, 'tree/shimx64.efi'), 'utf8'), 'shim', 'of two the signed one')
  }
)

// rules 4.43, 4.45
t.test('measurements are those of the configurations in force, one for each MAC', async t => {
  const directory = scratch(t)
  const at = (name: string) => join(directory, name)
  const { image } = await debianKernel()
  mkdirSync(at('files'))
  for (const name of ['shim', 'grub', 'files/vmlinuz']) copyFileSync(image, at(name))
  for (const name of ['initrd.img', 'image.tar.gz']) writeFileSync(at(`files/${name}`), name)
  writeFileSync(at('check'), '#!/bin/sh\n! [ -e "$(dirname "$0")/refuse" ]\n', { mode: 0o755 })
  const c = await Controller.start(
    t,
    ...['tftp.server=tftpd-hpa', `tftp.directory=${at('tree')}`, 'tftp.control=true', 'tftp.gather=0s'],
    ...[`tftp.shim_x64=${at('shim')}`, `tftp.grub_x64=${at('grub')}`, `tftp.check=${at('check')}`],
    ...[`paths.files=${at('files')}`, 'dhcp.tftp_server=10.141.0.1']
  )
  const range = { dhcp_range_begin: '10.141.0.1', dhcp_range_end: '10.141.0.9' }
  await c.post('/config/network/cluster', { network: '10.141.0.0/16', loader: 'grub', dhcp: true, ...range })
  const files = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'image.tar.gz' }
  await c.post('/config/osimage/test', files)
  const interfaces = ['BOOTIF', 'eth1'].map((name, i) => ({
    ...{ interface: name, network: 'cluster', macaddress: `52:54:00:00:00:0${i + 1}` }
  }))
  t.match(await c.post('/config/node/n1', { osimage: 'test', interfaces }), { status: 201 })
  const { services, boot } = c.daemon
  const tftp = services.of('tftp')
  const lines = () => {
    const found = boot.measured('n1')
    return typeof found === 'string'
      ? found
      : found.map(({ commands }) => commands.find(({ what }) => what === 'kernel_cmdline')?.text ?? '')
  }
  const optionsOf = () => [lines()].flat().map(line => / quiet=\d/.exec(line)?.[0])
  await tftp?.applied()
  await until(() => Array.isArray(lines()), lines)
  const both = boot.measured('n1')
  t.strictSame(
    Array.isArray(both) && both.map(({ files: read }) => read[1]?.name),
    ['01', '02'].map(last => `/grub/grub.cfg-01-52-54-00-00-00-${last}`)
  )
  t.strictSame(Array.isArray(both) && both[0]?.programs.map(({ name }) => name), [
    'shimx64.efi',
    'grubx64.efi',
    'vmlinuz'
  ])

  const arm = await Controller.start(
    t,
    ...['tftp.server=tftpd-hpa', `tftp.directory=${at('arm')}`, 'tftp.control=true', 'tftp.gather=0s'],
    ...[`tftp.shim_x64=${at('shim')}`, `tftp.grub_x64=${at('grub')}`, `paths.files=${at('files')}`],
    ...[`tftp.shim_arm64=${at('shim')}`, `tftp.grub_arm64=${at('grub')}`, 'dhcp.tftp_server=10.141.0.1']
  )
  await arm.post('/config/network/cluster', { network: '10.141.0.0/16', loader: 'grub' })
  await arm.post('/config/osimage/test', files)
  await arm.post('/config/node/n1', { osimage: 'test', interfaces: interfaces.slice(0, 1) })
  await until(() => Array.isArray(arm.daemon.boot.measured('n1')))
  t.match(arm.daemon.boot.measured('n1'), [
    { programs: [{ name: 'shimx64.efi' }, { name: 'grubx64.efi' }, { name: 'vmlinuz' }] },
    {
      commands: [{ text: '[ -e (tftp,10.141.0.1)/grub/arm64-efi/grub.cfg ]' }],
      programs: [{ name: 'shimaa64.efi' }, { name: 'grubaa64.efi' }, { name: 'vmlinuz' }]
    }
  ])

  writeFileSync(at('refuse'), '')
  await c.post('/config/node/n1', { kerneloptions: 'quiet=1' })
  await t.rejects(tftp?.applied() ?? Promise.resolve())
  t.strictSame(optionsOf(), [undefined, undefined], 'the machine gets the configuration of before')
  rmSync(at('refuse'))
  await tftp?.applied()
  t.strictSame(optionsOf(), [' quiet=1', ' quiet=1'])
})

// rules 4.43
t.test('a node that is deleted while the configurations are made is left out', async t => {
  const c = await Controller.start(
    t,
    ...['tftp.server=tftpd-hpa', 'tftp.control=true', `tftp.directory=${join(scratch(t), 'tree')}`],
    'boot.loader=grub'
  )
  await c.post('/config/network/cluster', { network: '10.141.0.0/16' })
  for (const name of ['n1', 'n2'])
    await c.post(`/config/node/${name}`, {
      interfaces: [{ interface: 'BOOTIF', network: 'cluster', macaddress: `52:54:00:00:00:0${name[1]}` }]
    })
  const making = (c.daemon.boot.grub as GrubConfigs).configurations()
  making.next()
  await c.get('/config/node/n1/_delete')
  let step = making.next()
  while (!step.done) step = making.next()
  const made = step.value.files.map(({ name }) => name)
  t.notOk(made.includes('grub/grub.cfg-01-52-54-00-00-00-01'))
  t.ok(made.includes('grub/grub.cfg-01-52-54-00-00-00-02'))
})
