// rules 11.19: a pack counts once a second controller has it.
import { writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import type { ImageContext } from '../../lib/image/context.js'
import { namedFiles } from '../../lib/image/copies/named.js'
import { PackReconciler } from '../../lib/image/pack-reconciler.js'
import { publish } from '../../lib/image/publish.js'
import { daemonActor } from '../../lib/model/model.js'
import { type PackDoc, previousPack } from '../../lib/model/types/osimage.js'
import { until } from '../support/until.js'
import { Bench } from './bench.js'

const packOf = (mark: string, time: number, more: Partial<PackDoc> = {}): PackDoc => ({
  ...{ name: `compute-${mark}.tar.gz`, osimage: 'compute', sha256: mark.repeat(64), bytes: 10_000, time },
  ...{ packer: 'builtin', kernelfile: `compute-${mark}-vmlinuz`, initrdfile: `compute-${mark}-initrd` },
  ...more
})
const outcomeOf = (pack: PackDoc) => ({
  image: { name: pack.osimage },
  files: { kernel: undefined, initrd: undefined, version: undefined },
  pack
})

/** Controller c1 of several, with an image that has pack a. */
async function site(t: Test, others: string[], ...overrides: string[]) {
  const bench = await Bench.open(t, ...overrides)
  const state = { others, have: [] as string[], asked: 0 }
  const context: ImageContext = {
    ...bench.context,
    controllers: {
      own: 'c1',
      others: () => state.others,
      whoHas: async () => undefined,
      having: async () => {
        state.asked++
        return state.have
      },
      outOfPlace: () => []
    }
  }
  const place = (pack: PackDoc) => {
    for (const file of [pack.name, pack.kernelfile, pack.initrdfile])
      if (file !== undefined) writeFileSync(bench.path('files', file), file)
  }
  const [a, b] = [packOf('a', 1), packOf('b', 2)]
  await bench.put(tx => tx.put('osimage', 'compute', { name: 'compute' }))
  for (const pack of [a, b]) place(pack)
  const image = () => context.model.view.get('osimage', 'compute')
  const job = bench.job()
  const begin = async (pack: PackDoc, with_ = job) => {
    const rest = await publish(context, outcomeOf(pack), daemonActor)
    return () => rest(with_)
  }
  const packs = () => [...context.model.view.names('pack')]
  state.have = ['c2']
  await (await begin(a))()
  state.have = []
  return { bench, context, state, a, b, image, job, begin, packs, place }
}

t.test('one controller alone waits for nobody', async t => {
  const { state, b, image, begin, job } = await site(t, [])
  state.asked = 0
  job.lines.length = 0
  const rest = await begin(b)
  t.match(image(), { imagefile: b.name, kernelfile: b.kernelfile })
  await rest()
  t.equal(state.asked, 0)
  t.strictSame(job.lines, [])
})

t.test('the image has the pack before until a second one has the new one', async t => {
  const { context, state, a, b, image, begin, job } = await site(t, ['c2', 'c3'])
  job.lines.length = 0
  const rest = await begin(b)
  const over = rest()
  await until(() => state.asked > 3)
  t.match(image(), { imagefile: a.name, kernelfile: a.kernelfile, initrdfile: a.initrdfile })
  // The others fetch what is to be the image's, and who has it gives it.
  const wanted = namedFiles(context.model.view).map(({ name }) => name)
  for (const file of [b.name, b.kernelfile, b.initrdfile]) t.ok(wanted.includes(file ?? ''), file ?? '')
  t.ok(context.model.view.index.isImageFile('pack', b.name))
  state.have = ['c3']
  await over
  t.match(image(), { imagefile: b.name, kernelfile: b.kernelfile, initrdfile: b.initrdfile })
  t.strictSame(job.lines, [
    'it counts once a second controller has it, or after 61 s',
    'controllers c1 and c3 have it'
  ])
})

t.test(
  'a pack is newer than the present one, whatever the clock of the controller that made that one said',
  async t => {
    const { bench, context, state, begin, image, packs, place } = await site(t, ['c2'])
    state.have = ['c2']
    const future = Date.now() + 3_600_000
    const [ahead, next, again] = [packOf('c', future), packOf('d', 5), packOf('c', 6)]
    for (const pack of [ahead, next]) {
      place(pack)
      await (await begin(pack))()
    }
    const time = (name: string) => context.model.view.get('pack', name)?.time
    t.equal(time(next.name), future + 1)
    t.match(previousPack(context.model.view, { ...next, time: future + 1 }), { name: ahead.name })
    await (await begin(again))()
    t.match(image(), { imagefile: again.name })
    t.equal(time(again.name), future + 2)
    t.ok(packs().includes(next.name), bench.path('files'))
  }
)

t.test('it waits for a while, and says then how many have it', async t => {
  const { bench, state, a, b, image, begin, job } = await site(t, ['c2', 'c3'])
  const over = (await begin(b))()
  await until(() => state.asked > 1)
  bench.now += 60_000
  const { asked } = state
  await until(() => state.asked > asked + 1)
  t.match(image(), { imagefile: a.name }, 'not before that')
  bench.now += 1001
  await over
  t.match(image(), { imagefile: b.name })
  const text =
    /^OS image compute: of 3 controllers c1 alone has its new pack compute-b\.tar\.gz; without that one/
  t.match(job.lines.at(-1), text)
  t.ok(bench.log.some(line => / warn OS image compute: of 3 controllers c1 alone has/.test(line)))
})

// rules 9.6
t.test('what is waited for is not swept as a pack that no image has', async t => {
  const { context, state, b, image, begin, packs } = await site(t, ['c2'], 'image.grace=0s')
  const over = (await begin(b))()
  await until(() => state.asked > 1)
  const installing = { packs: () => new Set<string>() }
  const sweep = new PackReconciler(context, { installing, torrents: () => {} })
  t.teardown(() => sweep.close())
  await sweep.run()
  t.ok(packs().includes(b.name))
  state.have = ['c2']
  await over
  t.match(image(), { imagefile: b.name })
  await sweep.run()
  t.strictSame(packs(), [b.name], 'the one before goes')
})

t.test('who is left alone waits no more', async t => {
  const { state, b, image, begin } = await site(t, ['c2'])
  const over = (await begin(b))()
  await until(() => state.asked > 1)
  state.others = []
  await over
  t.match(image(), { imagefile: b.name })
})

t.test('whatever stops it, the image and its pack are as they were', async t => {
  const { bench, context, state, a, b, image, begin, packs, place } = await site(t, ['c2'])
  const before = image()
  const cancelled = new AbortController()
  let over = (
    await begin(
      b,
      bench.job(() => {}, cancelled.signal)
    )
  )()
  await until(() => state.asked > 1)
  cancelled.abort(new Error('cancelled'))
  await t.rejects(over, /cancelled/)
  t.strictSame([image(), packs()], [before, [a.name]])

  // The one that packed is gone, and nobody has it.
  const gone = packOf('c', 3)
  over = (await begin(gone))()
  bench.now += 100_000
  await t.rejects(over, { status: 503, message: /no controller that is there has compute-c\.tar\.gz/ })
  t.strictSame([image(), packs()], [before, [a.name]])

  // The same pack with another kernel.
  const kernel = { ...a, time: 4, kernelfile: 'compute-a-1-vmlinuz' }
  place(kernel)
  const stop = new AbortController()
  over = (
    await begin(
      kernel,
      bench.job(() => {}, stop.signal)
    )
  )()
  t.match(image(), { kernelfile: a.kernelfile })
  stop.abort(new Error('cancelled'))
  await t.rejects(over, /cancelled/)
  t.strictSame(context.model.view.get('pack', a.name), a)
  t.strictSame(image(), before)
  state.have = ['c2']
  await (await begin(kernel))()
  t.match(image(), { imagefile: a.name, kernelfile: 'compute-a-1-vmlinuz' })

  // Somebody deletes the image meanwhile.
  state.have = []
  over = (await begin(b))()
  await bench.put(tx => tx.remove('osimage', 'compute'))
  state.have = ['c2']
  await t.rejects(over, { status: 503, message: /deleted or renamed while it was packed/ })
  t.strictSame(packs(), [a.name])
})
