import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { bootFiles } from '../../lib/image/boot-files.js'
import { Bench } from './bench.js'
import { beginning } from './imaging.js'
import { type Files, makeTree } from './small-tree.js'

const modules = (version: string): Files => ({ [`usr/lib/modules/${version}/modules.dep`]: '' })
const init: Files = { lib: '-> usr/lib', 'sbin/init': '', 'etc/hostname': 'x\n' }
/** A kernel in /boot with its modules, and one without. */
const whole = (version: string): Files => ({
  [`boot/vmlinuz-${version}`]: `kernel ${version}`,
  ...modules(version)
})
const bare = (name: string): Files => ({ [`boot/${name}`]: `kernel ${name}` })
const dpkg: Files = { 'etc/debian_version': '12\n' }

const el8 = '4.18.0-553.el8_10.x86_64'
const el8Patched = '4.18.0-553.64.1.el8_10.x86_64'
const el9 = '5.14.0-427.13.1.el9_4.x86_64'

/** Which version is booted, and which newer ones the record names, with a word of why. */
const choices: Record<string, [files: Files, version: string, newer?: Readonly<Record<string, RegExp>>]> = {
  'a patched kernel of EL8': [{ ...whole(el8), ...whole(el8Patched) }, el8Patched],
  'a patched kernel of EL7': [
    { ...whole('3.10.0-1160.el7.x86_64'), ...whole('3.10.0-1160.119.1.el7.x86_64') },
    '3.10.0-1160.119.1.el7.x86_64'
  ],
  'a longer version': [{ ...whole('6.6-2.el9'), ...whole('6.6.1-1.el9') }, '6.6.1-1.el9'],
  'a release candidate of Debian': [
    { ...dpkg, ...whole('6.12~rc7-amd64'), ...whole('6.12-amd64') },
    '6.12-amd64'
  ],
  'the debug variant': [{ ...whole(el9), ...whole(`${el9}+debug`) }, el9, { [`${el9}+debug`]: /debug/ }],
  'the debug variant of EL7': [
    { ...whole('3.10.0-1160.el7.x86_64'), ...whole('3.10.0-1160.el7.x86_64.debug') },
    '3.10.0-1160.el7.x86_64',
    { '3.10.0-1160.el7.x86_64.debug': /debug/ }
  ],
  'a newer real-time kernel': [
    { ...whole('4.18.0-513.el8_9.x86_64'), ...whole('4.18.0-553.rt7.342.el8_10.x86_64') },
    '4.18.0-513.el8_9.x86_64',
    { '4.18.0-553.rt7.342.el8_10.x86_64': /rt7/ }
  ],
  'pages of 64k': [
    { ...whole('6.4.0-1-default'), ...whole('6.4.0-9-64kb') },
    '6.4.0-1-default',
    { '6.4.0-9-64kb': /64kb/ }
  ],
  'the cloud kernel of Debian': [
    { ...dpkg, ...whole('6.1.0-18-amd64'), ...whole('6.1.0-21-cloud-amd64') },
    '6.1.0-18-amd64',
    { '6.1.0-21-cloud-amd64': /cloud/ }
  ],
  'a variant alone': [whole(`${el9}+rt`), `${el9}+rt`],
  'backup copies': [
    {
      ...whole(el8),
      ...bare(`vmlinuz-${el8}.bak`),
      ...bare(`vmlinuz-${el8}.old`),
      ...bare(`vmlinuz-${el8}~`),
      ...bare(`vmlinuz-${el8}.rpmsave`),
      ...bare('vmlinuz-0-rescue-0123456789abcdef0123456789abcdef')
    },
    el8,
    { [`${el8}.bak`]: /backup copy/, [`${el8}.old`]: /backup copy/, [`${el8}.rpmsave`]: /backup copy/ }
  ],
  'a copy with modules': [{ ...whole(el8), ...whole(`${el8}.bak`) }, el8, { [`${el8}.bak`]: /backup copy/ }],
  'a kernel without modules': [
    { ...whole('6.1.0-9'), ...bare('vmlinuz-6.9.1'), 'usr/lib/modules/6.9.1/updates/left.ko': '' },
    '6.1.0-9',
    { '6.9.1': /no \/lib\/modules\/6\.9\.1\/modules\.dep/ }
  ],
  'a rescue entry': [
    {
      ...modules(el9),
      ...modules('9.9.9'),
      [`boot/0123456789abcdef0123456789abcdef/${el9}/linux`]: 'x',
      'boot/0123456789abcdef0123456789abcdef/0-rescue/linux': 'y',
      'boot/loader/entries/x.conf': ''
    },
    el9
  ],
  'a name like that of a copy, with modules': [whole('6.1.0-old'), '6.1.0-old'],
  'many files beside it': [
    {
      ...whole('6.1.0-9'),
      ...Object.fromEntries(Array.from({ length: 150 }, (_, i) => [`boot/config-${i}`, '']))
    },
    '6.1.0-9'
  ],
  'kernels without modules altogether': [
    { ...bare('vmlinuz-6.1.0-9'), ...bare('vmlinuz-6.1.0-10') },
    '6.1.0-10'
  ]
}

