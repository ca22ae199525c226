import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { delimiter, join } from 'node:path'
import t, { type Test } from 'tap'
import type { HelperSettings } from '../../lib/helper/directories.js'
import { runCommand } from '../../lib/helper/local.js'
import { requireNode, startNode } from '../image/node.js'
import { beginning } from '../image/taking.js'
import { locate, output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

requireNode()

/*
 * A tree is checked, and then another directory has its name. `images/p/x` is an image, and `images/q/x` a
 * link to `outside`. Somebody exchanges p and q: after the check and before a program (one on PATH that does
 * it first), or all the time (a process that does nothing else).
 */

const hidden = '.svcd-0123456789abcdef'
const transfer = { node: 'node001', address: '127.0.0.1', exclude: [], own: [], dryrun: false }

interface Ground {
  readonly places: HelperSettings
  readonly tree: string
  readonly outside: string
  readonly images: string
}

function lay(directory: string, sshPort = 22): Ground {
  const path = (name: string) => join(directory, name)
  for (const name of ['proc', 'sys', 'dev', 'run', 'tmp', 'etc', 'usr', 'boot'])
    for (const tree of ['images/p/x', 'outside']) mkdirSync(path(`${tree}/${name}`), { recursive: true })
  for (const name of ['images/q', 'files', 'state']) mkdirSync(path(name), { recursive: true })
  chmodSync(path('images/p/x'), 0o755)
  chmodSync(path('outside'), 0o755)
  writeFileSync(path('images/p/x/etc/word'), 'image')
  writeFileSync(path('outside/etc/word'), 'secret')
  symlinkSync(path('outside'), path('images/q/x'))
  const places = {
    ...{ images: path('images'), files: path('files'), state: path('my state'), sshKey: '', sshPort },
    ...{ byRoot: true, units: [] }
  }
  return { places, tree: path('images/p/x'), outside: path('outside'), images: path('images') }
}

/**
 * Programs of these names on PATH, of which the first to be started exchanges p and q before it does its
 * work.
 */
function swapBefore(t: Test, { images }: Ground, ...names: string[]): () => boolean {
  const bin = join(images, '../bin')
  mkdirSync(bin, { recursive: true })
  for (const name of names)
    writeFileSync(
      join(bin, name),
      `#!/bin/sh
[ -d ${images}/r ] || ! mv ${images}/p ${images}/r || mv ${images}/q ${images}/p
exec ${locate(name)} "$@"
`,
      { mode: 0o755 }
    )
  const before = process.env.PATH
  process.env.PATH = `${bin}${delimiter}${before}`
  t.teardown(() => {
    process.env.PATH = before
  })
  return () => existsSync(join(images, 'r'))
}

const outsideIsWhole = (t: Test, { outside }: Ground) => {
  t.strictSame(readdirSync(outside).sort(), ['boot', 'dev', 'etc', 'proc', 'run', 'sys', 'tmp', 'usr'])
  t.strictSame(readdirSync(join(outside, 'etc')), ['word'])
  for (const name of ['dev', 'tmp', 'run']) t.strictSame(readdirSync(join(outside, name)), [], name)
}

// rules 9.14
t.test('a pack reads the tree that was checked', async t => {
  const ground = lay(scratch(t))
  const swapped = swapBefore(t, ground, 'tar')
  const { places, tree } = ground
  const args = { tree, excludes: [], packer: 'system', compressor: 'none', output: hidden }
  await runCommand(places, 'pack', args, {})
  t.ok(swapped())
  const word = await output('tar', ['-xOf', join(places.files, hidden), './etc/word'])
  t.equal(word, 'image')
})

// rules 9.14
t.test('a clone neither reads nor writes beyond the images', async t => {
  const ground = lay(scratch(t))
  const swapped = swapBefore(t, ground, 'cp')
  const { places, tree, images } = ground
  await runCommand(places, 'clone', { tree, parent: '', work: hidden }, {})
  t.ok(swapped())
  t.equal(
    readFileSync(join(images, hidden, 'etc/word'), 'utf8'),
    'image',
    'it copies the tree that was checked'
  )

  const other = lay(scratch(t))
  swapBefore(t, other, 'cp')
  mkdirSync(join(other.images, 'a/etc'), { recursive: true })
  const args = { tree: join(other.images, 'a'), parent: 'p/x', work: hidden }
  await runCommand(other.places, 'clone', args, {})
  outsideIsWhole(t, other)
  t.ok(existsSync(join(other.images, 'r/x', hidden, 'etc')), 'into the directory that was checked')
})

// rules 9.13, 9.14
t.test('an initramfs is built in nothing that a link leads to', async t => {
  const ground = lay(scratch(t))
  const swapped = swapBefore(t, ground, 'unshare')
  const args = { tree: ground.tree, kernelversion: '6.1.0', dracutmodules: [], kernelmodules: [] }
  await t.rejects(runCommand(ground.places, 'initramfs', args, { timeLimitMs: 60_000 }), {
    message: /chroot: failed to run command '\/bin\/sh'/
  })
  t.ok(swapped())
  outsideIsWhole(t, ground)
})

// rules 9.14
t.test('a grab writes, and a push reads, nothing beyond the images', async t => {
  const { directory, remote, root } = await beginning(t)
  await startNode(t, root, [], remote.port)
  const ground = lay(directory, remote.port)
  const swapped = swapBefore(t, ground, 'rsync')
  const { places } = ground
  const grab = { ...transfer, filesystems: [], parent: 'p/x', work: hidden }
  await runCommand(places, 'grab', grab, { timeLimitMs: 60_000 })
  t.ok(swapped())
  outsideIsWhole(t, ground)
  t.equal(readFileSync(join(ground.images, 'r/x', hidden, 'etc/motd'), 'utf8'), 'first\n')

  const other = lay(join(directory, 'other'), remote.port)
  swapBefore(t, other, 'rsync')
  const push = { ...transfer, filesystems: ['/'], tree: other.tree, exclude: [] }
  await runCommand({ ...other.places, state: places.state }, 'push', push, { timeLimitMs: 60_000 })
  t.equal(readFileSync(join(root, 'etc/word'), 'utf8'), 'image', 'the tree that was checked was pushed')
})

// rules 9.14
t.test('where links cannot be shut off, only who has root’s rights anyway gets a clone', async t => {
  const { places, tree, images } = lay(scratch(t))
  const bin = join(images, '../bin')
  mkdirSync(bin)
  // As a mount(8) that does not know the word: it hands it to a kernel that does not look at it.
  writeFileSync(
    join(bin, 'mount'),
    `#!/bin/sh\ncase $* in *nosymfollow*) ;; *) ${locate('mount')} "$@" ;; esac\n`,
    {
      mode: 0o755
    }
  )
  const before = process.env.PATH
  process.env.PATH = `${bin}${delimiter}${before}`
  t.teardown(() => {
    process.env.PATH = before
  })
  const clone = (byRoot: boolean) =>
    runCommand({ ...places, byRoot }, 'clone', { tree, parent: '', work: hidden }, {})
  await t.rejects(clone(false), { message: /symbolic links cannot be shut off here: that takes Linux 5\.10/ })
  t.notOk(existsSync(join(images, hidden)))
  await clone(true)
  t.equal(readFileSync(join(images, hidden, 'etc/word'), 'utf8'), 'image')
})

// rules 9.14
t.test('names that change all the time lead no command out', async t => {
  const ground = lay(scratch(t))
  const { places, images, outside, tree } = ground
  mkdirSync(join(outside, hidden))
  mkdirSync(join(outside, 'from'))
  const swapper = spawn(process.execPath, [
    '-e',
    `const { renameSync } = require('node:fs')
     process.chdir(process.argv[1])
     process.stdout.write('ready')
     for (;;) { renameSync('p', 'r'); renameSync('q', 'p'); renameSync('p', 'q'); renameSync('r', 'p') }`,
    images
  ])
  const ended = once(swapper, 'exit')
  t.teardown(() => {
    swapper.kill('SIGKILL')
    return ended
  })
  await once(swapper.stdout, 'data')
  const rounds = process.env.SVCD_LONG ? 20_000 : 150
  const words = new Set<string>()
  for (let round = 0; round < rounds; round++) {
    const output = `.svcd-${round.toString(16).padStart(16, '0')}`
    await Promise.allSettled([
      runCommand(places, 'copy', { tree, path: 'etc/word', output }, {}).then(() =>
        words.add(readFileSync(join(places.files, output), 'utf8'))
      ),
      runCommand(places, 'remove', { parent: 'p/x', name: hidden }, {}),
      runCommand(places, 'rename', { parent: 'p/x', from: 'from', to: 'to' }, {})
    ])
  }
  t.strictSame([...words], ['image'])
  t.ok(existsSync(join(outside, hidden)), 'nothing was removed outside')
  t.ok(existsSync(join(outside, 'from')), 'nothing was renamed outside')
})
