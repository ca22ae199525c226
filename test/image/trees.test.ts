import { mkdirSync, readdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ServiceError } from '../../lib/errors.js'
import { newIntentId, temporary } from '../../lib/image/intents.js'
import { treeToPush } from '../../lib/image/push.js'
import { recover } from '../../lib/image/recovery.js'
import { abandonedTrees } from '../../lib/image/removal.js'
import { imageTree, treeOf } from '../../lib/image/trees.js'
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
        `OS image compute: path ${path} is no directory below [image] directory ${home}: ${why}`
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
    const context = { ...bench.context, controllers: { own: 'c2', others: () => ['c1'] } } as never
    t.same(await abandonedTrees(context), [], 'it may be on another one')
    mkdirSync(bench.path('images', 'old'))
    t.match(await abandonedTrees(context), [old])
  }
)

// rules 9.15
t.test('a standby removes what is left of a directory whose record is gone by now', async t => {
  const bench = await Bench.open(t)
  const { intents } = bench.context
  const note = { kind: 'removal', id: newIntentId(), target: 'old' } as const
  await intents.write(note)
  mkdirSync(bench.path('images', temporary(note.id)))
  const change = async () => {
    throw new Error('another controller writes')
  }
  const context = { ...bench.context, model: { view: bench.context.model.view, change } } as never
  await (await recover(context))()
  t.same(readdirSync(bench.path('images')), [], bench.log.join('\n'))
  t.same(await intents.left(() => {}), [])
})
