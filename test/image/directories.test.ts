import { existsSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { notesIn } from '../support/notes.js'
import { output, requireRoot } from '../support/programs.js'
import { until } from '../support/until.js'
import { beginning } from './imaging.js'
import { makeTree, small } from './small-tree.js'

// rules 9.5
t.test('clone: the directory too, its packed files shared, nothing overwritten', async t => {
  const { c, images, tree, image, pack, clean } = await beginning(t, {
    ...small,
    'etc/link': '-> ../../../../etc'
  })
  await pack()
  const clone = (body: object, name = 'compute') => c.post(`/config/osimage/${name}/_clone`, body)
  const made = await clone({ newosimage: 'copy', comment: 'a copy' })
  t.equal(made.status, 201, made.text)
  t.match(made.body.message, /cloned to copy/)
  const source = await image()
  t.same(await image('copy'), { ...source, name: 'copy', comment: 'a copy', path: join(images, 'copy') })
  const sums = (tree: string) =>
    output('sh', ['-c', 'cd "$1" && find . -printf "%p %y %m %U %T@ %l\\n" | sort', '', tree])
  t.equal(await sums(join(images, 'copy')), await sums(tree))
  t.equal((await pack('copy')).status, 204)
  t.match(await image('copy'), { imagefile: /^copy-/ })
  const before = c.state()
  for (const [body, status, says] of [
    [{}, 404, /"newosimage" is missing/],
    [{ newosimage: 'copy' }, 400, /copy exists already/],
    [{ newosimage: 'taken' }, 400, /taken exists already/],
    [{ newosimage: 'x', path: '/etc' }, 400, /"path": the files of the clone go to/],
    [{ newosimage: '../x' }, 400, /"newosimage" must be/]
  ] as const) {
    makeTree(join(images, 'taken'), { mine: 'mine' })
    const answer = await clone(body)
    t.equal(answer.status, status, answer.text)
    t.match(answer.body.message, says)
  }
  t.equal((await clone({ newosimage: 'y' }, 'none')).status, 404)
  t.same(c.state(), before)
  t.equal(readFileSync(join(images, 'taken', 'mine'), 'utf8'), 'mine')
  clean('after clones')
  // The source read back and posted with a new name.
  t.equal((await clone({ ...source, newosimage: 'third' })).status, 201)
  t.match(await image('third'), { path: join(images, 'third') })
  // Without a directory there is nothing but the object.
  await c.post('/config/osimage/bare', { comment: 'bare' })
  t.equal((await clone({ newosimage: 'bare2' }, 'bare')).status, 201)
  t.match(await image('bare2'), { comment: 'bare', path: null })
})

// rules 3.12, 9.6
t.test('delete: what svcd made goes, another path stays', async t => {
  const { c, images, tree, directory, pack } = await beginning(t, small, 'image.grace=0s')
  await c.post('/config/osimage/compute/_clone', { newosimage: 'copy' })
  await pack('copy')
  await c.post('/config/osimage/copy/tag', { tag: 'v1' })
  symlinkSync('copy/usr', join(images, 'alias'))
  await c.post('/config/osimage/shares', { path: join(images, 'alias') })
  const removed = async (name: string) => {
    t.equal((await c.get(`/config/osimage/${name}/_delete`)).status, 204)
    await c.idle()
    await c.daemon.images.packs.run()
  }
  await removed('compute')
  t.ok(existsSync(tree), 'a directory that svcd did not make stays')
  await removed('copy')
  t.ok(existsSync(join(images, 'copy')), 'another image uses it')
  t.strictSame(readdirSync(directory), [], 'its packs are gone')
  t.strictSame(c.state()['osimagetag/copy:v1.json'], undefined)
  await c.post('/config/osimage/copy', { path: `${join(images, 'copy')}/` })
  await removed('shares')
  t.ok(existsSync(join(images, 'copy')), 'shares did not own it')
  await removed('copy')
  t.notOk(existsSync(join(images, 'copy')), 'its last user is gone')
  t.strictSame(Object.keys(c.state()), [], 'no object is left')
})

t.test('delete: a tree with something mounted in it stays until the next start', async t => {
  requireRoot()
  const { c, images, ended } = await beginning(t)
  await c.post('/config/osimage/compute/_clone', { newosimage: 'copy' })
  const mounted = join(images, 'copy', 'tmp')
  await output('mount', ['-t', 'tmpfs', 'tmpfs', mounted])
  try {
    t.equal((await c.get('/config/osimage/copy/_delete')).status, 204)
    t.match(await ended('delete'), { state: 'failed', message: /something is mounted at .*copy\/tmp/ })
    t.ok(existsSync(mounted))
  } finally {
    await output('umount', [mounted])
  }
  await c.restart()
  await c.daemon.images.recovered
  await c.idle()
  t.strictSame(readdirSync(images), ['compute'])
})

// rules 9.1
t.test('a rename carries the directory along that the image has by its name', async t => {
  const { c, images, image, pack } = await beginning(t)
  await c.post('/config/osimage/own', { path: join(images, 'own') })
  makeTree(join(images, 'own'))
  makeTree(join(images, 'other'), { 'boot/vmlinuz-1': 'another' })
  const before = c.state()
  const rename = async (name: string, to: string) =>
    t.equal((await c.post(`/config/osimage/${name}`, { newosimage: to })).status, 204)
  await rename('compute', 'other')
  t.equal((await pack('other')).status, 204, 'not the directory that has the new name by chance')
  t.match(await image('other'), { kernelversion: '6.1.0-10' })
  await rename('other', 'third')
  t.equal((await pack('third')).status, 204)
  await c.post('/config/osimage/third', {
    ...{ imagefile: null, kernelfile: null, initrdfile: null, kernelversion: null }
  })
  await rename('third', 'compute')
  await rename('own', 'x')
  await rename('x', 'own')
  const objects = (state: Record<string, string>) =>
    Object.fromEntries(Object.entries(state).filter(([path]) => path.startsWith('osimage/')))
  t.same(objects(c.state()), objects(before), 'and back, every byte')
  await c.post('/config/osimage/bare', {})
  await rename('bare', 'bald')
  t.equal((await image('bald')).path, null, 'where there is none, none is named')
})

// rules 9.1
t.test('two images never mean one directory unless both name it', async t => {
  const { c, tree, image, pack } = await beginning(t)
  const post = (name: string, body: object) => c.post(`/config/osimage/${name}`, body)
  t.equal((await post('compute', { newosimage: 'other' })).status, 204)
  t.equal((await image('other')).path, tree, 'a plain path')
  await post('bare', {})
  await post('named', { path: tree })
  const before = c.state()
  for (const [name, body] of [
    ['compute', {}],
    ['compute', { comment: 'new' }],
    ['bare', { newosimage: 'compute' }]
  ] as const) {
    const { status, body: answer } = await post(name, body)
    t.equal(status, 400)
    t.match(
      answer.message,
      /^OS image compute: the directory \S*\/compute is that of OS image (named|other): .*"path"/
    )
  }
  const cloned = await c.post('/config/osimage/bare/_clone', { newosimage: 'compute' })
  t.equal(cloned.status, 400, cloned.text)
  t.same(c.state(), before)
  t.equal((await post('other', { newosimage: 'compute' })).status, 204)
  t.equal((await image()).path, tree, 'named still meanwhile: it is named by both')
  t.equal((await post('compute', { path: null })).status, 400, 'another one names it')
  await post('named', { path: null })
  t.equal((await post('compute', { path: null })).status, 204)
  const alone = c.state()
  for (const [name, path] of [
    ['named', tree],
    ['named', `${tree}/`],
    ['new', tree]
  ] as const) {
    const { status, body } = await post(name, { path })
    t.equal(status, 400)
    t.equal(
      body.message,
      `OS image ${name}: the directory ${tree} is that of OS image compute: choose another one, or give OS image ` +
        'compute this "path" first'
    )
  }
  t.same(c.state(), alone)
  t.equal((await post('compute', { path: tree })).status, 204, 'the way out')
  t.equal((await post('named', { path: tree })).status, 204, 'both name it')
  t.equal((await pack()).status, 204)
})

// rules 9.1, 3.11
t.test('an import shares no directory that one of two images has by its name alone', async t => {
  const { c, images, tree } = await beginning(t)
  await c.post('/config/osimage/compute', { newosimage: 'other' })
  const before = c.state()
  const imported = (osimage: object) => c.post('/config/cluster/import', { config: { osimage } })
  const shared = `the directory ${tree} is that of OS image other: choose another name, or give field "path"`
  const refused = await imported({ compute: {}, other: { path: tree } })
  t.equal(refused.status, 404)
  t.equal(refused.body.message, `import refused: config.osimage.compute: OS image compute: ${shared}`)
  const both = await imported({ a: {}, b: { path: join(images, 'a') }, c: { path: join(images, 'a') } })
  t.equal(both.status, 404)
  t.match(both.body.message, /image a: .* image b: .*; config\.osimage\.a: .* image c: /)
  t.same(c.state(), before)
  t.equal((await imported({ compute: { path: tree }, other: { path: tree } })).status, 201, 'both name it')
  t.equal((await imported({ compute: {}, other: { path: null } })).status, 201)
})

// rules 3.12, 9.6
t.test('delete: what svcd made for an image goes with it, whatever its path is by then', async t => {
  const { c, images, ended } = await beginning(t)
  const deleted = async (name: string) => {
    t.equal((await c.get(`/config/osimage/${name}/_delete`)).status, 204)
    return ended('delete')
  }
  const clone = (newosimage: string) => c.post('/config/osimage/compute/_clone', { newosimage })
  await clone('copy')
  makeTree(join(images, 'mine'))
  await c.post('/config/osimage/copy', { path: join(images, 'mine'), newosimage: 'moved' })
  t.match(await deleted('moved'), { state: 'done', object: 'OS image moved' })
  t.strictSame(readdirSync(images).sort(), ['compute', 'mine'])
  t.equal((await clone('copy')).status, 201, 'its name is free')
  await c.post('/config/osimage/user', { path: join(images, 'copy') })
  t.equal((await c.get('/config/osimage/copy/_delete')).status, 204)
  t.match(JSON.parse(c.state()['tree/copy.json'] ?? ''), { osimage: 'user' }, 'who is in it takes it over')
  await c.post('/config/osimage/user', { path: null })
  await deleted('user')
  // The delete that has ended may be the one before; what is removed has a hidden name meanwhile.
  await until(() => !readdirSync(images).some(name => name === 'copy' || name.startsWith('.svcd-')))
  t.strictSame(readdirSync(images).sort(), ['compute', 'mine'])
})

// rules 9.5, 9.8
t.test('what is mounted in an image is not read', async t => {
  requireRoot()
  const { c, images, tree, pack, directory } = await beginning(t)
  makeTree(join(c.directory, 'outside'), { 'vmlinuz-9': 'outside', secret: 'outside' })
  await c.post('/config/network/loop', { network: '127.0.0.0/8' })
  await c.post('/config/group/loop', { interfaces: [{ interface: 'BOOTIF', network: 'loop' }] })
  await c.post('/config/node/l1', { group: 'loop' })
  const asked = async (mounted: string) => {
    await output('mount', ['--bind', join(c.directory, 'outside'), mounted])
    try {
      return {
        clone: await c.post('/config/osimage/compute/_clone', { newosimage: 'copy' }),
        node: await c.post('/config/node/l1/_ospush', { osimage: 'compute' }),
        group: await c.post('/config/group/loop/_ospush', { osimage: 'compute' }),
        pack: await pack()
      }
    } finally {
      await output('umount', [mounted])
    }
  }
  const inside = await asked(join(tree, 'tmp'))
  for (const { status, body } of [inside.clone, inside.node, inside.group]) {
    t.equal(status, 503)
    t.match(body.message, /OS image compute: .* something is mounted at .*compute\/tmp/)
  }
  t.equal(inside.pack.status, 204, 'a pack leaves it out')
  const boot = await asked(join(tree, 'boot'))
  t.equal(boot.pack.status, 503)
  t.match(boot.pack.body.message, /^pack of OS image compute: .*boot\/vmlinuz-9.*something is mounted there/)
  t.strictSame(readdirSync(images), ['compute'])
  t.strictSame(
    readdirSync(directory).filter(name => /vmlinuz-9/.test(name)),
    []
  )
})

// rules 9.2
t.test('a path that is changed while a request waits', async t => {
  const { c, images, pack, ended, hold, image } = await beginning(t)
  makeTree(join(images, 'other'))
  const gate = await hold('osimage compute')
  const headers = { Prefer: 'respond-async' }
  t.equal((await c.get('/config/osimage/compute/_pack', { headers })).status, 200)
  await c.post('/config/osimage/compute', { path: join(images, 'other') })
  gate.end()
  t.match(await ended('pack'), {
    state: 'failed',
    message: /OS image compute: field "path" was changed while the request waited/
  })
  t.equal((await image()).imagefile, null)
  t.equal((await pack()).status, 204, 'asked for again it is done')
})

// rules 9.6
t.test('an import that drops images: what svcd made for them goes, as on a delete', async t => {
  const { c, images, ended, records } = await beginning(t)
  for (const name of ['copy', 'kept', 'moved'])
    await c.post('/config/osimage/compute/_clone', { newosimage: name })
  const { config } = (await c.get('/config/cluster/export')).body
  const { copy: _, moved, ...rest } = config.osimage
  const osimage = { ...rest, elsewhere: { ...moved, name: 'elsewhere' } }
  const refused = await c.post('/config/cluster/import', {
    config: { osimage, node: { n1: { osimage: 'x' } } }
  })
  t.equal(refused.status, 404)
  t.strictSame(notesIn(join(c.directory, 'state')), [], 'a refused one removes nothing')
  t.equal((await c.post('/config/cluster/import', { config: { osimage } })).status, 201)
  t.match(await ended('delete'), { state: 'done', object: 'OS image copy' })
  t.equal((await records('delete')).length, 1)
  t.strictSame(readdirSync(images).sort(), ['compute', 'kept', 'moved'], 'and nothing that another one means')
  t.strictSame(
    Object.keys(c.state())
      .filter(path => path.startsWith('tree/'))
      .sort(),
    ['tree/kept.json', 'tree/moved.json']
  )
  t.equal((await c.post('/config/osimage/compute/_clone', { newosimage: 'copy' })).status, 201)
})

t.test('a clone under the name of an image whose directory still waits for its removal', async t => {
  const { c, images, ended, hold } = await beginning(t)
  const clone = (ask = {}) => c.post('/config/osimage/compute/_clone', { newosimage: 'copy' }, ask)
  await clone()
  writeFileSync(join(images, 'copy', 'old'), '')
  const gate = await hold('osimage copy')
  t.equal((await c.get('/config/osimage/copy/_delete')).status, 204)
  const again = await clone({ headers: { Prefer: 'respond-async' } })
  t.equal(again.status, 200, again.text)
  gate.end()
  t.match(await ended('clone'), { state: 'done' })
  t.notOk(existsSync(join(images, 'copy', 'old')))
  t.ok(existsSync(join(images, 'copy', 'etc/hostname')))
})

t.test('delete: on a disk that takes no note the directory goes at the next start', async t => {
  const { c, images, ended, clean } = await beginning(t)
  await c.post('/config/osimage/compute/_clone', { newosimage: 'copy' })
  c.daemon.images.context.notes.write = async () => {
    throw new Error('no space left')
  }
  t.equal((await c.get('/config/osimage/copy/_delete')).status, 204)
  t.match(await ended('delete'), { state: 'failed', message: /no space left/, object: 'OS image copy' })
  t.ok(existsSync(join(images, 'copy')))
  await c.restart()
  await c.daemon.images.recovered
  await c.idle()
  t.strictSame(readdirSync(images), ['compute'])
  clean('after the next start')
})

// rules 9.8, 3.12
t.test('a push of an image without a directory cannot be started', async t => {
  const { c, images } = await beginning(t)
  await c.cluster()
  await c.post('/config/node/n1', { group: 'compute' })
  for (const [path, expected, says] of [
    [null, 404, /OS image bare has no directory: there is no .*images\/bare/],
    [join(images, 'none'), 404, /OS image bare has no directory: there is no .*images\/none/],
    ['/etc/none', 503, /\[image\] directory/],
    ['/etc', 503, /\[image\] directory/]
  ] as const) {
    await c.post('/config/osimage/bare', { path })
    for (const to of ['node/n1', 'group/compute']) {
      const { status, body } = await c.post(`/config/${to}/_ospush`, { osimage: 'bare' })
      t.equal(status, expected, `${to} ${path}`)
      t.match(body.message, says)
    }
  }
})

/** Starts the daemon on a state that an earlier version has left. */
async function startOn(t: Test, left: Readonly<Record<string, object>>, trees: readonly string[]) {
  const start = await beginning(t)
  const { c, images } = start
  for (const name of trees) makeTree(join(images, name), small)
  await c.restart(() => {
    rmSync(join(c.directory, 'state', 'layout'), { recursive: true })
    for (const [file, content] of Object.entries(left))
      writeFileSync(join(c.directory, 'state', file), `${JSON.stringify(content)}\n`)
  })
  await c.daemon.images.recovered
  await c.idle()
  return start
}

// rules 3.12, 9.6
t.test('state of an earlier version: whose a directory is that no record tells', async t => {
  const at = 1
  const images = (c: { directory: string }, name: string) => join(c.directory, 'images', name)
  const start = await startOn(
    t,
    {
      'tree/b.json': { name: 'b', at },
      'tree/byname.json': { name: 'byname', at },
      'tree/gone.json': { name: 'gone', at },
      'osimage/byname.json': { name: 'byname' },
      'osimage/gone.json': { name: 'gone', path: '/elsewhere' }
    },
    ['b', 'byname', 'gone']
  )
  const { c } = start
  const record = (name: string) => JSON.parse(c.state()[`tree/${name}.json`] ?? '{}')
  t.strictSame(record('byname'), { name: 'byname', at, osimage: 'byname' })
  t.strictSame(record('b'), { name: 'b', at }, 'no image means it')
  await c.post('/config/osimage/c', { path: images(c, 'b') })
  await c.restart(() => rmSync(join(c.directory, 'state', 'layout'), { recursive: true }))
  t.strictSame(record('b'), { name: 'b', at, osimage: 'c' }, 'a clone that was renamed')
  for (const name of ['c', 'byname', 'gone']) {
    t.equal((await c.get(`/config/osimage/${name}/_delete`)).status, 204)
    await c.idle()
  }
  t.strictSame(readdirSync(start.images).sort(), ['compute', 'gone'], 'nobody knows whose the other one was')
  const clone = await c.post('/config/osimage/compute/_clone', { newosimage: 'b' })
  t.equal(clone.status, 201, clone.text)
})

// rules 9.12
t.test('notes of an earlier version: a directory whose record is gone is removed', async t => {
  const note = (id: string, target: string) => ({
    [`work/${id}.json`]: { kind: 'removal', id, target, osimage: target }
  })
  const { images, c, clean } = await startOn(
    t,
    {
      ...note('0123456789abcde0', 'b'),
      ...note('0123456789abcde1', 'used'),
      ...note('0123456789abcde2', 'known'),
      ...note('0123456789abcde3', 'nowhere'),
      'osimage/used.json': { name: 'used' },
      'tree/known.json': { name: 'known', at: 1, osimage: 'known' },
      'osimage/known.json': { name: 'known', path: '/elsewhere' }
    },
    ['b', 'used', 'known']
  )
  t.strictSame(readdirSync(images).sort(), ['compute', 'known', 'used'])
  clean('after the start')
  t.equal((await c.post('/config/osimage/compute/_clone', { newosimage: 'b' })).status, 201)
})

// rules 9.1
t.test('state of an earlier version: the slash that marked a path is not shown', async t => {
  const { c, images, image } = await startOn(t, {}, ['q', 'mine'])
  const left = (name: string, path: string) =>
    writeFileSync(
      join(c.directory, 'state', 'osimage', `${name}.json`),
      `${JSON.stringify({ name, path })}\n`
    )
  await c.restart(() => {
    rmSync(join(c.directory, 'state', 'layout'), { recursive: true })
    left('r', `${join(images, 'q')}/`)
    left('far', '/elsewhere/q/')
    left('deep', `${join(images, 'mine', 'inner')}/`)
  })
  t.equal((await image('r')).path, join(images, 'q'))
  t.equal((await image('far')).path, '/elsewhere/q/', 'a path that an admin gave')
  t.equal((await image('deep')).path, `${join(images, 'mine', 'inner')}/`)
  await c.post('/config/osimage/r', { path: `${join(images, 'q')}/` })
  t.equal((await c.post('/config/osimage/r', { newosimage: 'q' })).status, 204)
  t.equal((await image('q')).path, null, 'its directory has its name again')
  t.equal(c.state()['tree/q.json'], undefined)
})
