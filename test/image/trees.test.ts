import { mkdirSync, readdirSync, renameSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ServiceError } from '../../lib/base/errors.js'
import { newNoteId, temporary } from '../../lib/image/notes.js'
import { treeToPush } from '../../lib/image/transfers.js'
import { decide, forgetTree, recover, removeHidden, removeTree } from '../../lib/image/tree-changes.js'
import { TreeReconciler } from '../../lib/image/tree-reconciler.js'
import { imageTree, treeOf } from '../../lib/image/trees.js'
import { daemonActor } from '../../lib/model/model.js'
import { StoreError } from '../../lib/store/errors.js'
import { Bench } from './bench.js'
import { place } from './place.js'
import { requireRootAndPrograms } from './rich-tree.js'

requireRootAndPrograms()

t.test('the directory of an image is strictly below [image] directory', async t => {
  const { directory, images } = place(t)
  const link = (name: string, target: string) => symlinkSync(target, join(images, name))
  link('current', 'compute')
  link('out', '/etc')
  link('out-relative', '../images-of-others/x')
  link('itself', '.')
  link('dangling', 'nowhere')
  link('circle', 'circle')
  mkdirSync(join(images, 'deep'))
  link('deep/out', '../../images-of-others')
  symlinkSync(images, join(directory, 'other-way'))

  for (const [path, real] of [
    ['compute', 'compute'],
    ['compute/boot', 'compute/boot'],
    ['compute/', 'compute'],
    ['.//compute/.', 'compute'],
    ['current', 'compute']
  ] as const)
    t.equal(await imageTree(images, 'compute', `${images}/${path}`), join(images, real))
  const home = join(directory, 'other-way')
  t.equal(await imageTree(home, 'compute', join(home, 'compute')), join(images, 'compute'))
  t.equal(await imageTree(home, 'compute', join(images, 'compute')), join(images, 'compute'))
  t.equal(await imageTree(images, 'compute', join(home, 'compute')), join(images, 'compute'))

  const refused = async (path: string, why: string, home = images) =>
    t.rejects(
      imageTree(home, 'compute', path),
      new ServiceError(
        503,
        `OS image compute: path ${path} is no directory below [image] directory ${home}: ${why}`,
        {},
        { code: 'image-unusable' }
      )
    )
  await refused(images, 'it is that directory itself')
  await refused(`${images}/`, 'it is that directory itself')
  await refused(`${images}/itself`, 'it is that directory itself')
  await refused(`${images}/../images/compute`, 'it holds ..')
  await refused(`${images}/compute/..`, 'it holds ..')
  await refused('compute', 'it is relative')
  await refused('', 'it is relative')
  await refused('/etc', 'it leads to /etc')
  await refused('/', 'it leads to /')
  await refused(directory, `it leads to ${directory}`)
  await refused(`${images}-of-others/x`, `it leads to ${images}-of-others/x`)
  await refused(`${images}/out`, 'it leads to /etc')
  await refused(`${images}/out/ssl`, 'it leads to /etc/ssl')
  await refused(`${images}/out-relative`, `it leads to ${images}-of-others/x`)
  await refused(`${images}/deep/out/x`, `it leads to ${images}-of-others/x`)
  await refused(`${images}/file`, 'it is a file')
  await refused(`${images}/file/inner`, 'it: ENOTDIR')
  await refused(`${images}/nowhere`, 'it does not exist')
  await refused(`${images}/dangling`, 'it does not exist')
  await refused(`${images}/circle`, 'it: ELOOP')
  await refused(`${images}/$(touch pwned)`, 'it does not exist')
  await refused(`${images}/compute`, 'that directory does not exist', join(directory, 'nowhere'))
  const config = { image: { directory: images } } as never
  const absent = `OS image absent: field "path" is not set, and there is no ${images}/absent: set path, or make that directory`
  await t.rejects(treeOf({ config }, { name: 'absent' }), { message: absent })
  const path = `${images}/nowhere`
  const nowhere = `OS image absent: path ${path} is no directory below [image] directory ${images}: it does not exist`
  await t.rejects(treeOf({ config }, { name: 'absent', path }), { message: nowhere })
  // rules 9.15
  const several = { config, controllers: { own: 'c2' } as never }
  const unknown =
    '; controller c2, which writes, has looked: a directory on another one is known once that one writes (stop svcd on the others for ' +
    'a moment)'
  await t.rejects(treeOf(several, { name: 'absent' }), { status: 503, message: `${absent}${unknown}` })
  await t.rejects(treeOf(several, { name: 'absent', path }), { message: `${nowhere}${unknown}` })
  await t.rejects(treeOf(several, { name: 'absent', controller: 'c2' }), {
    message: `${absent}; controller c2, which had the directory, has looked`
  })
  await t.rejects(treeToPush(several as never, { name: 'absent' } as never), {
    status: 404,
    message: `OS image absent has no directory: there is no ${images}/absent${unknown}`
  })
  await t.rejects(imageTree(images, 'compute', `${images}/a\0b`), /ERR_INVALID_ARG_VALUE/)
})

