// Files of images that one controller has and another one lacks (rules 11.19).
import {
  chmodSync,
  existsSync,
  linkSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from 'node:fs'
import t from 'tap'
import { Mutex } from '../../../lib/base/concurrency.js'
import type { Config } from '../../../lib/config/types.js'
import { imageFindings } from '../../../lib/image/findings.js'
import type { Tx } from '../../../lib/model/stored.js'
import { impostor } from '../../support/impostor.js'
import { fillDisk, smallDisk } from '../../support/small-disk.js'
import { until } from '../../support/until.js'
import { content, controllerWith, imageOf, Line, lacking, putFile } from './site.js'

const MEGABYTE = 1024 * 1024
const minute = 60_000
const hour = 3_600_000
const warnings = (log: readonly string[]) => log.filter(line => / warn /.test(line))

/** A controller that has the pack of these bytes, a kernel and an initramfs. */
async function having(t: Parameters<typeof controllerWith>[0], pack: Buffer) {
  const image = imageOf(pack)
  const controller = await controllerWith(t, image.objects)
  putFile(controller.bench, image.imagefile, pack)
  putFile(controller.bench, image.kernelfile, content(70_000, 2))
  putFile(controller.bench, image.initrdfile, content(300_000, 3))
  return { ...controller, image }
}

/** The image names its pack alone. */
const onlyPack = (image: ReturnType<typeof imageOf>) => (tx: Tx) => {
  image.objects(tx)
  tx.put('osimage', 'compute', { name: 'compute', imagefile: image.imagefile })
}

t.test('what images and tags name arrives byte for byte; nothing else does', async t => {
  const pack = content(5 * MEGABYTE)
  const { bench: has, source, image } = await having(t, pack)
  const old = imageOf(content(1000, 9), 'old')
  putFile(has, old.imagefile, content(1000, 9))
  putFile(has, 'pinned', content(10, 4))
  putFile(has, 'empty', Buffer.alloc(0))
  putFile(has, 'secret', content(10, 5))
  const objects = (tx: Parameters<typeof image.objects>[0]) => {
    image.objects(tx)
    old.objects(tx)
    // Its pack is kept for nodes that install it; nobody names it any more.
    tx.put('osimage', 'old', { name: 'old', initrdfile: 'empty' })
    tx.put('osimagetag', 'compute:v1', {
      ...{ name: 'compute:v1', osimage: 'compute', tag: 'v1', order: 1, kernelfile: 'pinned' }
    })
  }
  await has.put(objects)
  const { bench, copies, arrived } = await lacking(t, objects, [source])
  await copies.run()
  const all = [image.imagefile, image.kernelfile, image.initrdfile, 'pinned', 'empty'].sort()
  t.strictSame(readdirSync(bench.path('files')).sort(), all, bench.log.join('\n'))
  for (const name of all) {
    t.ok(readFileSync(bench.path('files', name)).equals(readFileSync(has.path('files', name))), name)
    t.equal(statSync(bench.path('files', name)).mode & 0o777, 0o600, 'as packs are (rules 9.11)')
    t.equal(statSync(bench.path('files', name)).nlink, 1)
  }
  t.equal(arrived.times, 5)
  t.strictSame(copies.condition, { ok: true, reason: '' })
  t.strictSame(warnings(bench.log), [])
})

t.test('a transfer that breaks goes on where it was, also after the end of svcd', async t => {
  const pack = content(8 * MEGABYTE)
  const { source, image } = await having(t, pack)
  const line = await Line.to(t, source)
  const { bench, copies, open } = await lacking(t, image.objects, [line.source])
  line.most = 3 * MEGABYTE
  await copies.run()
  t.notOk(existsSync(bench.path('files', image.imagefile)), 'a part does not have the name')
  t.match(copies.condition, { ok: false, reason: /controller one .* broke off .*: it goes on from there/ })
  await copies.close()
  const [part = ''] = readdirSync(bench.path('files')).filter(name => name.startsWith('.'))
  const had = statSync(bench.path('files', part)).size
  t.ok(had > 2 * MEGABYTE && had < 4 * MEGABYTE, `${had} bytes`)

  line.most = Number.POSITIVE_INFINITY
  line.sent = 0
  const again = await open()
  await again.run()
  t.ok(readFileSync(bench.path('files', image.imagefile)).equals(pack))
  t.ok(
    line.sent < pack.length - had + 65_536,
    `${line.sent} bytes were sent for the rest of ${pack.length - had}`
  )
  t.strictSame(again.condition, { ok: true, reason: '' })
  t.strictSame(
    readdirSync(bench.path('files')).filter(name => name.startsWith('.')),
    []
  )
})

t.test('a part that is not of this file, and one that is too long, are begun anew', async t => {
  const pack = content(MEGABYTE)
  const { source, image } = await having(t, pack)
  for (const junk of [
    Buffer.alloc(1000, 1),
    Buffer.alloc(pack.length, 1),
    Buffer.alloc(pack.length + 1, 1)
  ]) {
    const { bench, copies } = await lacking(t, image.objects, [source])
    writeFileSync(bench.path('files', `.svcd-copy-${image.sha256.slice(0, 16)}-${image.imagefile}`), junk)
    writeFileSync(bench.path('files', `.svcd-copy-${'0'.repeat(16)}-nobody-waits-for-it`), junk)
    await copies.run()
    t.ok(readFileSync(bench.path('files', image.imagefile)).equals(pack))
    t.equal(readdirSync(bench.path('files')).length, 3)
    t.strictSame(warnings(bench.log), [])
  }
})

t.test(
  'a controller that gives another file: never under its name, told once, and asked again later and later',
  async t => {
    const pack = content(MEGABYTE)
    const image = imageOf(pack)
    const objects = (tx: Parameters<typeof image.objects>[0]) => {
      image.objects(tx)
      tx.put('osimage', 'compute', { name: 'compute', imagefile: image.imagefile })
    }
    const asked: string[] = []
    const odd = await impostor(t, ({ url = '', headers }, response) => {
      asked.push(`${url} ${headers.range}`)
      const [, from = 0] = /bytes=(\d+)-/.exec(headers.range ?? '') ?? []
      const wrong = Buffer.alloc(pack.length - Number(from), 1)
      const range = { 'content-range': `bytes ${from}-${pack.length - 1}/${pack.length}` }
      response.writeHead(206, { ...range, 'content-length': wrong.length }).end(wrong)
    })
    const { bench, copies } = await lacking(t, objects, [odd])
    for (const _ of Array(5)) await copies.run()
    t.strictSame(readdirSync(bench.path('files')), [])
    t.equal(asked.length, 2, 'a bit may have changed on the way; gigabytes are not sent again and again')
    const why =
      /which OS image compute names, is not on controller controller: what controller odd \(http:.*another file.*put the right/
    t.match(copies.condition, { ok: false, reason: why })
    t.equal(warnings(bench.log).length, 1, bench.log.join('\n'))
    const minutes = [1, 2, 4, 8, 16, 32, 60, 60]
    for (const [i, pause] of minutes.entries()) {
      bench.now += pause * minute - 1
      await copies.run()
      t.equal(asked.length, 2 * (i + 1), `${pause} min are not over`)
      bench.now += 1
      await copies.run()
      t.equal(asked.length, 2 * (i + 2), `after ${pause} min`)
    }
    t.equal(warnings(bench.log).length, 1, bench.log.join('\n'))

    // The next one has it.
    const { source, bench: has } = await controllerWith(t, objects)
    putFile(has, image.imagefile, pack)
    const { bench: other, copies: both } = await lacking(t, objects, [odd, source])
    await both.run()
    t.ok(readFileSync(other.path('files', image.imagefile)).equals(pack))
    t.equal(warnings(other.log).length, 1)
    t.match(warnings(other.log)[0], /controller odd/)
    t.strictSame(both.condition, { ok: true, reason: '' })
  }
)

t.test('nothing grows beyond what is announced, and who sends too slowly is left', async t => {
  const image = imageOf(content(100_000))
  const objects = (tx: Parameters<typeof image.objects>[0]) => {
    image.objects(tx)
    tx.put('osimage', 'compute', { name: 'compute', imagefile: image.imagefile })
  }
  const heads: Record<string, [number, Record<string, string>]> = {
    'no length': [200, {}],
    'another length': [200, { 'content-length': '900000' }],
    'another range': [206, { 'content-range': 'bytes 0-899999/900000' }],
    'the right range, and more': [206, { 'content-range': 'bytes 0-99999/100000' }],
    gzip: [200, { 'content-length': '100000', 'content-encoding': 'gzip' }],
    'a redirection': [302, { location: 'http://127.0.0.1:9/' }],
    'an error': [500, {}]
  }
  for (const [what, [status, headers]] of Object.entries(heads)) {
    const odd = await impostor(t, (_request, response) => {
      response.on('error', () => undefined)
      response.writeHead(status, headers)
      const more = () => {
        while (!response.destroyed && response.write(Buffer.alloc(65_536)));
      }
      response.on('drain', more)
      more()
    })
    const { bench, copies } = await lacking(t, objects, [odd])
    await copies.run()
    for (const name of readdirSync(bench.path('files')))
      t.ok(name.startsWith('.') && statSync(bench.path('files', name)).size <= 100_000, what)
    t.equal(copies.condition.ok, false, what)
    await copies.close()
  }
  const slow = await impostor(t, (_request, response) => {
    response.writeHead(206, { 'content-range': 'bytes 0-99999/100000', 'content-length': 100_000 })
    const timer = setInterval(() => response.write('x'), 5)
    response.on('close', () => clearInterval(timer))
  })
  const { copies } = await lacking(t, objects, [slow], { pace: { bytes: 1000, ms: 100 } })
  await copies.run()
  t.match(copies.condition, { ok: false, reason: /too slowly/ })
})

t.test('a bit that changes on the way keeps a file away for no time', async t => {
  const pack = content(300_000)
  const image = imageOf(pack)
  let asked = 0
  const odd = await impostor(t, (_request, response) => {
    const sent = Buffer.from(pack)
    if (++asked === 1) sent[1000] = (sent[1000] ?? 0) ^ 1
    response.writeHead(200, { 'content-length': sent.length }).end(sent)
  })
  const { bench, copies } = await lacking(t, onlyPack(image), [odd])
  await copies.run()
  t.equal(asked, 2)
  t.ok(readFileSync(bench.path('files', image.imagefile)).equals(pack))
  t.strictSame(copies.condition, { ok: true, reason: '' })
})

t.test('who sends slowly is left where another one has the file, which goes on from there', async t => {
  const pack = content(4 * MEGABYTE)
  const { source, image } = await having(t, pack)
  const [slow, other] = [await Line.to(t, source), await Line.to(t, source)]
  slow.bytesPerSecond = 300_000
  const sources = [
    { ...slow.source, name: 'slow' },
    { ...other.source, name: 'other' }
  ]
  // Each 65,536 bytes come at once.
  const pace = { bytes: 0, brisk: 400_000, ms: 500 }
  const { bench, copies } = await lacking(t, onlyPack(image), sources, { pace })
  await copies.run()
  t.ok(readFileSync(bench.path('files', image.imagefile)).equals(pack))
  t.ok(slow.sent > 50_000 && slow.sent < MEGABYTE, `${slow.sent} bytes came slowly`)
  t.ok(other.sent < pack.length - 40_000, `${other.sent} bytes of ${pack.length} were sent for the rest`)
  t.match(bench.log.join('\n'), /was fetched from controller other/)
  t.strictSame(warnings(bench.log), [])
})

t.test('where none sends faster, the fastest goes on, and the others are asked again', async t => {
  const pack = content(1_500_000)
  const { source, image } = await having(t, pack)
  const [slower, slow] = [await Line.to(t, source), await Line.to(t, source)]
  slower.bytesPerSecond = 100_000
  slow.bytesPerSecond = 500_000
  let asked = 0
  const lacks = await impostor(t, (_request, response) => {
    asked++
    response.writeHead(404).end()
  })
  const sources = [{ ...slower.source, name: 'slower' }, { ...slow.source, name: 'slow' }, lacks]
  const pace = { bytes: 0, brisk: 10 * MEGABYTE, ms: 300, turnMs: 900 }
  const { bench, copies } = await lacking(t, onlyPack(image), sources, { pace })
  await copies.run()
  t.ok(readFileSync(bench.path('files', image.imagefile)).equals(pack))
  t.ok(slow.sent > 2 * slower.sent, `${slow.sent} and ${slower.sent} bytes`)
  t.ok(asked >= 2, 'it might have the file by then')
})

t.test('one large file at a time: the other place is for small ones, also those that come later', async t => {
  const large = ['one', 'two'].map((name, i) => imageOf(content(17 * MEGABYTE, i + 1), name))
  const named = (name: string) => (tx: Tx) => tx.put('osimage', name, { name, kernelfile: `${name}-kernel` })
  const { source, bench: has } = await controllerWith(t, tx => {
    for (const name of ['late', 'later']) named(name)(tx)
  })
  putFile(has, 'late-kernel', content(1000, 3))
  const asked = new Set<string>()
  const held = await impostor(t, ({ url = '' }, response) => {
    if (url.includes('kernel')) {
      response.writeHead(404).end()
      return
    }
    asked.add(url)
    response.writeHead(200, { 'content-length': 17 * MEGABYTE }).write('x')
  })
  const objects = (tx: Tx) => {
    for (const { objects, imagefile } of large) {
      objects(tx)
      const [name = ''] = imagefile.split('-')
      tx.put('osimage', name, { name, imagefile })
    }
  }
  const pace = { bytes: 0, ms: hour }
  const { bench, copies } = await lacking(t, objects, [held, source], { pace })
  const running = copies.run()
  await until(() => asked.size === 1)
  await bench.put(named('late'))
  await until(() => existsSync(bench.path('files', 'late-kernel')))
  await bench.put(named('later'))
  await until(() => /later-kernel/.test(copies.condition.reason))
  putFile(has, 'later-kernel', content(1000, 4))
  bench.now += 30_000
  await until(() => existsSync(bench.path('files', 'later-kernel')))
  t.equal(asked.size, 1, 'the second large one waits')
  await copies.close()
  await running
})

t.test('of files whose size nobody knew before, one large one at a time comes, too', async t => {
  const bytes = [content(17 * MEGABYTE), content(17 * MEGABYTE, 2)]
  const objects = (tx: Tx) => {
    for (const name of ['one', 'two']) tx.put('osimage', name, { name, kernelfile: `${name}-kernel` })
  }
  const { source, bench: has } = await controllerWith(t, objects)
  for (const [i, name] of ['one', 'two'].entries()) putFile(has, `${name}-kernel`, bytes[i] as Buffer)
  const { bench, copies } = await lacking(t, objects, [source])
  let most = 0
  const files = () => readdirSync(bench.path('files'))
  const counting = setInterval(() => {
    most = Math.max(most, files().filter(name => name.startsWith('.')).length)
  }, 1)
  t.teardown(() => clearInterval(counting))
  await copies.run()
  t.strictSame(files().sort(), ['one-kernel', 'two-kernel'], bench.log.join('\n'))
  t.equal(most, 1)
  t.strictSame(copies.condition, { ok: true, reason: '' })
})

t.test('a checksum that the key of the controllers does not prove is not believed', async t => {
  const { source, image, bench: has } = await having(t, content(1000))
  const stranger = await controllerWith(t, image.objects, Buffer.alloc(32, 8))
  putFile(stranger.bench, image.kernelfile, content(70_000, 2))
  const forged = await impostor(t, async ({ url = '', headers }, response) => {
    const { 'x-svcd-controller': header = '' } = headers
    // What was told to somebody else.
    const answer = await fetch(source.url + url, { headers: stranger.proofs.headersFor(url) })
    t.equal(answer.status, 401)
    t.not(header, '')
    response.end(JSON.stringify({ bytes: 10, sha256: '0'.repeat(64), proof: '0'.repeat(64) }))
  })
  for (const [from, why] of [
    [stranger.source, /does not believe that a controller asks/],
    [forged, /tells a checksum that the key .* does not prove/]
  ] as const) {
    const { bench, copies } = await lacking(
      t,
      tx => tx.put('osimage', 'compute', { name: 'compute', kernelfile: image.kernelfile }),
      [from]
    )
    await copies.run()
    t.strictSame(readdirSync(bench.path('files')), [])
    t.match(copies.condition, { ok: false, reason: why })
  }
  t.ok(existsSync(has.path('files', image.kernelfile)))
})

t.test('a controller that answers nonsense, or whose url cannot be read, is passed over', async t => {
  const { source, image } = await having(t, content(1000))
  const sha256 = '0'.repeat(64)
  const noText = { toString: 1, valueOf: 1 }
  const answers = [
    { bytes: 3, sha256: noText },
    { bytes: 3, sha256, proof: noText },
    { bytes: noText, sha256 }
  ]
  const odd = answers.map(answer => impostor(t, (_request, response) => response.end(JSON.stringify(answer))))
  for (const first of [...(await Promise.all(odd)), { name: 'odd', url: '' }]) {
    const kernel = (tx: Tx) => tx.put('osimage', 'compute', { name: 'compute', kernelfile: image.kernelfile })
    const { bench, copies } = await lacking(t, kernel, [first, source])
    await copies.run()
    t.strictSame(readdirSync(bench.path('files')), [image.kernelfile], copies.condition.reason)
    const { copies: alone } = await lacking(t, kernel, [first])
    await alone.run()
    t.match(alone.condition, { ok: false, reason: /controller odd / })
  }
})

t.test('a controller gives files that objects name, to controllers', async t => {
  const { source, image, proofs, bench } = await having(t, content(1000))
  putFile(bench, 'other', content(10))
  const ask = async (path: string, headers: Record<string, string> = proofs.headersFor(path)) =>
    (await fetch(source.url + path, { headers })).status
  for (const path of [`/copies/${image.kernelfile}`, `/copies/${image.kernelfile}/checksum`]) {
    t.equal(await ask(path), 200)
    t.equal(await ask(path, {}), 401)
    t.equal(
      await ask(path, proofs.headersFor(`/copies/${image.initrdfile}`)),
      401,
      'the proof of another question'
    )
    t.equal(await ask(path, { 'x-svcd-controller': 'x' }), 401)
  }
  for (const path of ['/copies/gone', '/copies/gone/checksum', '/copies/..%2Fstate', '/copies/.x/checksum'])
    t.equal(await ask(path), 404, path)
  // Nothing names it, as far as is known here.
  for (const path of ['/copies/other', '/copies/other/checksum']) t.equal(await ask(path), 503, path)
  // It may still be written.
  utimesSync(bench.path('files', image.kernelfile), new Date(), new Date())
  t.equal(await ask(`/copies/${image.kernelfile}/checksum`), 503)
})

t.test('who has nothing, and who is not there, is told once', async t => {
  const image = imageOf(content(1000))
  const { source } = await controllerWith(t, image.objects)
  const { bench, copies } = await lacking(t, image.objects, [source])
  for (const _ of Array(3)) await copies.run()
  // An image may name a file before it is there (rules 9.3).
  t.match(copies.condition, {
    ok: true,
    reason: /compute-kernel.*controller one .* does not have it.*put it into/
  })
  t.equal(warnings(bench.log).length, 3, bench.log.join('\n'))
  const dead = { name: 'two', url: 'http://127.0.0.1:9' }
  const { bench: other, copies: asking } = await lacking(t, image.objects, [source, dead])
  for (const _ of Array(3)) await asking.run()
  t.match(asking.condition, {
    ok: false,
    reason: /controller two \(http:\/\/127\.0\.0\.1:9\) cannot be asked \(ECONNREFUSED\)/
  })
  t.equal(warnings(other.log).length, 3)
  const { copies: alone } = await lacking(t, image.objects, [])
  await alone.run()
  t.match(alone.condition, { ok: true, reason: /no other controller/ })
})

// rules 9.3
t.test('who has a file that is not here is asked anew each time', async t => {
  const image = imageOf(content(1000))
  const { source, bench: has } = await controllerWith(t, image.objects)
  const sources = [source]
  const { copies } = await lacking(t, image.objects, sources)
  const { signal } = new AbortController()
  await copies.run()
  t.equal(copies.isNowhere(image.kernelfile), true)
  t.equal(await copies.whoHas(image.kernelfile, signal), undefined)
  writeFileSync(has.path('files', image.kernelfile), 'mine')
  t.match(await copies.whoHas(image.kernelfile, signal), /controller one .*the file changed a moment ago/)
  putFile(has, image.kernelfile, content(10))
  t.equal(await copies.whoHas(image.kernelfile, signal), 'controller one has it')
  sources.push({ name: 'two', url: 'http://127.0.0.1:9' })
  t.match(await copies.whoHas(image.initrdfile, signal), /controller two .* cannot be asked/)
  sources.length = 0
  t.equal(await copies.whoHas(image.kernelfile, signal), undefined)
})

t.test('what an admin has put there, before or meanwhile, is neither replaced nor removed', async t => {
  const pack = content(MEGABYTE)
  const { source, image } = await having(t, pack)
  const mutex = new Mutex()
  // When all has come, and is about to get its name.
  let meanwhile = () => {}
  const files = {
    run: <R>(work: () => Promise<R>) =>
      mutex.run(() => {
        meanwhile()
        return work()
      })
  } as Mutex
  const { bench, copies } = await lacking(t, image.objects, [source], {
    files,
    overrides: ['image.grace=1h']
  })
  const own = (name: string) => bench.path('files', name)
  writeFileSync(own(image.kernelfile), 'mine')
  symlinkSync('/nowhere', own(image.initrdfile))
  meanwhile = () => {
    if (readdirSync(bench.path('files')).some(name => name.startsWith('.')))
      writeFileSync(own(image.imagefile), 'mine', { flag: 'wx' })
  }
  await copies.run()
  const all = [image.imagefile, image.initrdfile, image.kernelfile].sort()
  t.strictSame(readdirSync(bench.path('files')).sort(), all)
  await copies.run()
  await bench.put(tx => {
    tx.remove('osimage', 'compute')
    tx.remove('pack', image.imagefile)
  })
  for (const _ of Array(2)) {
    await copies.run()
    bench.now += 2 * hour
  }
  await copies.run()
  t.strictSame(readdirSync(bench.path('files')).sort(), all)
  for (const name of [image.imagefile, image.kernelfile]) t.equal(readFileSync(own(name), 'utf8'), 'mine')
})

t.test(
  'what nobody names any more goes after the grace: what was fetched, and packs that were made here',
  async t => {
    const pack = content(1000)
    const { source, image } = await having(t, pack)
    const made = imageOf(content(500, 8), 'made')
    const objects = (tx: Parameters<typeof image.objects>[0]) => {
      image.objects(tx)
      made.objects(tx)
    }
    const { bench, copies, open } = await lacking(t, objects, [source], { overrides: ['image.grace=1h'] })
    const own = (name: string) => bench.path('files', name)
    // As a controller has them that wrote until now.
    const stem = made.imagefile.replace('.tar.zst', '')
    writeFileSync(own(made.imagefile), content(500, 8))
    for (const name of [`${made.imagefile}.torrent`, `${stem}-vmlinuz-6`]) writeFileSync(own(name), name)
    for (const name of [made.kernelfile, made.initrdfile, 'mine', `${stem.slice(0, -1)}x-vmlinuz`])
      writeFileSync(own(name), 'an admin has put it there')
    await copies.run()
    t.equal(readdirSync(bench.path('files')).length, 10)
    // The one that writes removes a pack, and the record of it.
    await bench.put(tx => {
      tx.remove('osimage', 'made')
      tx.remove('pack', made.imagefile)
      tx.put('osimage', 'compute', {
        name: 'compute',
        imagefile: image.imagefile,
        initrdfile: image.initrdfile
      })
    })
    await copies.run()
    bench.now += hour - 1
    await copies.run()
    t.equal(readdirSync(bench.path('files')).length, 10, 'a millisecond before')
    await copies.close()
    const again = await open()
    await again.run()
    bench.now += hour
    await again.run()
    t.strictSame(
      readdirSync(bench.path('files')).sort(),
      [
        ...[image.imagefile, image.initrdfile, made.kernelfile, made.initrdfile, 'mine'],
        `${stem.slice(0, -1)}x-vmlinuz`
      ].sort()
    )
    t.match(bench.log.join('\n'), /no OS image uses them any more: .*compute-kernel/)
    // What another one of that name is by now is not svcd's.
    rmSync(own(image.initrdfile))
    writeFileSync(own(image.initrdfile), 'an admin has put it there')
    await bench.put(tx => tx.put('osimage', 'compute', { name: 'compute', imagefile: image.imagefile }))
    await again.run()
    bench.now += hour
    await again.run()
    t.ok(existsSync(own(image.initrdfile)))
  }
)

t.test('a file of a pack that an admin has changed in place stays when the pack goes', async t => {
  const pack = content(500)
  const made = imageOf(pack, 'made')
  const { bench, copies, open } = await lacking(t, made.objects, [], { overrides: ['image.grace=1h'] })
  const stem = made.imagefile.replace('.tar.zst', '')
  const [kernel, initrd] = [`${stem}-vmlinuz-6`, `${stem}-initrd.img-6`]
  const torrent = `${made.imagefile}.torrent`
  putFile(bench, made.imagefile, pack)
  for (const name of [kernel, initrd, torrent]) putFile(bench, name, content(100))
  await copies.run()
  writeFileSync(bench.path('files', kernel), 'mine')
  writeFileSync(bench.path('files', torrent), 'for another tracker')
  await copies.run()
  await copies.close()
  const again = await open()
  await again.run()
  await bench.put(tx => {
    tx.remove('osimage', 'made')
    tx.remove('pack', made.imagefile)
  })
  await again.run()
  bench.now += hour
  await again.run()
  t.strictSame(readdirSync(bench.path('files')), [kernel])
  t.equal(readFileSync(bench.path('files', kernel), 'utf8'), 'mine')
  t.match(bench.log.join('\n'), new RegExp(`no OS image uses them any more: .*${initrd}`))
})

t.test('a file with a second name, as a crash leaves it, is whole; the other name goes', async t => {
  const pack = content(1000)
  const { source, image } = await having(t, pack)
  const { bench, copies } = await lacking(t, image.objects, [source])
  writeFileSync(bench.path('files', image.imagefile), pack)
  linkSync(
    bench.path('files', image.imagefile),
    bench.path('files', `.svcd-copy-${image.sha256.slice(0, 16)}-${image.imagefile}`)
  )
  await copies.run()
  t.equal(readdirSync(bench.path('files')).length, 3)
  t.equal(statSync(bench.path('files', image.imagefile)).nlink, 1)
})

t.test('a full disk: said once, nothing is left of the file, and it arrives when there is room', async t => {
  const pack = content(400_000)
  const { source, image } = await having(t, pack)
  const objects = (tx: Parameters<typeof image.objects>[0]) => {
    image.objects(tx)
    tx.put('osimage', 'compute', { name: 'compute', imagefile: image.imagefile })
  }
  const disk = smallDisk(t, '1m')
  const free = fillDisk(disk)
  const { bench, copies } = await lacking(t, objects, [source], { overrides: [`paths.files=${disk}`] })
  for (const _ of Array(3)) await copies.run()
  t.match(copies.condition, { ok: false, reason: /no room for its 400000 bytes .*make room/ })
  t.equal(warnings(bench.log).length, 1, bench.log.join('\n'))
  t.strictSame(readdirSync(disk), ['filler'])
  free()
  await copies.run()
  t.ok(readFileSync(`${disk}/${image.imagefile}`).equals(pack))
  t.strictSame(copies.condition, { ok: true, reason: '' })

  // What has come stays while there is no room for the rest.
  rmSync(`${disk}/${image.imagefile}`)
  const part = `.svcd-copy-${image.sha256.slice(0, 16)}-${image.imagefile}`
  writeFileSync(`${disk}/${part}`, pack.subarray(0, 100_000))
  const again = fillDisk(disk)
  await copies.run()
  t.match(copies.condition, { ok: false, reason: /no room for its 400000 bytes/ })
  t.equal(statSync(`${disk}/${part}`).size, 100_000)
  again()
  await copies.run()
  t.ok(readFileSync(`${disk}/${image.imagefile}`).equals(pack))

  // It would fit, but then svcd would have failed for want of room.
  const tight = smallDisk(t, '1m')
  const large = imageOf(content(1_000_000))
  const line = await Line.to(t, source)
  const { copies: refusing } = await lacking(
    t,
    tx => {
      large.objects(tx)
      tx.put('osimage', 'compute', { name: 'compute', imagefile: large.imagefile })
    },
    [line.source],
    { overrides: [`paths.files=${tight}`] }
  )
  await refusing.run()
  t.match(refusing.condition, { ok: false, reason: /no room for its 1000000 bytes/ })
  t.equal(line.sent, 0, 'nobody is asked for it')

  // It fills up under way.
  const small = smallDisk(t, '1m')
  const odd = await impostor(t, (_request, response) => {
    response.writeHead(206, { 'content-range': 'bytes 0-399999/400000', 'content-length': 400_000 })
    response.write(pack.subarray(0, 100_000))
    void until(() => readdirSync(small).some(name => statSync(`${small}/${name}`).size === 100_000)).then(
      () => {
        fillDisk(small)
        response.end(pack.subarray(100_000))
      }
    )
  })
  const { bench: other, copies: filling } = await lacking(t, objects, [odd], {
    overrides: [`paths.files=${small}`]
  })
  await filling.run()
  t.match(filling.condition, { ok: false, reason: /no room for its 400000 bytes/ }, other.log.join('\n'))
  t.strictSame(readdirSync(small), ['filler'], 'others need the room as well')
})

t.test('two files at once have to fit together', async t => {
  const [one, two] = [imageOf(content(500_000), 'one'), imageOf(content(500_000, 2), 'two')]
  let asked = 0
  const source = await impostor(t, async ({ url = '' }, response) => {
    asked++
    const bytes = url.includes('one-') ? content(500_000) : content(500_000, 2)
    response.writeHead(206, {
      'content-range': 'bytes 0-499999/500000',
      'content-length': bytes.length
    })
    response.write(bytes.subarray(0, 1000))
    setTimeout(() => response.end(bytes.subarray(1000)), 300)
  })
  const disk = smallDisk(t, '1m')
  const { bench, copies } = await lacking(
    t,
    tx => {
      for (const { objects, imagefile } of [one, two]) {
        objects(tx)
        const [name = ''] = imagefile.split('-')
        tx.put('osimage', name, { name, imagefile })
      }
    },
    [source],
    { overrides: [`paths.files=${disk}`] }
  )
  await copies.run()
  t.equal(asked, 1, 'the second one is not begun')
  t.equal(readdirSync(disk).length, 1, readdirSync(disk).join())
  t.match(copies.condition, { ok: false, reason: /no room for its 500000 bytes/ }, bench.log.join('\n'))
})

t.test('a controller that is not there any more is not waited for', async t => {
  const pack = content(1000)
  const { source, image } = await having(t, pack)
  // It stands still: connections are taken, and nothing is answered.
  const still = await impostor(t, () => undefined)
  const sources = [still, source]
  const { bench, copies } = await lacking(t, image.objects, sources)
  const run = copies.run()
  setTimeout(() => sources.shift(), 200)
  await run
  t.equal(readdirSync(bench.path('files')).length, 3, bench.log.join('\n'))
  t.strictSame(copies.condition, { ok: true, reason: '' })
})

t.test('a controller that says something else each time does not fill the log', async t => {
  let status = 405
  const odd = await impostor(t, (_request, response) => response.writeHead(status++).end())
  const { bench, copies } = await lacking(
    t,
    tx => tx.put('osimage', 'compute', { name: 'compute', kernelfile: 'vmlinuz' }),
    [odd]
  )
  for (const _ of Array(50)) await copies.run()
  t.ok(warnings(bench.log).length <= 20, `${warnings(bench.log).length} lines`)
})

t.test('svcd ends at once while a file is fetched', async t => {
  const image = imageOf(content(100_000))
  const silent = await impostor(t, (_request, response) => {
    response.writeHead(206, { 'content-range': 'bytes 0-99999/100000', 'content-length': 100_000 })
    response.write('x')
  })
  const objects = (tx: Parameters<typeof image.objects>[0]) =>
    tx.put('osimage', 'compute', { name: 'compute', imagefile: image.imagefile })
  const { bench, copies } = await lacking(
    t,
    tx => {
      image.objects(tx)
      objects(tx)
    },
    [silent],
    { pace: { bytes: 1, ms: 10 * hour } }
  )
  const running = copies.run()
  await until(() =>
    readdirSync(bench.path('files')).some(name => statSync(bench.path('files', name)).size === 1)
  )
  t.match(copies.condition, { ok: true, reason: /fetched from other controllers: 1/ })
  await copies.close()
  await running
  t.strictSame(warnings(bench.log), [], 'a stop is no fault')
})

// rules 7.7
t.test('a file that is missing is no problem to svcd check where svcd fetches it', async t => {
  const image = imageOf(content(10))
  const { bench } = await lacking(t, image.objects, [], { overrides: ['store.medium=etcd'] })
  const { config, model } = bench.context
  await bench.put(tx => tx.put('node', 'n1', { name: 'n1', osimage: 'compute' } as never))
  const { problems, warnings } = imageFindings(config as Config, model.view, model.cluster)
  t.strictSame(problems, [])
  t.match(warnings, [/compute-kernel; svcd fetches it from another controller/])
})

// rules 7.7, 9.15
t.test('a directory that another controller has is not missed by svcd check', async t => {
  const { bench } = await lacking(t, () => {}, [], {
    overrides: ['store.medium=etcd', 'controller.name=c1']
  })
  const { config, model } = bench.context
  await bench.put(tx => {
    for (const [name, controller] of Object.entries({ away: 'c2', here: 'c1' }))
      tx.put('osimage', name, { name, controller })
    tx.put('osimage', 'unknown', { name: 'unknown' })
  })
  const lacks = (name: string) =>
    `OS image ${name}: there is no directory ${bench.path('images', name)} on controller c1, and svcd knows of none on another one: it ` +
    'cannot be packed or pushed'
  const { warnings } = imageFindings(config as Config, model.view, model.cluster)
  t.strictSame(warnings, [lacks('here'), lacks('unknown')])
})

t.test(
  'where torrents are on, a pack comes by http as well, and seeders may read it (rules 11.19)',
  async t => {
    const pack = content(17 * MEGABYTE)
    const { bench: has, source, image } = await having(t, pack)
    putFile(has, `${image.imagefile}.torrent`, Buffer.from('a torrent'))
    const overrides = ['torrent.tracker=http://127.0.0.1:9/announce']
    const { bench, copies } = await lacking(t, onlyPack(image), [source], { overrides })
    chmodSync(bench.path('files'), 0o2750)
    await copies.run()
    const file = bench.path('files', image.imagefile)
    t.ok(readFileSync(file).equals(pack))
    t.equal(statSync(file).mode & 0o777, 0o640, 'as packs are where a seeder reads them (rules 9.11)')
    t.match(bench.log.join('\n'), `(${pack.length} bytes) was fetched from controller one`)
    t.notMatch(bench.log.join('\n'), 'torrent')
  }
)

t.test(
  'a controller that has the file, and has not heard yet who names it, does not say that it lacks it',
  async t => {
    const image = imageOf(content(1000))
    const { bench: has, source } = await controllerWith(t, () => {})
    putFile(has, image.kernelfile, content(70_000, 2))
    const { bench, copies } = await lacking(t, image.objects, [source])
    await copies.run()
    t.match(await copies.whoHas(image.kernelfile, new AbortController().signal), /cannot give it now \(503\)/)
    t.equal(await copies.whoHas(image.initrdfile, new AbortController().signal), undefined)
    await has.put(image.objects)
    await copies.run()
    t.ok(existsSync(bench.path('files', image.kernelfile)))
  }
)
