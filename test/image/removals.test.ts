// Directories of deleted images, where several controllers share the objects (rules 9.15).
import { existsSync, mkdirSync, readdirSync } from 'node:fs'
import t, { type Test } from 'tap'
import { unavailable } from '../../lib/base/errors.js'
import { TreeReconciler } from '../../lib/image/tree-reconciler.js'
import { daemonActor } from '../../lib/model/model.js'
import { tryLockDirectory } from '../../lib/program/system.js'
import { until } from '../support/until.js'
import { Bench } from './bench.js'
import { oneOfSeveral } from './one-of-several.js'

const MINUTE_MS = 60_000

/** The image copy is deleted, and this controller has its directory. */
async function deleted(t: Test, controller = 'c2') {
  /** What happens to a directory that gets its hidden name. */
  const renames: { fails?: () => unknown } = {}
  let tries = 0
  const call =
    (real: (...asked: never) => unknown) =>
    async (...asked: never) => {
      if (asked[0] !== 'rename') return real(...asked)
      tries++
      await renames.fails?.()
      return real(...asked)
    }
  const site = await oneOfSeveral(t, call)
  const { bench } = site
  mkdirSync(bench.path('images', 'copy'), { recursive: true })
  await bench.put(tx =>
    tx.put('tree', 'copy', { name: 'copy', osimage: 'copy', at: 1, controller, abandoned: true })
  )
  const isGone = () => bench.context.model.view.get('tree', 'copy') === undefined
  return { ...site, isGone, renames, tried: () => tries }
}

t.test('a directory that could not be removed is removed later, whatever the reason was', async t => {
  const { bench, images, jobs, site, look, isGone, ended, renames } = await deleted(t, 'c1')
  site.unrecorded = 'etcd does not answer'
  await look()
  await until(() => bench.log.some(line => /images are removed later: etcd does not answer/.test(line)))
  site.unrecorded = ''

  bench.now += MINUTE_MS
  renames.fails = () => Promise.reject(unavailable('the disk refuses'))
  await look()
  await ended(1)
  t.match(jobs.records()[0], { state: 'failed', message: /the disk refuses/ })

  bench.now += MINUTE_MS
  let release = () => {}
  let isBegun = false
  renames.fails = () => {
    isBegun = true
    return new Promise<void>((_, reject) => {
      release = () => reject(new Error('stopped'))
    })
  }
  await look()
  await until(() => isBegun)
  jobs.cancel(jobs.records()[0]?.id ?? '')
  release()
  await ended(2)
  delete renames.fails
  images.becameLeader()
  await until(isGone, () => [jobs.records(), bench.log])
})

t.test('a pause is longer each time, and ends when this controller begins to write', async t => {
  const { bench, images, look, isGone, ended, renames, tried } = await deleted(t, 'c1')
  renames.fails = () => Promise.reject(unavailable('the disk refuses'))
  await look()
  await ended(1)
  for (const [afterMs, expected] of [
    [4000, 1],
    [2000, 2],
    [6000, 2],
    [5000, 3]
  ] as const) {
    bench.now += afterMs
    await look()
    await ended(expected)
    await look()
    t.equal(tried(), expected)
  }
  delete renames.fails
  images.becameLeader()
  await until(isGone, () => bench.log)
})

t.test(
  'the leader removes the record of a directory once its controller has announced that it is hidden',
  async t => {
    const { bench, site, look, isGone, jobs } = await deleted(t)
    await look()
    site.outOfPlace = ['copy 2', 'other 1']
    await look()
    await look()
    t.notOk(isGone(), 'another directory of that name')
    site.outOfPlace = ['copy 1']
    await bench.put(tx => tx.put('osimage', 'new', { name: 'new', path: bench.path('images', 'copy') }))
    await look()
    await until(() => bench.context.model.view.get('tree', 'copy')?.abandoned === undefined)
    t.match(bench.context.model.view.get('tree', 'copy'), { osimage: 'new' }, 'an image is in it again')

    await bench.put(tx => {
      tx.remove('osimage', 'new')
      tx.put('tree', 'copy', { name: 'copy', osimage: 'new', at: 1, controller: 'c2', abandoned: true })
    })
    await look()
    await until(isGone, () => bench.log)
    t.ok(existsSync(bench.path('images', 'copy')), 'a directory of that name here is left alone')
    t.strictSame(jobs.records(), [])
    t.match(bench.log.join(''), 'OS image new is deleted: controller c2 removes its directory copy')
  }
)

t.test('a follower hides its directories of deleted images, and announces them', async t => {
  const bench = await Bench.open(t)
  const { model, notes } = bench.context
  const names = ['mine', 'gone', 'theirs', 'used', 'held']
  for (const name of names.filter(name => name !== 'gone'))
    mkdirSync(bench.path('images', name), { recursive: true })
  await bench.put(tx => {
    for (const name of names) {
      const controller = name === 'theirs' ? 'c1' : 'c2'
      tx.put('tree', name, { name, osimage: name, at: 1, controller, abandoned: true })
    }
    tx.put('osimage', 'new', { name: 'new', path: bench.path('images', 'used') })
  })
  const context = {
    ...bench.context,
    controllers: { own: 'c2', others: () => ['c1'], outOfPlace: () => [] },
    ownsObjects: () => false,
    model: { view: model.view }
  } as never
  const release = await tryLockDirectory(bench.path('images', 'held'))
  const removals = new TreeReconciler(context, {
    submit: async () => t.fail('a follower runs no request') as never
  })
  await removals.removeAbandoned(daemonActor)
  t.strictSame([...removals.outOfPlace].sort(), ['gone 1', 'mine 1'])
  t.match(
    bench.log.join(''),
    /directories of deleted OS images are removed later: OS image held: a shell is open in its directory/
  )
  t.strictSame(
    readdirSync(bench.path('images'))
      .filter(name => !name.startsWith('.'))
      .sort(),
    ['held', 'theirs', 'used']
  )
  t.match([...notes.undecided], [{ kind: 'removal', target: 'mine', at: 1 }])
  await release?.()
  await removals.removeAbandoned(daemonActor)
  t.strictSame([...removals.outOfPlace].sort(), ['gone 1', 'held 1', 'mine 1'])
})

// rules 9.15
t.test('that a controller is not there is said once, with the way out', async t => {
  const { bench, site, look } = await deleted(t)
  site.others = []
  await look()
  await look()
  t.notOk(
    bench.log.some(line => /on controller c2/.test(line)),
    'it may be started again'
  )
  bench.now += 2 * MINUTE_MS
  for (let i = 0; i < 3; i++) await look()
  const said = bench.log.filter(line => /on controller c2/.test(line))
  t.equal(said.length, 1)
  t.match(
    said[0],
    /OS image copy is deleted, and its directory \S+\/images\/copy is on controller c2, which is not there: .* \[controller\] name = c2\n$/
  )
})
