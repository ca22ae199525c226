import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readdirSync, renameSync, rmdirSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { mountsBelow } from '../../../lib/disk/open-directory.js'
import { buildInitramfs, type InitramfsRequest } from '../../../lib/helper/packer/initramfs.js'
import { kernel, Tree } from '../../image/initramfs-tree.js'
import { start } from '../../support/child.js'
import { checkout, node, programEnv, requirePrograms, requireRoot } from '../../support/programs.js'

requireRoot()
requirePrograms('busybox', 'unshare', 'setpriv')

const lines: string[] = []
const build = (tree: Tree, request: Partial<InitramfsRequest> = {}) =>
  buildInitramfs({
    tree: tree.path,
    kernelversion: kernel,
    dracutmodules: [],
    kernelmodules: [],
    signal: new AbortController().signal,
    timeLimitMs: 600_000,
    line: text => lines.push(text),
    ...request
  })
t.beforeEach(() => {
  lines.length = 0
})

t.test('dracut builds it for any machine, with the node side and the modules asked for', async t => {
  const tree = new Tree(t, 'dracut')
  const built = await build(tree, {
    dracutmodules: ['lvm', '-plymouth', '!i18n'],
    kernelmodules: ['xfs', 'absent', '-nouveau']
  })
  t.strictSame(built, { tool: 'dracut', initrd: `boot/initramfs-${kernel}.img` })
  t.equal(tree.read(`boot/initramfs-${kernel}.img`), 'an initramfs\n')
  t.equal(statSync(join(tree.path, `boot/initramfs-${kernel}.img`)).mode & 0o777, 0o600)
  t.strictSame(tree.seen('argument'), [
    ...['--force', '--no-hostonly', '--tmpdir', '/tmp', '--add', 'svc lvm', '--omit', 'plymouth i18n'],
    ...['--add-drivers', 'xfs', '--omit-drivers', 'nouveau', '/tmp/svc/initrd', kernel]
  ])
  t.ok(lines.includes(`kernel ${kernel} has no module absent`), 'the record says what is missing', { lines })
  t.ok(lines.includes('the tool begins'), 'and what the tool says')
  t.strictSame(tree.seen('module'), ['90svc', '99base'], 'the tool sees our module')
  t.strictSame(tree.list('usr/lib/dracut/modules.d'), ['99base'], 'the image has it not')
  t.strictSame(tree.list('boot'), [`initramfs-${kernel}.img`])
  t.strictSame(await mountsBelow(tree.path), [])
})

// rules 9.4
t.test(
  'the tool sees neither the network, the disks, the processes nor the settings of this machine',
  async t => {
    const tree = new Tree(t, 'dracut')
    await build(tree)
    t.strictSame(tree.seen('interface'), [])
    t.strictSame(
      tree.seen('device'),
      ['fd', 'full', 'null', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'tty', 'urandom', 'zero'],
      'no disk'
    )
    t.ok(Number(tree.seen('processes')[0]) < 10)
    t.notMatch(tree.read('var/seen'), 'writes settings')
    for (const directory of ['dev', 'proc', 'run', 'sys', 'tmp'])
      t.strictSame(tree.list(directory), [], directory)
  }
)

t.test('initramfs-tools, with a configuration that is not the image’s', async t => {
  const tree = new Tree(t, 'mkinitramfs')
  tree.write('etc/debian_version', '12\n')
  const before = tree.list('etc/initramfs-tools')
  const built = await build(tree, { kernelmodules: ['xfs'], dracutmodules: ['lvm'] })
  t.strictSame(built, { tool: 'initramfs-tools', initrd: `boot/initrd.img-${kernel}` })
  t.strictSame(tree.seen('argument').slice(-3), ['-o', '/tmp/svc/initrd', kernel])
  const files = tree.seen('configuration')
  for (const file of ['initramfs.conf', 'hooks/svc', 'scripts/svc', 'svc/svc-node.sh', 'conf.d/zz-svc'])
    t.ok(files.includes(`./${file}`), file)
  t.match(tree.read('var/seen'), /^MODULES=most$/m)
  t.strictSame(tree.seen('drivers'), ['xfs'])
  t.match(lines.join('\n'), /dracutmodules \(lvm ?\) say nothing to it/)
  t.strictSame(tree.list('etc/initramfs-tools'), before, 'the image’s own is as it was')
  t.equal(tree.read('etc/initramfs-tools/initramfs.conf'), 'MODULES=dep\n')
})

