import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { Installing, PackReconciler } from '../../lib/image/pack-reconciler.js'
import { recover } from '../../lib/image/tree-changes.js'
import { notesIn } from '../support/notes.js'
import { Bench } from './bench.js'

const hour = 3_600_000
const sum = (digit: string) => digit.repeat(64)

/** An image whose pack is 2, and its older pack 1, with all their files. */
async function beginning(t: Parameters<typeof Bench.open>[0]) {
  const bench = await Bench.open(t, 'image.grace=1d')
  const pack = (digit: string) => `compute-${digit.repeat(12)}.tar.zst`
  const files = (digit: string) => [
    pack(digit),
    `compute-${digit.repeat(12)}-vmlinuz-6`,
    `${pack(digit)}.torrent`
  ]
  for (const digit of ['1', '2'])
    for (const file of files(digit)) writeFileSync(bench.path('files', file), file)
  await bench.put(tx => {
    for (const digit of ['1', '2'])
      tx.put('pack', pack(digit), {
        ...{ name: pack(digit), osimage: 'compute', sha256: sum(digit), bytes: 1, time: 1, packer: 'system' },
        kernelfile: files(digit)[1] as string
      })
    tx.put('osimage', 'compute', {
      name: 'compute',
      imagefile: pack('2'),
      kernelfile: files('2')[1] as string
    })
  })
  const history: { state: string; time: string }[] = []
  const installing = new Installing({ history: () => history }, 4 * hour, () => bench.now)
  const sweep = new PackReconciler(bench.context, { installing, torrents: () => {} })
  t.teardown(() => sweep.close())
  const left = () => readdirSync(bench.path('files')).sort()
  const report = (state: string) => history.push({ state, time: new Date(bench.now).toISOString() })
  return { bench, pack, files, sweep, installing, left, report }
}

// rules 9.6, 11.19
t.test('an old pack goes although a file that nobody names cannot be removed', async t => {
  const { bench, pack, installing } = await beginning(t)
  const manifest = {
    ...{ names: ['stray'], isKept: () => false, find: async () => {} },
    remove: () => Promise.reject(new Error('EPERM: unlink stray'))
  }
  const context = { ...bench.context, manifest } as never
  const reconciler = new PackReconciler(context, { installing, torrents: () => {} })
  t.teardown(() => reconciler.close())
  await reconciler.run()
  bench.now += 25 * hour
  await reconciler.run()
  t.equal(bench.context.model.view.get('pack', pack('1')), undefined)
  t.match(bench.log.join(''), 'EPERM: unlink stray')
})

// rules 9.6
t.test('an old pack is kept for the grace time, then all its files go', async t => {
  const { bench, pack, files, sweep, left } = await beginning(t)
  // The kernel that the image had before another one of the same pack, and what only looks alike.
  writeFileSync(bench.path('files', `compute-${'1'.repeat(12)}-vmlinuz-5`), 'x')
  writeFileSync(bench.path('files', 'compute-mine'), 'x')
  const all = left()
  await sweep.run()
  bench.now += 24 * hour - 1
  await sweep.run()
  t.strictSame(left(), all, 'a millisecond before')
  t.ok(bench.context.model.view.index.isImageFile('pack', pack('1')), 'it is served until then')
  bench.now += 1
  await sweep.run()
  t.strictSame(left(), [...files('2'), 'compute-mine'].sort())
  t.equal(bench.context.model.view.get('pack', pack('1')), undefined)
  t.notOk(bench.context.model.view.index.isImageFile('pack', pack('1')), 'and no more')
  bench.now += 1000 * hour
  await sweep.run()
  t.strictSame(left(), [...files('2'), 'compute-mine'].sort(), 'what an image names is never removed')
})

// rules 11.19
t.test('the pack before is kept for as long as a controller that is there lacks the present one', async t => {
  const { bench, pack, files, installing, left } = await beginning(t)
  await bench.put(tx => {
    const doc = tx.get('pack', pack('2'))
    if (doc) tx.put('pack', pack('2'), { ...doc, time: 2 })
  })
  const [others, have] = [['c2', 'c3'], ['c2']]
  const controllers = { own: 'c1', others: () => others, having: async () => have } as never
  const sweep = new PackReconciler({ ...bench.context, controllers }, { installing, torrents: () => {} })
  t.teardown(() => sweep.close())
  const all = left()
  await sweep.run()
  for (let day = 1; day < 4; day++) {
    bench.now += 24 * hour
    await sweep.run()
    t.strictSame(left(), all, `after ${day} days`)
  }
  have.push('c3')
  await sweep.run()
  t.strictSame(left(), files('2').sort(), 'all have it')
})