// rules 9.15
t.test(
  'a directory from before there were several controllers is removed by the one that has it',
  async t => {
    const bench = await Bench.open(t)
    const old = { name: 'old', osimage: 'old', at: 1, abandoned: true } as const
    await bench.put(tx => tx.put('tree', 'old', old))
    const controllers = { own: 'c2', others: () => ['c1'], outOfPlace: () => [] }
    const context = { ...bench.context, controllers } as never
    const asked: string[] = []
    const submit = async ({ object }: { readonly object: string }) => {
      asked.push(object)
      return { id: '', name: '', done: Promise.resolve() }
    }
    const trees = new TreeReconciler(context, { submit })
    await trees.removeAbandoned(daemonActor)
    t.same(asked, [], 'it may be on another one')
    mkdirSync(bench.path('images', 'old'))
    await trees.removeAbandoned(daemonActor)
    t.same(asked, ['OS image old'])
  }
)

// rules 9.15
t.test('a standby removes what is left of a directory whose record is gone by now', async t => {
  const bench = await Bench.open(t)
  const { notes } = bench.context
  const note = { kind: 'removal', id: newNoteId(), target: 'old' } as const
  await notes.write(note)
  mkdirSync(bench.path('images', temporary(note.id)))
  const change = async () => {
    throw new Error('another controller writes')
  }
  const context = { ...bench.context, model: { view: bench.context.model.view, change } } as never
  await (await recover(context))()
  t.same(readdirSync(bench.path('images')), [], bench.log.join('\n'))
  t.same(notes.left, [])
})

/** Controller c1 has the directory of the image copy, which is deleted. */
async function deleted(t: Test) {
  const bench = await Bench.open(t)
  const { notes, model } = bench.context
  const images = bench.path('images')
  await bench.put(tx =>
    tx.put('tree', 'copy', { name: 'copy', osimage: 'copy', at: 1, controller: 'c1', abandoned: true })
  )
  mkdirSync(bench.path('images', 'copy'))
  /** Returns the context of one of several controllers; `other` replaces members of the model. */
  const as = (other: object = {}, ownsObjects = true) =>
    ({
      ...bench.context,
      ownsObjects: () => ownsObjects,
      controllers: { own: 'c1', others: () => ['c2'] },
      model: {
        ...{ view: model.view, readBarrier: async () => {} },
        change: model.change.bind(model),
        ...other
      }
    }) as never
  const follower = () => as({ change: () => Promise.reject(new StoreError('c2 writes')) }, false)
  const used = () => bench.put(tx => tx.put('osimage', 'new', { name: 'new', path: `${images}/copy` }))
  /** Leaves a removal that has given the directory its hidden name. */
  const hidden = async () => {
    const note = { kind: 'removal', id: newNoteId(), target: 'copy', at: 1 } as const
    await notes.write(note)
    renameSync(bench.path('images', 'copy'), bench.path('images', temporary(note.id)))
    return note
  }
  const left = () => notes.left
  const stands = async (what: string) => {
    t.same(readdirSync(images), ['copy'], what)
    t.same(left(), [], `${what}: no note is left`)
  }
  const remove = (context: never, signal = new AbortController().signal) =>
    removeTree(
      context,
      'copy',
      bench.job(() => {}, signal)
    )
  return { bench, images, notes, as, follower, used, hidden, left, stands, remove }
}

// rules 9.15
t.test('the directory of a deleted image stays where this controller is not known to write', async t => {
  const { as, stands, remove, images } = await deleted(t)
  const cutOff = async () => {
    throw new StoreError('etcd does not answer')
  }
  await t.rejects(remove(as({ readBarrier: cutOff })), /etcd does not answer/)
  await stands('cut off')
  const stop = new AbortController()
  const context = as({ readBarrier: async () => stop.abort(new Error('another controller writes now')) })
  await t.rejects(remove(context, stop.signal), /another controller writes now/)
  await stands('stopped meanwhile')
  t.equal(await remove(as()), true)
  t.same(readdirSync(images), [])
})