const site = await beginning(t)
let images = 0
/** An image of its own on the controller that all tests share. */
async function imageOf(files: Files) {
  const name = `image${++images}`
  const tree = makeTree(join(site.images, name), { ...init, ...files })
  await site.c.post(`/config/osimage/${name}`, {})
  const lines = async (): Promise<string[]> => (await site.records('pack'))[0].lines
  return { ...site, name, tree, image: () => site.image(name), pack: () => site.pack(name), lines }
}

/** Returns the choice of a first pack of an image with these files, and the lines of its record. */
async function chosen(t: Test) {
  const bench = await Bench.open(t, 'image.initramfs=no')
  let count = 0
  return async (files: Files) => {
    const tree = makeTree(bench.path('images', `image${++count}`), { ...init, ...files })
    const job = bench.job()
    const { kernel, initrd, version } = await bootFiles(bench.context, { name: 'image' }, tree, {}, job)
    const text = (path: string | undefined) => path && readFileSync(join(tree, path), 'utf8')
    return { kernel: text(kernel), initrd: text(initrd), version, lines: job.lines }
  }
}

// rules 9.3
t.test('which kernel', async t => {
  const choose = await chosen(t)
  for (const [what, [files, version, newer = {}]] of Object.entries(choices)) {
    const found = await choose(files)
    t.equal(found.version, version, what)
    const place =
      Object.keys(files).find(path => path.endsWith(`/${version}/linux`)) ?? `boot/vmlinuz-${version}`
    t.equal(found.kernel, files[place], what)
    const told = found.lines.filter(line => line.startsWith('newer: '))
    t.equal(told.length, Object.keys(newer).length, `${what}: ${told.join('; ')}`)
    for (const [name, why] of Object.entries(newer))
      t.match(
        told.find(line => line.startsWith(`newer: vmlinuz-${name}, not taken because `)),
        why,
        name
      )
  }
})

// rules 9.3
t.test('the choice, its reasons and the files are those of the pack', async t => {
  const { image, pack, served, lines } = await imageOf(choices['the debug variant']?.[0] as Files)
  t.equal((await pack()).status, 204)
  const { kernelfile, kernelversion } = await image()
  t.same([kernelversion, `${served(kernelfile)}`], [el9, `kernel ${el9}`])
  t.match(
    (await lines()).find(line => line.startsWith('newer: ')),
    /not taken because .*debug/
  )
})

// rules 9.3
t.test('the kernel that the image has booted stays, and the record names the newer one', async t => {
  const { c, name, tree, image, pack, lines } = await imageOf(whole(el8))
  t.equal((await pack()).status, 204)
  makeTree(tree, whole(el8Patched))
  t.equal((await pack()).status, 204)
  t.equal((await image()).kernelversion, el8)
  t.ok(
    (await lines()).includes(
      `newer: vmlinuz-${el8Patched}, not taken because the image has booted ${el8} so far: set kernelversion to ${el8Patched} to boot it`
    )
  )
  await c.post(`/config/osimage/${name}`, { kernelversion: el8Patched })
  t.equal((await pack()).status, 204)
  t.equal((await image()).kernelversion, el8Patched)
})

const id = '0123456789abcdef0123456789abcdef'

/**
 * Where the kernel is: files of one version in the layout of a distribution, and the initramfs that goes with
 * it.
 */
