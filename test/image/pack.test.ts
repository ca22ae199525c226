import { existsSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { packImage } from '../../lib/image/pack.js'
import { daemonActor } from '../../lib/model/model.js'
import type { Tx } from '../../lib/model/stored.js'
import { StoreError } from '../../lib/store/errors.js'
import { notesIn } from '../support/notes.js'
import { output, requireRoot } from '../support/programs.js'
import { Bench } from './bench.js'
import { makeTree, small } from './small-tree.js'

/** A bench with an image that was packed once. */
async function beginning(t: Parameters<typeof Bench.open>[0], ...overrides: string[]) {
  const bench = await Bench.open(t, ...overrides)
  makeTree(bench.path('images', 'compute'), small)
  await bench.put(tx => tx.put('osimage', 'compute', { name: 'compute' }))
  const image = () => bench.context.model.view.get('osimage', 'compute')
  const pack = (job = bench.job()) => packImage(bench.context, 'compute', {}, daemonActor, job)
  await pack()
  const before = image()
  const files = readdirSync(bench.path('files')).sort()
  const unchanged = (what: string) => {
    t.strictSame(image(), before, `${what}: the image is as before`)
    t.strictSame(readdirSync(bench.path('files')).sort(), files, `${what}: nothing is left`)
    t.strictSame(notesIn(bench.path('state')), [], `${what}: no note is left`)
  }
  const touch = () => writeFileSync(bench.path('images', 'compute', 'etc/hostname'), `${Math.random()}`)
  return { bench, image, before, pack, files, unchanged, touch }
}

// rules 9.2
t.test('what happens to the image while it is packed', async t => {
  const { bench, image, before, pack, unchanged, touch } = await beginning(t)
  const during = (change: (tx: Tx) => void) =>
    bench.job(line => {
      if (line.startsWith('packing')) void bench.put(change)
    })
  const doc = { name: 'compute', ...before }
  touch()
  await t.rejects(
    pack(during(tx => tx.remove('osimage', 'compute'))),
    { status: 503, message: /deleted or renamed while it was packed/ },
    'deleted'
  )
  t.equal(image(), undefined)
  await bench.put(tx => tx.put('osimage', 'compute', doc))
  unchanged('deleted')
  await t.rejects(
    pack(during(tx => tx.put('osimage', 'compute', { ...doc, path: '/elsewhere' }))),
    { message: /"path" was changed/ },
    'the tree of another image'
  )
  await bench.put(tx => tx.put('osimage', 'compute', doc))
  unchanged('path changed')
  await pack(during(tx => tx.put('osimage', 'compute', { ...doc, comment: 'meanwhile' })))
  t.equal(image()?.comment, 'meanwhile')
  t.not(image()?.imagefile, before?.imagefile)
})

// rules 9.2, 11.19
t.test('a pack of which nobody knows whether it is stored keeps its files for who takes over', async t => {
  const { bench, files, touch } = await beginning(t)
  const { model } = bench.context
  const change = async () => {
    throw new StoreError('no answer')
  }
  const kept: string[] = []
  const context = {
    ...bench.context,
    manifest: { keep: async (names: readonly string[]) => void kept.push(...names) },
    model: { view: model.view, get: model.get.bind(model), change }
  } as never
  touch()
  await t.rejects(packImage(context, 'compute', {}, daemonActor, bench.job()))
  t.ok(kept.length > 0)
  t.strictSame(readdirSync(bench.path('files')).sort(), [...new Set([...files, ...kept])].sort())
  t.strictSame(notesIn(bench.path('state')), [], 'no note is left')
})

// rules 9.3
t.test("an admin's boot file that is on another controller so far is not replaced", async t => {
  const { bench, image, files } = await beginning(t)
  const { view } = bench.context.model
  const asked: string[] = []
  let there: string | undefined = 'controller c3 has it'
  const controllers = {
    ...{ own: 'c2', others: () => ['c3'], having: async () => ['c3'] },
    whoHas: async (name: string) => {
      asked.push(name)
      return there
    }
  }
  const context = { ...bench.context, controllers } as never
  const pack = () => packImage(context, 'compute', {}, daemonActor, bench.job())
  const doc = view.get('osimage', 'compute') as NonNullable<ReturnType<typeof image>>
  for (const field of ['kernelfile', 'initrdfile'] as const) {
    const named = { ...doc, [field]: 'mine' }
    await bench.put(tx => tx.put('osimage', 'compute', named))
    await t.rejects(pack(), {
      status: 503,
      message:
        `OS image compute: field "${field}": the file mine is not on controller c2 so far (controller c3 has it): ask again in ` +
        `a moment, or put it into ${bench.path('files')} of controller c2; nothing was packed`
    })
    t.strictSame(image(), named)
    t.strictSame(readdirSync(bench.path('files')).sort(), files)
  }
  writeFileSync(bench.path('files', 'mine'), 'mine')
  asked.length = 0
  await pack()
  t.match(image(), { kernelfile: doc.kernelfile, initrdfile: 'mine' }, 'it has come')
  t.strictSame(asked, [], 'nobody is asked for a file that is here')
  rmSync(bench.path('files', 'mine'))
  there = undefined
  await pack()
  t.match(image(), { initrdfile: doc.initrdfile }, 'nobody has it: as where there is one controller alone')
})

// rules 9.3, 11.19
t.test('a kernel of the same pack that a crash has left to the image is none of the admin', async t => {
  const { bench, image, pack } = await beginning(t, 'image.exclude=/boot/*')
  const controllers = { ...{ own: 'c1', others: () => ['c2'], having: async () => ['c2'] } }
  const context = {
    ...bench.context,
    controllers: { ...controllers, whoHas: async () => undefined }
  } as never
  // The kernel is upgraded; the pack of the same tree is stored, and svcd ends before the image has it.
  const boot = (name: string) => bench.path('images', 'compute', 'boot', name)
  const keepTime = () => utimesSync(boot('.'), 1, 1)
  keepTime()
  await pack()
  const before = image()
  for (const name of ['vmlinuz-6.1.0-9', 'vmlinuz-6.1.0-10', 'initrd.img-6.1.0-9', 'initrd.img-6.1.0-10'])
    rmSync(boot(name))
  for (const name of ['vmlinuz-6.1.0-11', 'initrd.img-6.1.0-11']) writeFileSync(boot(name), name)
  keepTime()
  const { model } = bench.context
  const gone = new StoreError('gone')
  let changes = 0
  const cut = {
    ...bench.context,
    controllers: { ...controllers, whoHas: async () => undefined, having: () => Promise.reject(gone) },
    manifest: { keep: async () => {} },
    model: {
      ...{ view: model.view, get: model.get.bind(model) },
      change: async (...change: Parameters<typeof model.change>) => {
        if (changes++ > 0) throw gone
        return model.change(...change)
      }
    }
  } as never
  await t.rejects(packImage(cut, 'compute', {}, daemonActor, bench.job()), gone)
  t.equal(changes, 2)
  t.strictSame(image(), before)
  const lines = bench.job()
  await packImage(context, 'compute', {}, daemonActor, lines)
  t.equal(image()?.imagefile, before?.imagefile, 'the same tree')
  t.match(image(), { kernelfile: /-vmlinuz-6\.1\.0-11$/, initrdfile: /-initrd\.img-6\.1\.0-11$/ })
})

// rules 8.3, 9.2
t.test('stopped at each step: nothing changed, and a rerun works', async t => {
  const { bench, image, before, pack, unchanged, touch } = await beginning(t)
  touch()
  for (const step of ['kernel:', 'initramfs:', 'packing']) {
    const stop = new AbortController()
    const job = bench.job(line => line.startsWith(step) && stop.abort(new Error('stopped')), stop.signal)
    await t.rejects(pack(job), step)
    unchanged(step)
  }
  const { model } = bench.context
  const change = model.change.bind(model)
  model.change = async () => {
    throw new Error('disk full')
  }
  await t.rejects(pack(), { message: 'disk full' })
  unchanged('a store that refuses')
  model.change = change
  await pack()
  t.not(image()?.imagefile, before?.imagefile)
})

t.test('a full disk: the reason, and nothing changed', async t => {
  requireRoot()
  const { bench, before, pack, unchanged, touch } = await beginning(t)
  const files = bench.path('files')
  await output('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', files])
  try {
    const noise = bench.path('images', 'compute', 'noise')
    await output('sh', ['-c', 'head -c 1000000 /dev/urandom > "$1"', '', noise])
    await t.rejects(pack(), { message: /[Nn]o space left|ENOSPC/ })
    t.strictSame(readdirSync(files), [], 'nothing is left')
    await output('rm', [noise])
  } finally {
    await output('umount', [files])
  }
  unchanged('a full disk')
  touch()
  await pack()
  t.not(bench.context.model.view.get('osimage', 'compute')?.imagefile, before?.imagefile)
})