// rules 3.12, 9.15
t.test('a directory that an image is in by now has its name again', async t => {
  const { bench, as, used, stands, remove } = await deleted(t)
  const { model } = bench.context
  let changes = 0
  const context = as({
    change: async (...change: Parameters<typeof model.change>) => {
      // It removes the record.
      changes++
      t.not(readdirSync(bench.path('images'))[0], 'copy')
      await used()
      return model.change(...change)
    }
  })
  t.equal(await remove(context), false)
  t.equal(changes, 1)
  await stands('the image was made while it was hidden')
  t.match(model.view.get('tree', 'copy'), { abandoned: true })
})

// rules 9.12, 9.15
t.test('an interrupted removal is undone where an image is in the directory by now', async t => {
  for (const isReadOnly of [false, true]) {
    const { as, follower, used, hidden, stands } = await deleted(t)
    await hidden()
    await used()
    await (await recover(isReadOnly ? follower() : as()))()
    await stands(isReadOnly ? 'by a standby' : 'by the one that writes')
  }
  const { bench, follower, hidden, stands } = await deleted(t)
  await hidden()
  await bench.put(tx => tx.put('tree', 'copy', { name: 'copy', osimage: 'new', at: 1, controller: 'c1' }))
  await (await recover(follower()))()
  await stands('another image has it')
})

// rules 9.15
t.test('a standby keeps what an interrupted removal has hidden until the record is gone', async t => {
  const { bench, notes, follower, hidden, left, images, remove } = await deleted(t)
  const note = await hidden()
  await (await recover(follower()))()
  t.same(
    bench.log.filter(line => line.includes('not put right')),
    []
  )
  t.same(readdirSync(images), [temporary(note.id)])
  t.same(left(), [note])
  // The directory is out of its place.
  t.equal(await remove(follower()), true)
  const [undecided] = [...notes.undecided] as [never]
  t.match(undecided, note)
  t.equal(notes.undecided.size, 1)
  t.equal(await decide(follower(), undecided), false)
  t.match([...notes.undecided], [note], 'the record is there still')
  await forgetTree(bench.context, 'copy')
  t.equal(await decide(follower(), undecided), true)
  await removeHidden(follower(), undecided)
  t.same([...notes.undecided], [])
  t.same(readdirSync(images), [])
  t.same(left(), [])
})

// rules 9.15
t.test('a directory that a follower has hidden goes when its record is gone', async t => {
  const { bench, notes, as, follower, used, left, stands, images, remove } = await deleted(t)
  t.equal(await remove(follower()), true)
  const [note] = [...notes.undecided] as [never]
  t.match(note, { kind: 'removal', target: 'copy', at: 1 })
  t.same(readdirSync(images), [temporary((note as { id: string }).id)], 'it is whole so far')
  await used()
  t.equal(await decide(follower(), note), false)
  await stands('the one that writes did not store it')

  await bench.put(tx => tx.remove('osimage', 'new'))
  t.equal(await remove(follower()), true)
  const [again] = [...notes.undecided] as [never]
  // This controller takes over.
  t.equal(await decide(as(), again), true)
  await removeHidden(as(), again)
  t.same([readdirSync(images), left()], [[], []])
  t.equal(bench.context.model.view.get('tree', 'copy'), undefined)
})

// rules 9.12
t.test('what an interrupted removal has hidden is not taken for a later directory of its name', async t => {
  const { bench, follower, hidden, images, left } = await deleted(t)
  await hidden()
  const later = { name: 'copy', osimage: 'copy', at: 2, controller: 'c2' }
  await bench.put(tx => tx.put('tree', 'copy', later))
  await (await recover(follower()))()
  t.same([readdirSync(images), left()], [[], []])
  t.same(bench.context.model.view.get('tree', 'copy'), later)
})

// rules 9.15
t.test('a removal of which etcd gave no answer is decided when it is known', async t => {
  const { bench, as, notes, images, left, remove } = await deleted(t)
  const { model } = bench.context
  // It is cut off once the directory has its hidden name.
  const ask = async () => {
    if (readdirSync(images)[0] !== 'copy') throw new StoreError('etcd does not answer')
  }
  const change = (...change: Parameters<typeof model.change>) => ask().then(() => model.change(...change))
  const context = as({ readBarrier: ask, change })
  await t.rejects(remove(context), /etcd does not answer/)
  const [note] = [...notes.undecided] as [never]
  await t.rejects(decide(context, note), /etcd does not answer/)
  t.same([...notes.undecided], [note])
  t.equal(await decide(as(), note), true)
  await removeHidden(as(), note)
  t.same([readdirSync(images), left()], [[], []])
})