const layouts: Record<string, [files: (version: string) => Files, one: string, two: string, initrd?: true]> =
  {
    'SUSE: a link to the modules': [
      v => ({
        [`boot/vmlinuz-${v}`]: `-> ../usr/lib/modules/${v}/vmlinuz`,
        [`usr/lib/modules/${v}/vmlinuz`]: `kernel ${v}`,
        [`boot/initrd-${v}`]: `initramfs ${v}`
      }),
      '6.4.0-150600.23.47-default',
      '6.4.0-150600.23.50-default',
      true
    ],
    'an absolute link': [
      v => ({
        [`boot/vmlinuz-${v}`]: `-> /lib/modules/${v}/vmlinuz`,
        [`usr/lib/modules/${v}/vmlinuz`]: `kernel ${v}`
      }),
      '6.4.0-1-default',
      '6.4.0-2-default'
    ],
    'a container: beside the modules alone': [
      v => ({
        [`usr/lib/modules/${v}/vmlinuz`]: `kernel ${v}`,
        [`usr/lib/modules/${v}/initramfs.img`]: `initramfs ${v}`
      }),
      '6.11.4-301.fc41.x86_64',
      '6.11.5-300.fc41.x86_64',
      true
    ],
    'entries of the boot loader specification': [
      v => ({ [`boot/${id}/${v}/linux`]: `kernel ${v}`, [`boot/${id}/${v}/initrd`]: `initramfs ${v}` }),
      el9,
      '5.14.0-503.11.1.el9_5.x86_64',
      true
    ],
    'entries with a name of their own': [
      v => ({ [`boot/fedora/${v}/linux`]: `kernel ${v}` }),
      '6.11.4-301.fc41.x86_64',
      '6.11.5-300.fc41.x86_64'
    ],
    'Image of arm64': [
      v => ({ [`boot/Image-${v}`]: `kernel ${v}`, [`boot/initrd-${v}`]: `initramfs ${v}` }),
      '6.4.0-1-default',
      '6.4.0-2-default',
      true
    ],
    'Image of arm64, a link': [
      v => ({
        [`boot/Image-${v}`]: `-> ../usr/lib/modules/${v}/Image`,
        [`usr/lib/modules/${v}/Image`]: `kernel ${v}`
      }),
      '6.4.0-1-default',
      '6.4.0-2-default'
    ],
    'vmlinux of POWER': [
      v => ({ [`boot/vmlinux-${v}`]: `kernel ${v}`, [`boot/initrd.img-${v}`]: `initramfs ${v}` }),
      '6.1.0-18-powerpc64le',
      '6.1.0-21-powerpc64le',
      true
    ],
    Alpine: [
      v => ({ 'boot/vmlinuz-lts': `kernel ${v}`, 'boot/initramfs-lts': `initramfs ${v}` }),
      '6.6.32-0-lts',
      '6.6.41-0-lts',
      true
    ],
    'a name without a version': [
      v => ({ 'boot/vmlinuz': `kernel ${v}`, 'boot/config': '' }),
      '6.6.32',
      '6.6.41'
    ]
  }

// rules 9.3
t.test('where the kernel is, with two versions of it', async t => {
  const choose = await chosen(t)
  for (const [what, [files, one, two, hasInitrd]] of Object.entries(layouts)) {
    const layout = (version: string) => ({ ...modules(version), ...files(version) })
    for (const [version, all] of [
      [one, layout(one)],
      [two, layout(two)],
      ...((layout(one)['boot/vmlinuz'] ?? layout(one)['boot/vmlinuz-lts'])
        ? []
        : [[two, { ...layout(one), ...layout(two) }] as const])
    ] as const) {
      const found = await choose(all)
      t.same([found.version, found.kernel], [version, `kernel ${version}`], what)
      if (hasInitrd) t.equal(found.initrd, `initramfs ${version}`, what)
    }
  }
})

/** Layouts whose packs are made: a link to the modules, and names without a version. */
const packed = ['SUSE: a link to the modules', 'Alpine']