// rules 9.6
t.test('the clock set forward or back removes nothing early, and keeps nothing longer', async t => {
  const { bench, pack, sweep, left, installing, report } = await beginning(t)
  const all = left()
  await sweep.run()
  for (const by of [9000 * hour, -20_000 * hour]) {
    bench.now += by
    bench.clockSet += by
    await sweep.run()
    t.strictSame(left(), all)
  }
  report('installer.image')
  installing.began('n1', pack('1'))
  bench.now -= 48 * hour
  bench.clockSet -= 48 * hour
  t.strictSame([...installing.packs()], [pack('1')])
  report('installer.completed')
  t.strictSame([...installing.packs()], [], 'a report counts, also from before by the clock')
  bench.now += 24 * hour
  await sweep.run()
  t.not(left().length, all.length)
})

t.test('named again meanwhile, its time begins anew', async t => {
  const { bench, pack, sweep, left } = await beginning(t)
  const all = left()
  const name = (digit: string) =>
    bench.put(tx => tx.put('osimage', 'compute', { name: 'compute', imagefile: pack(digit) }))
  await sweep.run()
  bench.now += 23 * hour
  await name('1')
  await sweep.run()
  await name('2')
  bench.now += 23 * hour
  await sweep.run()
  t.strictSame(left(), all)
})

// rules 9.6
t.test('a tag keeps a pack', async t => {
  const { bench, pack, sweep, left } = await beginning(t)
  const all = left()
  await bench.put(tx =>
    tx.put('osimagetag', 'compute:v1', {
      name: 'compute:v1',
      osimage: 'compute',
      tag: 'v1',
      order: 1,
      imagefile: pack('1')
    })
  )
  await sweep.run()
  bench.now += 1000 * hour
  await sweep.run()
  t.strictSame(left(), all)
})

// rules 9.6
t.test('a node that installs keeps a pack until it is done, has failed, or its token is over', async t => {
  for (const [end, kept] of [
    ['installer.completed', false],
    ['installer.failed: no disk', false],
    ['running', false],
    ['installer.unpack', true]
  ] as const) {
    const { bench, pack, sweep, installing, report } = await beginning(t)
    report('installer.completed')
    await sweep.run()
    bench.now += 24 * hour - 1
    installing.began('n1', pack('1'))
    bench.now += 1
    await sweep.run()
    t.ok(existsSync(bench.path('files', pack('1'))), `before ${end}`)
    report(end)
    await sweep.run()
    bench.now += 1
    await sweep.run()
    bench.now += 3 * hour
    t.strictSame([...installing.packs()], kept ? [pack('1')] : [], end)
    bench.now += 24 * hour
    await sweep.run()
    t.strictSame([...installing.packs()], [], 'its token is over')
  }
})

t.test('a disk that refuses: the pack is gone for everybody, the files are tried again', async t => {
  const { bench, sweep } = await beginning(t)
  bench.now += 1
  await sweep.run()
  bench.now += 24 * hour
  const { model } = bench.context
  const change = model.change.bind(model)
  model.change = async () => {
    throw new Error('disk full')
  }
  await sweep.run()
  t.match(bench.log.join(), /old packs could not be removed: disk full/)
  t.equal(readdirSync(bench.path('files')).length, 6, 'nothing is removed that is still named')
  model.change = change
  await sweep.run()
  t.equal(readdirSync(bench.path('files')).length, 3)
})

t.test('what could not be removed with its pack is removed by the next start', async t => {
  const { bench, pack, files, sweep, left } = await beginning(t)
  await sweep.run()
  bench.now += 24 * hour
  // Nobody can take a directory for a file.
  const stuck = bench.path('files', `${pack('1')}`)
  rmSync(stuck)
  mkdirSync(bench.path('files', pack('1'), 'x'), { recursive: true })
  await sweep.run()
  t.equal(bench.context.model.view.get('pack', pack('1')), undefined)
  rmSync(stuck, { recursive: true })
  writeFileSync(stuck, 'x')
  await (await recover(bench.context))()
  t.strictSame(left(), files('2').sort())
  t.strictSame(notesIn(bench.path('state')), [])
})

t.test('a disk that takes no note: said once, and nothing is removed', async t => {
  const { bench, sweep, left } = await beginning(t)
  const all = left()
  await sweep.run()
  bench.now += 24 * hour
  bench.context.notes.write = async () => {
    throw new Error('no space left')
  }
  for (let i = 0; i < 3; i++) await sweep.run()
  t.strictSame(left(), all)
  const said = bench.log.filter(line => line.includes('old packs could not be removed'))
  t.equal(said.length, 1)
  t.match(said[0], /no space left/)
})

t.test('an image that names but the kernel of a pack keeps it', async t => {
  const { bench, files, sweep, left } = await beginning(t)
  const [, kernelfile = ''] = files('1')
  const all = left()
  await bench.put(tx => tx.put('osimage', 'other', { name: 'other', kernelfile }))
  await sweep.run()
  bench.now += 24 * hour
  await sweep.run()
  t.strictSame(left(), all)
  await bench.put(tx => tx.remove('osimage', 'other'))
  await sweep.run()
  bench.now += 24 * hour
  await sweep.run()
  t.strictSame(left(), files('2').sort(), 'until it lets go of it')
})