t.test('a file of the same name that is broken is replaced', async t => {
  const { bench, before, pack } = await beginning(t)
  const file = bench.path('files', before?.imagefile ?? '')
  const whole = readFileSync(file)
  writeFileSync(file, whole.subarray(1))
  await pack()
  t.ok(readFileSync(file).equals(whole))
})

// rules 9.3
t.test('a pack without a kernel, or without an initramfs, is a warning', async t => {
  const { bench, image, pack } = await beginning(t)
  t.notMatch(bench.log.join('\n'), /without/)
  for (const [names, what] of [
    ['initrd.img-*', 'an initramfs'],
    ['vmlinuz*', 'a kernel']
  ]) {
    await output('sh', ['-c', `rm "$1"/boot/${names}`, '', bench.path('images', 'compute')])
    const before = bench.log.length
    await pack()
    t.match(
      bench.log.slice(before).join('\n'),
      new RegExp(`OS image compute was packed without ${what}: its nodes cannot`)
    )
  }
  t.equal(image()?.kernelfile, undefined)
  t.ok(image()?.imagefile)
})

// rules 9.10
t.test('a torrent beside the pack', async t => {
  const { bench, image, files, touch, pack } = await beginning(
    t,
    'torrent.tracker=http://127.0.0.1:9/announce'
  )
  const name = `${image()?.imagefile}.torrent`
  t.ok(files.includes(name))
  t.match(
    readFileSync(bench.path('files', name), 'latin1'),
    /^d8:announce27:http:\/\/127\.0\.0\.1:9\/announce/
  )
  touch()
  await pack()
  t.ok(existsSync(bench.path('files', `${image()?.imagefile}.torrent`)))
})