// rules 9.3
t.test('an upgrade, a second kernel and a request for one of both, pack after pack', async t => {
  for (const [what, [files, one, two, hasInitrd]] of Object.entries(layouts)) {
    if (!packed.includes(what) && !process.env.SVCD_LONG) continue
    const layout = (version: string) => ({ ...modules(version), ...files(version) })
    const { c, name, tree, image, pack, served } = await imageOf(layout(one))
    const boots = async (version: string) => {
      t.match(await pack(), { status: 204 })
      const { kernelfile, initrdfile, kernelversion } = await image()
      t.equal(kernelversion, version, what)
      t.equal(`${served(kernelfile)}`, `kernel ${version}`, what)
      if (hasInitrd) t.equal(`${served(initrdfile)}`, `initramfs ${version}`, what)
    }
    await boots(one)
    await boots(one)
    // The kernel is upgraded, and the one before is gone.
    for (const path of Object.keys(layout(one))) rmSync(join(tree, path), { recursive: true })
    makeTree(tree, layout(two))
    await boots(two)
    if (layout(one)['boot/vmlinuz'] ?? layout(one)['boot/vmlinuz-lts']) continue
    makeTree(tree, layout(one))
    await boots(two)
    const kernel = (kernelversion: string) => c.post(`/config/osimage/${name}/kernel`, { kernelversion })
    t.equal((await kernel(one)).status, 204)
    await boots(one)
    t.match(await kernel(`${one}.9`), { status: 400 })
  }
})

// rules 9.3
t.test('a version whose kernel is gone does not stay in force', async t => {
  const { c, name, tree, image, pack, lines } = await imageOf({
    'boot/bzImage': 'one',
    ...modules('6.1.1'),
    ...modules('6.1.2')
  })
  const given = { kernelfile: 'bzImage', kernelversion: '6.1.1' }
  t.equal((await c.post(`/config/osimage/${name}/kernel`, given)).status, 204)
  rmSync(join(tree, 'usr/lib/modules/6.1.1'), { recursive: true })
  t.equal((await pack()).status, 204)
  t.equal((await image()).kernelversion, '6.1.2', 'the only one that it can be')
  rmSync(join(tree, 'usr/lib/modules/6.1.2'), { recursive: true })
  makeTree(tree, { ...modules('6.1.3'), ...modules('6.1.4') })
  t.equal((await pack()).status, 204)
  t.equal((await image()).kernelversion, null, 'nobody knows which it is')
  t.ok((await lines()).includes('kernelversion was 6.1.2, and the image has no kernel of it: it is unset'))
  rmSync(join(tree, 'usr/lib/modules/6.1.3'), { recursive: true })
  t.equal((await pack()).status, 204)
  t.equal((await image()).kernelversion, '6.1.4')
  rmSync(join(tree, 'boot/bzImage'))
  t.equal((await pack()).status, 204)
  t.match(await image(), { kernelfile: null, kernelversion: null }, 'the kernel itself is gone')
})

// rules 9.3
t.test('a version that is set before there is a kernel stays, however often the image is packed', async t => {
  for (const files of [{}, modules('6.1.2')]) {
    const { c, name, tree, image, pack, lines } = await imageOf(files)
    t.equal((await c.post(`/config/osimage/${name}`, { kernelversion: '6.1.2' })).status, 204)
    for (const _ of [1, 2]) {
      t.equal((await pack()).status, 204)
      t.equal((await image()).kernelversion, '6.1.2')
    }
    t.notOk((await lines()).some(line => line.includes('it is unset')))
    makeTree(tree, { ...whole('6.1.2'), ...whole('6.1.3') })
    t.equal((await pack()).status, 204)
    t.match(await image(), { kernelversion: '6.1.2' })
    rmSync(join(tree, 'boot/vmlinuz-6.1.2'))
    rmSync(join(tree, 'boot/vmlinuz-6.1.3'))
    t.equal((await pack()).status, 204)
    t.equal((await image()).kernelversion, null, 'it went with its kernel')
  }
})

// rules 9.3
t.test('links of kernels do not lead out of the image, nor to other files of it', async t => {
  const choose = await chosen(t)
  for (const target of [
    '../../../../../../../etc/passwd',
    '/etc/hostname',
    '../etc',
    'vmlinuz-6.1.0-9',
    '/lib/modules'
  ]) {
    const found = await choose({
      ...modules('6.1.0-9'),
      'boot/vmlinuz-6.1.0-9': `-> ${target}`,
      'usr/lib/modules/6.1.0-9/vmlinuz': `-> ${target}`,
      [`boot/${id}/6.1.0-9/linux`]: `-> ${target}`
    })
    t.same([found.kernel, found.lines[0]], [undefined, 'the image has no kernel below /boot'], target)
  }
})
