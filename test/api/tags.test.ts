import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { difference, plainFiles } from '../support/state.js'

const none = { token: null }

/** Images `a`, `b` and `c`, each with files named after it. */
async function images(t: Test): Promise<Controller> {
  const controller = await Controller.start(t)
  for (const name of ['a', 'b', 'c']) await controller.post(`/config/osimage/${name}`, filesOf(name))
  return controller
}

const filesOf = (name: string) => ({
  kernelfile: `vmlinuz-${name}`,
  initrdfile: `initrd-${name}`,
  imagefile: `${name}.tar.gz`
})
const entry = (osimage: string, tag: string) => ({ name: tag, osimage, ...filesOf(osimage) })
const tag = (c: Controller, image: string, name: string) =>
  c.post(`/config/osimage/${image}/tag`, { tag: name })
const untag = (c: Controller, image: string, name: string) =>
  c.get(`/config/osimage/${image}/osimagetag/${name}/_delete`)
const tagsOf = async (c: Controller, image = '') =>
  (await c.get(`/config/osimagetag${image && `/${image}`}`)).body.config.osimagetag

// rules 1.2
t.test(
  'a tag that several images use: the first has the plain key, the oldest other one takes it',
  async t => {
    const c = await images(t)
    t.same(await tagsOf(c), {}, 'none yet')
    for (const image of ['b', 'a', 'c']) t.equal((await tag(c, image, 'v1')).status, 204)
    const all = { v1: entry('b', 'v1'), 'a:v1': entry('a', 'v1'), 'c:v1': entry('c', 'v1') }
    t.same(await tagsOf(c), all)
    for (const image of ['a', 'b', 'c'])
      t.same(await tagsOf(c, image), { v1: entry(image, 'v1') }, `of ${image} alone: plain`)
    t.same((await c.get('/config/osimagetag', none)).body.config.osimagetag, {
      v1: { name: 'v1' },
      'a:v1': { name: 'v1' },
      'c:v1': { name: 'v1' }
    })
    await c.restart()
    t.same(await tagsOf(c), all, 'as they were, after a restart')

    await tag(c, 'b', 'v1')
    t.same(await tagsOf(c), all, 'tagged again, it keeps its age')
    t.equal((await untag(c, 'b', 'v1')).status, 204)
    const left = { v1: entry('a', 'v1'), 'c:v1': entry('c', 'v1') }
    t.same(await tagsOf(c), left, 'the oldest of the others')
    await tag(c, 'b', 'v1')
    t.same(await tagsOf(c), { ...left, 'b:v1': entry('b', 'v1') }, 'who comes back is the youngest')
    await c.restart()
    t.same(await tagsOf(c), { ...left, 'b:v1': entry('b', 'v1') })

    t.equal((await c.get('/config/osimage/a/_delete')).status, 204, 'an image goes with its tags')
    t.same(await tagsOf(c), { v1: entry('c', 'v1'), 'b:v1': entry('b', 'v1') })
    t.equal((await c.get('/config/osimagetag/a')).status, 404)
  }
)

// rules 1.2
t.test('a tag pins the files of its moment; tagged again, those of now', async t => {
  const c = await images(t)
  await tag(c, 'a', 'stable')
  await c.post('/config/osimage/a', { kernelfile: 'vmlinuz-new', imagefile: null })
  t.same(await tagsOf(c, 'a'), { stable: entry('a', 'stable') })
  const before = await plainFiles(c)
  t.equal((await tag(c, 'a', 'stable')).status, 204)
  t.same(await tagsOf(c, 'a'), {
    stable: { ...entry('a', 'stable'), kernelfile: 'vmlinuz-new', imagefile: null }
  })
  t.same(Object.keys(difference(before, await plainFiles(c))), ['osimagetag/a:stable.json'])
})

// rules 1.2
t.test('a node boots the files of its tag', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  await tag(c, 'compute', 'stable')
  for (const name of ['vmlinuz-2', 'initrd-2', 'compute-2.tar.gz']) c.file(name)
  const files = { kernelfile: 'vmlinuz-2', initrdfile: 'initrd-2', imagefile: 'compute-2.tar.gz' }
  await c.post('/config/osimage/compute', files)
  const mac = '52:54:00:00:00:01'
  await c.post('/config/node/n1', { group: 'compute', macaddr: mac })
  const kernel = async () => /\/boot\/(vmlinuz\S*)/.exec((await c.get(`/boot/search/${mac}`, none)).text)?.[1]
  const packed = async () => {
    const { text } = await c.get('/boot/install/n1', { token: null, source: '10.141.0.1' })
    return /^SVC_IMAGEFILE='(.*)'$/m.exec(text)?.[1]
  }
  t.same(
    [await kernel(), await packed()],
    ['vmlinuz-2', 'compute-2.tar.gz'],
    'without a tag: the current ones'
  )
  await c.post('/config/group/compute', { osimagetag: 'stable' })
  t.same([await kernel(), await packed()], ['vmlinuz', 'compute.tar.gz'], "its group's tag")
  for (const name of ['vmlinuz', 'vmlinuz-2'])
    t.equal((await c.get(`/boot/${name}`, none)).status, 200, `${name} is served`)
  await c.post('/config/node/n1', { osimagetag: 'default', _override: true })
  t.same([await kernel(), await packed()], ['vmlinuz-2', 'compute-2.tar.gz'], 'its own: the current ones')
})