// rules 9.4
t.test('an initramfs does not wait for the disk of another machine to resume from', async t => {
  const tree = new Tree(t, 'mkinitramfs')
  tree.write('etc/initramfs-tools/conf.d/resume', 'RESUME=UUID=1\n')
  await build(tree)
  t.notOk(tree.seen('configuration').includes('./conf.d/resume'))
  t.match(tree.read('var/seen'), /^RESUME=none$/m)
  t.equal(tree.read('etc/initramfs-tools/conf.d/resume'), 'RESUME=UUID=1\n', 'the image’s own is as it was')
})

// rules 9.4
t.test(
  'mkinitramfs finds a configuration of the kernel, as the image of a container may have none in /boot',
  async t => {
    for (const behaviour of ['', 'fail'] as const)
      for (const [files, seen] of [
        [{}, 'CONFIG_RD_GZIP=y'],
        [{ [`lib/modules/${kernel}/config`]: 'CONFIG_RD_XZ=y\n' }, 'CONFIG_RD_XZ=y'],
        [{ [`boot/config-${kernel}`]: 'CONFIG_OWN=y\n' }, 'CONFIG_OWN=y']
      ] as const) {
        const tree = new Tree(t, 'mkinitramfs')
        tree.write('etc/debian_version', '12\n')
        for (const [path, text] of Object.entries(files)) tree.write(path, text)
        const before = tree.list('boot')
        tree.behave(behaviour)
        await build(tree).catch(() => {})
        t.strictSame(tree.seen('config'), [seen])
        t.strictSame(
          tree.list('boot').filter(name => !name.startsWith('initrd')),
          before
        )
      }
  }
)

t.test('an image without /boot is told so', async t => {
  const tree = new Tree(t, 'mkinitramfs')
  rmSync(join(tree.path, 'boot'), { recursive: true })
  await t.rejects(build(tree), /the image has no directory \/boot, where its initramfs lies: make it/)
})

t.test('an image with neither tool', async t => {
  t.equal(await build(new Tree(t, 'none')), undefined)
})

t.test('an image that lacks what a node needs', async t => {
  const tree = new Tree(t, 'dracut')
  for (const name of ['tar', 'wget']) renameSync(join(tree.path, 'bin', name), join(tree.path, `${name}.off`))
  await t.rejects(build(tree), /lacks programs that a node needs to install itself: tar curl \(or wget\)/)
})

t.test('the kernel', async t => {
  const tree = new Tree(t, 'dracut')
  mkdirSync(join(tree.path, 'lib/modules/6.1.0-10-test/kernel'), { recursive: true })
  t.strictSame(await build(tree, { kernelversion: '6.1.0-10-test' }), {
    tool: 'dracut',
    initrd: 'boot/initramfs-6.1.0-10-test.img'
  })
  await t.rejects(build(tree, { kernelversion: '' }), { message: 'kernelversion: "" is no name of a kernel' })
  await t.rejects(
    build(tree, { kernelversion: '5.0' }),
    `kernel 5.0 is not in the image: /lib/modules holds ${kernel} 6.1.0-10-test`
  )
})

t.test('a failure: its last words, and the file as it was', async t => {
  const tree = new Tree(t, 'dracut')
  tree.write(`boot/initrd-${kernel}`, 'the one before\n')
  tree.behave('fail')
  await t.rejects(build(tree), {
    message: /^the initramfs \(dracut\) failed with status 3: No space left on device$/
  })
  tree.behave('nothing')
  await t.rejects(build(tree), /dracut ended well but made no initramfs/)
  t.strictSame(tree.list('boot'), [`initrd-${kernel}`])
  t.equal(tree.read(`boot/initrd-${kernel}`), 'the one before\n')
  t.strictSame(await mountsBelow(tree.path), [])
  tree.behave('')
  mkdirSync(join(tree.path, 'boot/.svc-initrd.new'))
  t.match(await build(tree), { initrd: `boot/initrd-${kernel}` }, 'the name that the image has is kept')
  t.equal(tree.read(`boot/initrd-${kernel}`), 'an initramfs\n')
  t.strictSame(tree.list('boot'), [`initrd-${kernel}`])
})

