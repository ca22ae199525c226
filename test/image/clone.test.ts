import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { cloneImage } from '../../lib/image/clone.js'
import { decide, recover, removeHidden } from '../../lib/image/tree-changes.js'
import { daemonActor } from '../../lib/model/model.js'
import type { Tx } from '../../lib/model/stored.js'
import { NotLeaderError, StoreError } from '../../lib/store/errors.js'
import { notesIn } from '../support/notes.js'
import { output, requireRoot } from '../support/programs.js'
import { Bench } from './bench.js'
import { makeTree } from './small-tree.js'

async function beginning(t: Test) {
  const bench = await Bench.open(t)
  const begin = () => bench.put(tx => tx.put('osimage', 'compute', { name: 'compute' }))
  await begin()
  const clone = (job = bench.job(), context = bench.context) =>
    cloneImage(
      context,
      'compute',
      { values: new Map(), newName: 'copy', interfaces: [], override: false, readBack: false },
      daemonActor,
      job
    )
  const none = (what: string) => {
    const { view } = bench.context.model
    t.equal(view.get('osimage', 'copy'), undefined, `${what}: no clone`)
    t.equal(view.get('tree', 'copy'), undefined, `${what}: no directory is known`)
    t.strictSame(readdirSync(bench.path('images')), ['compute'], `${what}: nothing is left`)
    t.strictSame(notesIn(bench.path('state')), [], `${what}: no note is left`)
  }
  return { bench, begin, clone, none }
}

// rules 2.8, 9.5
t.test('a full disk', async t => {
  requireRoot()
  const { bench, clone, none } = await beginning(t)
  const images = bench.path('images')
  await output('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', images])
  try {
    const noise = `${makeTree(bench.path('images', 'compute'))}/noise`
    writeFileSync(noise, Buffer.alloc(600_000, 'x'))
    await t.rejects(clone(), { message: /^cp .*No space left on device/ })
    none('a full disk')
    await output('rm', [noise])
    await clone()
    t.ok(existsSync(bench.path('images', 'copy', 'etc', 'hostname')), 'a rerun works')
  } finally {
    await output('umount', [images])
  }
})

t.test('what happens while it is copied', async t => {
  const { bench, begin, clone, none } = await beginning(t)
  makeTree(bench.path('images', 'compute'))
  const during = (work: () => unknown) => bench.job(line => line.startsWith('copying') && work())
  const change = (fn: (tx: Tx) => void) => during(() => bench.put(fn))
  await t.rejects(
    clone(change(tx => tx.remove('osimage', 'compute'))),
    { message: 'OS image compute does not exist' },
    'its source is deleted'
  )
  await begin()
  none('its source is deleted')
  await t.rejects(
    clone(change(tx => tx.put('osimage', 'compute', { name: 'compute', path: '/elsewhere' }))),
    { message: /"path" was changed/ }
  )
  await begin()
  none('another path')
  await t.rejects(
    clone(change(tx => tx.put('osimage', 'copy', { name: 'copy' }))),
    { message: 'OS image copy exists already' },
    'its name is taken'
  )
  await bench.put(tx => tx.remove('osimage', 'copy'))
  none('its name is taken')
  const stop = new AbortController()
  await t.rejects(clone(bench.job(line => line.startsWith('copying') && stop.abort(), stop.signal)))
  none('stopped')
  await t.rejects(
    clone(during(() => makeTree(bench.path('images', 'copy'), { mine: 'mine' }))),
    { status: 400, message: /exists already/ },
    'its directory is made by another'
  )
  t.equal(readFileSync(bench.path('images', 'copy', 'mine'), 'utf8'), 'mine', 'which is not touched')
  await output('rm', ['-rf', '--one-file-system', bench.path('images', 'copy')])
  none('its directory was made by another')
  await clone()
  t.match(bench.context.model.view.get('osimage', 'copy'), { path: bench.path('images', 'copy') })
})

// rules 9.15
t.test('of which etcd gave no answer: it stays until it is known whether it is stored', async t => {
  const { bench, clone, none } = await beginning(t)
  const { notes, model } = bench.context
  makeTree(bench.path('images', 'compute'))
  const controllers = {
    own: 'c1',
    others: () => ['c2'],
    whoHas: async () => undefined,
    having: async () => [],
    outOfPlace: () => []
  }
  /** A controller to whose changes etcd says nothing, whether it makes them or not. */
  const unanswered = (isMade: boolean, error: StoreError) => {
    const context = { ...bench.context, controllers }
    const clone = async (...change: Parameters<typeof model.clone>) => {
      if (isMade) await model.clone(...change)
      throw error
    }
    const get = model.get.bind(model)
    return { ...context, model: { view: model.view, get, clone } } as never
  }
  const known = { ...bench.context, controllers }
  const away = {
    ...known,
    model: { readBarrier: () => Promise.reject(new StoreError('no answer')) }
  } as never
  const standing = ['compute', 'copy']

  const noAnswer = new StoreError('no answer')
  await t.rejects(clone(bench.job(), unanswered(false, noAnswer)), noAnswer)
  t.strictSame(readdirSync(bench.path('images')).sort(), standing)
  const [note] = [...notes.undecided] as [never]
  await t.rejects(decide(away, note), /no answer/)
  t.strictSame(readdirSync(bench.path('images')).sort(), standing, 'not known so far')
  t.equal(await decide(known, note), true)
  await removeHidden(known, note)
  none('it was not stored')
  t.equal(notes.undecided.size, 0)

  await t.rejects(clone(bench.job(), unanswered(false, new NotLeaderError())), NotLeaderError)
  none('another controller writes: it is sure that nothing was stored')

  await t.rejects(clone(bench.job(), unanswered(true, noAnswer)), noAnswer)
  const [stored] = [...notes.undecided] as [never]
  t.equal(await decide(known, stored), true)
  await removeHidden(known, stored)
  t.strictSame(readdirSync(bench.path('images')).sort(), standing, 'the image that is stored has it')
  t.strictSame(notesIn(bench.path('state')), [])

  // The same where svcd is started again before it is known.
  await output('rm', ['-rf', '--one-file-system', bench.path('images', 'copy')])
  for (const type of ['osimage', 'tree'] as const) await bench.put(tx => tx.remove(type, 'copy'))
  await t.rejects(clone(bench.job(), unanswered(false, noAnswer)), noAnswer)
  await (await recover(known))()
  none('after a start')
})