// rules 2.4
t.test('a tag in use is not deleted, and its users are named', async t => {
  const c = await images(t)
  await tag(c, 'a', 'v1')
  await tag(c, 'b', 'v1')
  await c.post('/config/group/g', { osimage: 'a', osimagetag: 'v1' })
  await c.post('/config/node/own', { osimage: 'a', osimagetag: 'v1' })
  await c.post('/config/node/inherits', { group: 'g' })
  await c.post('/config/node/other', { osimage: 'b', osimagetag: 'v1' })
  await c.post('/config/node/untagged', { osimage: 'a' })
  const before = await plainFiles(c)
  const refused = await untag(c, 'a', 'v1')
  t.equal(refused.status, 400)
  t.match(refused.body.message, /v1 .* 2: group g, node own$/)
  t.same(difference(before, await plainFiles(c)), {}, 'nothing changed')
  const members = (await c.get('/config/osimagetag/a/_member')).body.config.osimagetag.a.members
  t.same(members, ['inherits', 'own'], 'members: effective image and tag')
  await c.post('/config/group/g', { osimagetag: null })
  await c.post('/config/node/own', { osimagetag: '' })
  t.equal((await untag(c, 'a', 'v1')).status, 204)
  t.same(await tagsOf(c), { v1: entry('b', 'v1') })
})

// rules 1.2
t.test('a group or node may only have a tag that its image has', async t => {
  const c = await images(t)
  await tag(c, 'a', 'v1')
  await c.post('/config/group/g', { osimage: 'a' })
  await c.post('/config/node/n', { group: 'g' })
  const before = await plainFiles(c)
  const refused: [string, object, RegExp][] = [
    ['node/n', { osimagetag: 'v2' }, /node n: .*a has no tag v2/],
    ['node/n', { osimage: 'b', osimagetag: 'v1' }, /node n: .*b has no tag v1/],
    ['group/g', { osimagetag: 'v2' }, /group g: .*a has no tag v2/],
    ['group/h', { osimagetag: 'v1' }, /group h: .*v1 needs an OS image/]
  ]
  for (const [path, body, says] of refused) {
    const { status, body: answer } = await c.post(`/config/${path}`, body)
    t.equal(status, 400, path)
    t.match(answer.message, says)
  }
  t.same(difference(before, await plainFiles(c)), {}, 'nothing changed')
  t.equal((await c.post('/config/node/n', { osimagetag: 'v1' })).status, 204)
  const moved = await c.post('/config/group/g', { osimage: 'b' })
  t.equal(moved.status, 400, 'a member would be left with a tag that the new image lacks')
  t.match(moved.body.message, /node n: .*b has no tag v1/)
})

// rules 1.2
t.test('default is always valid, and is neither created nor deleted', async t => {
  const c = await images(t)
  const before = await plainFiles(c)
  for (const reply of [await tag(c, 'a', 'default'), await untag(c, 'a', 'default')]) {
    t.equal(reply.status, 400)
    t.match(reply.body.message, /OS image a.*default/)
  }
  for (const body of [{ tag: 'a:b' }, { tag: '' }, { tag: null }, { tag: 5 }, { tag: 'x', color: 1 }])
    t.equal((await c.post('/config/osimage/a/tag', body)).status, 400, JSON.stringify(body))
  t.same(difference(before, await plainFiles(c)), {}, 'nothing changed')
  t.equal((await c.post('/config/node/n', { osimagetag: 'default', _override: true })).status, 201)
})

t.test('a rename of the image carries its tags, there and back', async t => {
  const c = await images(t)
  for (const image of ['a', 'b']) await tag(c, image, 'v1')
  await tag(c, 'a', 'v2')
  await c.post('/config/node/n', { osimage: 'a', osimagetag: 'v2' })
  const before = await plainFiles(c)
  t.equal((await c.post('/config/osimage/a', { newosimage: 'z' })).status, 204)
  const files = filesOf('a')
  t.same(await tagsOf(c), {
    v1: { name: 'v1', osimage: 'z', ...files },
    v2: { name: 'v2', osimage: 'z', ...files },
    'b:v1': entry('b', 'v1')
  })
  t.match((await c.get('/config/node/n')).body.config.node.n, { osimage: 'z', osimagetag: 'v2' })
  await c.post('/config/osimage/z', { newosimage: 'a' })
  t.same(difference(before, await plainFiles(c)), {}, 'every file as it was')
})

t.test('export and import keep tags and their ages', async t => {
  const c = await images(t)
  for (const image of ['b', 'a', 'c']) await tag(c, image, 'v1')
  await tag(c, 'a', '10')
  const document = (await c.get('/config/cluster/export')).text
  const files = await plainFiles(c)
  const empty = await Controller.start(t)
  t.equal((await empty.post('/config/cluster/import', document)).status, 201)
  const own = (found: Record<string, unknown>) =>
    Object.entries(found).filter(([path]) => path.startsWith('osimagetag/'))
  t.same(own(await plainFiles(empty)), own(files), 'the same files')
  await untag(empty, 'b', 'v1')
  t.same(await tagsOf(empty), { 10: entry('a', '10'), v1: entry('a', 'v1'), 'c:v1': entry('c', 'v1') })

  const shrunk = JSON.parse(document).config
  delete shrunk.osimage.b
  t.equal((await c.post('/config/cluster/import', { osimage: shrunk.osimage })).status, 201)
  t.same(
    await tagsOf(c),
    { 10: entry('a', '10'), v1: entry('a', 'v1'), 'c:v1': entry('c', 'v1') },
    'tags of an image that an import takes away go with it, and the oldest other one takes the plain key'
  )
  await c.restart()
  t.same(Object.keys(await tagsOf(c)).sort(), ['10', 'c:v1', 'v1'])
})