t.test('stopped, and out of time: nobody is left, nothing mounted', async t => {
  const tree = new Tree(t, 'dracut')
  tree.behave('hang')
  const stop = new AbortController()
  const stopped = build(tree, { signal: stop.signal })
  await tree.hanging()
  stop.abort()
  await t.rejects(stopped, { message: /was stopped/ })
  await tree.quiet()
  await t.rejects(build(tree, { timeLimitMs: 1000 }), { message: /took longer than 1 s/ })
  await tree.quiet()
  t.strictSame(tree.list('boot'), [])
  t.strictSame(await mountsBelow(tree.path), [])
})

// rules 9.4
t.test('kill -9 of the service: nobody is left, nothing mounted, and the next one works', async t => {
  const tree = new Tree(t, 'dracut')
  tree.behave('hang')
  const [program = '', ...args] = node
  const script = join(import.meta.dirname, 'initramfs-build.js')
  const service = spawn(program, [...args, script, tree.path], { env: programEnv(), stdio: 'inherit' })
  const ended = once(service, 'exit')
  await Promise.race([tree.hanging(), ended.then(end => Promise.reject(new Error(`ended with ${end}`)))])
  service.kill('SIGKILL')
  await ended
  await tree.quiet()
  t.strictSame(await mountsBelow(tree.path), [])
  for (const directory of ['boot', 'dev', 'proc', 'run', 'sys', 'tmp']) t.strictSame(tree.list(directory), [])
  tree.behave('')
  t.match(await build(tree), { tool: 'dracut' })
})

// rules 9.4
t.test('links that lead out of the image', async t => {
  for (const directory of ['proc', 'sys', 'dev', 'run', 'tmp']) {
    const tree = new Tree(t, 'dracut')
    const outside = join(tree.path, '..', 'outside')
    mkdirSync(outside)
    rmdirSync(join(tree.path, directory))
    symlinkSync(outside, join(tree.path, directory))
    await t.rejects(build(tree), { message: new RegExp(`/${directory} of the image is not a directory`) })
    t.strictSame(readdirSync(outside), [])
  }
  const tree = new Tree(t, 'dracut')
  const outside = join(tree.path, '..', 'outside')
  mkdirSync(outside)
  rmdirSync(join(tree.path, 'boot'))
  symlinkSync(outside, join(tree.path, 'boot'))
  await t.rejects(build(tree), /boot/)
  t.strictSame(readdirSync(outside), [], 'nothing was written there')
  rmdirSync(join(tree.path, 'usr/lib/dracut/modules.d/99base'))
  rmdirSync(join(tree.path, 'usr/lib/dracut/modules.d'))
  symlinkSync(outside, join(tree.path, 'usr/lib/dracut/modules.d'))
  await t.rejects(build(tree), /dracut/)
  t.strictSame(readdirSync(outside), [])
})

t.test('names are data', async t => {
  const evil = '$(touch /tmp/svcd-pwned);`touch /tmp/svcd-pwned`\n; touch /tmp/svcd-pwned; #'
  const tree = new Tree(t, 'dracut', `image ${evil.replaceAll('/', '')} ' "`)
  t.match(await build(tree), { tool: 'dracut' })
  for (const [field, value] of [
    ['dracutmodules', ['lvm', evil]],
    ['dracutmodules', ['-']],
    ['dracutmodules', ['--install']],
    ['kernelmodules', ['a b']],
    ['kernelmodules', ['../x']],
    ['kernelversion', evil],
    ['kernelversion', '../../etc'],
    ['kernelversion', '-k']
  ] as const)
    await t.rejects(build(tree, { [field]: value }), {
      message: new RegExp(`^${field}: ".*" is no name of a`)
    })
  t.notOk(readdirSync('/tmp').includes('svcd-pwned'))
})

t.test('a machine without pivot_root is told which package has it', async t => {
  const script = join(checkout, 'libexec/hold-image.sh')
  const words = ['PATH=/nowhere', '/bin/sh', script, checkout, '']
  const { code, stderr } = await start('env', words, { input: '' }).ended
  t.equal(code, 1)
  t.match(stderr, /this machine has no pivot_root: apt install util-linux-extra/)
})
