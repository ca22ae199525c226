import { readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { beginning } from './imaging.js'
import { makeTree, small } from './small-tree.js'

// rules 9.3, 2.4
t.test('kernel: chosen by file or version, refused when the image lacks it, kept by later packs', async t => {
  const { c, tree, image, pack, served } = await beginning(t, {
    ...small,
    'boot/special.img': 'special initramfs',
    'boot/out': '-> ../../../../../../etc/passwd',
    'boot/shadow': '-> ../etc/shadow'
  })
  const kernel = (body: object) => c.post('/config/osimage/compute/kernel', body)
  const chosen = async () => {
    const { kernelfile, initrdfile, kernelversion } = await image()
    return [`${served(kernelfile)}`, `${served(initrdfile)}`, kernelversion]
  }
  const before = c.state()
  for (const [body, says] of [
    [{ kernelfile: 'vmlinuz-7' }, /"kernelfile": the image has no \/boot\/vmlinuz-7/],
    [{ kernelfile: 'out' }, /"kernelfile".*no \/boot\/out/],
    [{ kernelfile: 'shadow' }, /"kernelfile".*no \/boot\/shadow/],
    [{ kernver: '7' }, /"kernelversion": the image has no \/boot\/vmlinuz-7/],
    [{ kernver: '../../etc/shadow' }, /"kernelversion"/],
    [{ kernelfile: 'vmlinuz-6.1.0-9', initrdfile: 'none' }, /"initrdfile".*no \/boot\/none/],
    [{ kernelfile: '../etc/shadow' }, /"kernelfile" must be a file name/],
    [{ kernelfile: 'vmlinuz-6.1.0-9', comment: 'x' }, /no field "comment" here/],
    [{ kernver: '6.1.0-9', kernelversion: '6.1.0-10' }, /twice/],
    [{}, /one of the fields kernelfile/]
  ] as const) {
    const { status, body: answer } = await kernel(body)
    t.equal(status, 400, JSON.stringify(Object.keys(body)))
    t.match(answer.message, says)
  }
  t.same(c.state(), before, 'what was refused changed nothing')
  t.equal((await kernel({ kernver: '6.1.0-9' })).status, 204)
  t.same(await chosen(), ['kernel 9', 'initramfs 9', '6.1.0-9'])
  t.equal((await pack()).status, 204)
  t.same(await chosen(), ['kernel 9', 'initramfs 9', '6.1.0-9'], 'a pack keeps the kernel that was chosen')
  t.equal((await kernel({ kernelfile: 'vmlinuz-6.1.0-10', initrdfile: 'special.img' })).status, 204)
  t.same(await chosen(), ['kernel 10', 'special initramfs', '6.1.0-10'])
  rmSync(join(tree, 'boot/vmlinuz-6.1.0-10'))
  t.equal((await pack()).status, 204)
  t.same(await chosen(), ['kernel 9', 'special initramfs', '6.1.0-9'], 'the one that is left')
})

// rules 9.3
t.test("a kernel of the admin's own stays; what was changed while it was packed stays too", async t => {
  const { c, image, pack, served } = await beginning(t, { 'etc/hostname': 'x' })
  c.file('mykernel', 'my kernel')
  c.file('myinitrd', 'my initramfs')
  await c.post('/config/osimage/compute', { kernelfile: 'mykernel', initrdfile: 'myinitrd' })
  const [answer] = await Promise.all([
    pack(),
    c.post('/config/osimage/compute', { comment: 'meanwhile', kerneloptions: 'quiet' })
  ])
  t.equal(answer.status, 204)
  t.match(await image(), {
    ...{ kernelfile: 'mykernel', initrdfile: 'myinitrd', comment: 'meanwhile', kerneloptions: 'quiet' },
    imagefile: /^compute-[0-9a-f]{12}\.tar\.zst$/
  })
  t.equal(`${served('mykernel')}`, 'my kernel')
})

t.test('the same pack with another kernel: what a tag pins stays as it is', async t => {
  const { c, tree, image, pack, served, packs, directory } = await beginning(
    t,
    small,
    'image.exclude=/boot/*',
    'image.grace=0s'
  )
  const pinned: { kernelfile: string; imagefile: string }[] = []
  for (const content of ['kernel 10', 'kernel changed', 'kernel 10']) {
    writeFileSync(join(tree, 'boot/vmlinuz-6.1.0-10'), content)
    t.equal((await pack()).status, 204)
    pinned.push(await image())
    t.equal(`${served(pinned.at(-1)?.kernelfile ?? '')}`, content)
    await c.post('/config/osimage/compute/tag', { tag: `v${pinned.length}` })
  }
  t.equal((await packs()).length, 1, 'it is one pack')
  const [first, second, third] = pinned.map(({ kernelfile }) => kernelfile)
  t.equal(`${served(first ?? '')}`, 'kernel 10')
  t.equal(`${served(second ?? '')}`, 'kernel changed')
  t.equal(third, first)
  for (const tag of ['v1', 'v2', 'v3']) await c.get(`/config/osimage/compute/osimagetag/${tag}/_delete`)
  await c.get('/config/osimage/compute/_delete')
  await c.daemon.images.packs.run()
  t.strictSame(readdirSync(directory), [], 'all of them go with the pack')
})

// rules 9.3
t.test('kernel: a version that the file name does not say is taken if the image has its modules', async t => {
  const { c, image, pack } = await beginning(t, {
    ...small,
    'boot/bzImage': 'kernel',
    'boot/vmlinuz-custom': 'kernel',
    'lib/modules/7/modules.dep': '',
    'usr/lib/modules/6.1.0-9/modules.dep': ''
  })
  const kernel = (body: object) => c.post('/config/osimage/compute/kernel', body)
  for (const body of [
    { kernelfile: 'vmlinuz-6.1.0-10', kernelversion: '9.9' },
    { kernelfile: 'vmlinuz-6.1.0-9', kernelversion: '6.1.0-10' },
    { kernelfile: 'bzImage', kernelversion: '9.9' },
    { kernelfile: 'bzImage', kernelversion: '../modules/7' }
  ]) {
    const { status, body: answer } = await kernel(body)
    t.equal(status, 400, JSON.stringify(body))
    t.match(
      answer.message,
      `OS image compute: field "kernelversion": the image has no /lib/modules/${body.kernelversion}`
    )
  }
  t.equal((await kernel({ kernelfile: 'bzImage', kernelversion: '7' })).status, 204)
  t.match(await image(), { kernelfile: /-bzImage$/, kernelversion: '7' })
  const given = { kernelfile: 'vmlinuz-custom', kernelversion: '6.1.0-9' }
  t.equal((await kernel(given)).status, 204)
  const chosen = {
    ...{ kernelfile: /-vmlinuz-custom$/, initrdfile: /-initrd.img-6.1.0-9$/, kernelversion: '6.1.0-9' }
  }
  t.match(await image(), chosen)
  t.equal((await pack()).status, 204)
  t.match(await image(), chosen, 'a pack keeps it')
  t.equal((await kernel({ kernelfile: 'bzImage', kernelversion: '6.1.0-9' })).status, 204)
  t.match(
    await image(),
    { kernelfile: /-bzImage$/, kernelversion: '6.1.0-9' },
    'the version was there already'
  )
  t.equal((await kernel({ kernelfile: 'vmlinuz-6.1.0-10' })).status, 204)
  t.match(await image(), { kernelversion: '6.1.0-10' }, 'without one it is that of the file name')
})

// rules 9.3
t.test('a version that was set, and that the image lacks, is not put back in silence', async t => {
  const { c, tree, image, pack } = await beginning(t)
  const set = (fields: object) => c.post('/config/osimage/compute', fields)
  const says =
    'OS image compute: field "kernelversion" is 6.9.9, and the image has no /boot/vmlinuz-6.9.9; there are vmlinuz-6.1.0-10, ' +
    'vmlinuz-6.1.0-9: set kernelversion to one of these, or install that kernel in the image; nothing was packed'
  const refused = async (what: string) => {
    const before = await image()
    t.match(await pack(), { status: 503, body: { message: says } }, what)
    t.same(await image(), before, what)
  }
  await set({ kernelversion: '6.9.9' })
  await refused('the first pack')
  await set({ kernelversion: null })
  t.equal((await pack()).status, 204)
  t.match(await image(), { kernelversion: '6.1.0-10' })
  await set({ kernelversion: '6.9.9' })
  await refused('a later one')
  await set({ kernelversion: '6.1.0-9' })
  t.equal((await pack()).status, 204)
  t.match(await image(), { kernelfile: /-vmlinuz-6.1.0-9$/, kernelversion: '6.1.0-9' })
  // The kernel of the image was upgraded: nobody has asked for the one before.
  rmSync(join(tree, 'boot/vmlinuz-6.1.0-9'))
  t.equal((await pack()).status, 204)
  t.match(await image(), { kernelversion: '6.1.0-10' })
  rmSync(join(tree, 'boot/vmlinuz-6.1.0-10'))
  await set({ kernelversion: '6.9.9' })
  t.equal((await pack()).status, 204, 'an image without any kernel is packed')
  t.match(await image(), { kernelversion: '6.9.9' })
})

t.test('a boot file that the admin named and that is nowhere is not taken away', async t => {
  const { c, tree, image, pack, records } = await beginning(t, { 'etc/hostname': 'x' })
  const mine = { kernelfile: 'mykernel', initrdfile: 'myinitrd' }
  await c.post('/config/osimage/compute', mine)
  t.equal((await pack()).status, 204)
  t.match(await image(), mine)
  const [record] = await records('pack')
  for (const name of ['mykernel', 'myinitrd'])
    t.ok(
      record.lines.some((line: string) => line.includes(`stays ${name}`)),
      name
    )
  makeTree(tree, small)
  t.equal((await pack()).status, 204)
  t.match(
    await image(),
    { kernelfile: /^compute-/, initrdfile: /^compute-/ },
    'those of the image come first'
  )
  for (const name of readdirSync(join(tree, 'boot'))) rmSync(join(tree, 'boot', name))
  t.equal((await pack()).status, 204)
  t.match(await image(), { kernelfile: null, initrdfile: null }, 'files of an earlier pack go')
})
