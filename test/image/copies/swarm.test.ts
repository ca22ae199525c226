// A pack that comes from other controllers by torrent (rules 11.19), with a real tracker and a real seeder.
import { once } from 'node:events'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync
} from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname } from 'node:path'
import t, { type Test } from 'tap'
import { Distribution } from '../../../lib/image/torrent/distribution.js'
import { scrape } from '../../../lib/image/torrent/scrape.js'
import { createTorrent } from '../../../lib/image/torrent/torrent.js'
import type { Tx } from '../../../lib/model/stored.js'
import { requirePrograms, requireRoot } from '../../support/programs.js'
import { fillDisk, smallDisk } from '../../support/small-disk.js'
import { until } from '../../support/until.js'
import { aria2, forSeeders, openTracker } from '../servers.js'
import { content, controllerWith, imageOf, Line, lacking, putFile } from './site.js'

requireRoot()
requirePrograms('opentracker', 'aria2c', 'setpriv')
process.umask(0o077)
// They wait more than they work.
t.jobs = 4

const MEGABYTE = 1024 * 1024
/** So long is waited for something to come. */
const quick = { bytes: 1000, ms: 2000, brisk: 1000 }

const { signal } = new AbortController()
const pack = content(24 * MEGABYTE)
const image = imageOf(pack)

/**
 * A controller that has the pack and its torrent, with a tracker of its own, and a seeder that offers
 * `offered` under the pack's name. The way to it for http counts what comes. `announced`: the torrent of that
 * controller names that tracker in place of the one that works.
 */
async function site(
  t: Test,
  {
    offered = pack,
    isSeeding = true,
    more = [],
    announced = (announce: string) => announce
  }: {
    offered?: Buffer
    isSeeding?: boolean
    more?: string[]
    announced?: (announce: string) => string | Promise<string>
  } = {}
) {
  const tracker = await openTracker(t)
  await tracker.start()
  const announce = `http://127.0.0.1:${tracker.port}/announce`
  const { bench: has, source } = await controllerWith(t, image.objects)
  putFile(has, image.imagefile, pack)
  const directory = has.path('seeded')
  mkdirSync(directory)
  const file = `${directory}/${image.imagefile}`
  writeFileSync(file, offered)
  const torrent = `${image.imagefile}.torrent`
  const made = { file, name: image.imagefile, signal }
  const { infoHash } = await createTorrent({ ...made, announce, output: `${file}.torrent` })
  await createTorrent({ ...made, announce: await announced(announce), output: has.path('files', torrent) })
  utimesSync(has.path('files', torrent), 1_000_000, 1_000_000)
  await forSeeders(directory)
  const seeder = await aria2(t, undefined, more)
  await seeder.start()
  const distribution = new Distribution({
    torrent: {
      ...{ tracker: announce, whitelist: tracker.whitelist, tracker_reload: tracker.reload },
      ...{ seeder: 'aria2', seeder_url: seeder.url, seeder_secret: 'swordfish', seeder_watch: '' }
    },
    files: directory,
    state: dirname(directory),
    log: has.context.log,
    intervalMs: 300
  })
  t.teardown(() => distribution.close())
  distribution.wanted(isSeeding ? [torrent] : [])
  if (isSeeding)
    await until(
      async () => ((await scrape(announce, [infoHash], signal)).get(infoHash) ?? 0) > 0,
      () => has.log.join('\n')
    )
  const line = await Line.to(t, source)
  /** How many bytes the seeder has given. */
  const given = async () => {
    const question = {
      jsonrpc: '2.0',
      id: 1,
      method: 'aria2.tellActive',
      params: ['token:swordfish', ['uploadLength']]
    }
    const answer = await fetch(seeder.url, { method: 'POST', body: JSON.stringify(question) })
    const { result } = (await answer.json()) as { result: { uploadLength: string }[] }
    return result.reduce((sum, { uploadLength }) => sum + Number(uploadLength), 0)
  }
  return { line, given, overrides: [`torrent.tracker=${announce}`] }
}

const objects = (tx: Tx) => {
  image.objects(tx)
  tx.put('osimage', 'compute', { name: 'compute', imagefile: image.imagefile })
}

/** What is hidden in a directory. */
const begun = (directory: string) => readdirSync(directory).filter(name => name.startsWith('.'))
const arrived = (t: Test, bench: Awaited<ReturnType<typeof lacking>>['bench']) => {
  const file = bench.path('files', image.imagefile)
  t.ok(existsSync(file) && readFileSync(file).equals(pack), bench.log.join('\n'))
}

/** The limits of the aria2c that writes below a directory. */
function limitsOf(directory: string): string {
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name)))
    try {
      const [program = '', ...words] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
      if (program.endsWith('aria2c') && words.some(word => word.startsWith(`--dir=${directory}/`)))
        return readFileSync(`/proc/${pid}/limits`, 'utf8')
    } catch {
      // It has ended.
    }
  return 'there is no aria2c'
}

t.test('a pack comes by torrent: by http its torrent alone', async t => {
  const { line, overrides } = await site(t)
  const { bench, copies, arrived: times } = await lacking(t, objects, [line.source], { overrides })
  await forSeeders(bench.path('files'))
  await copies.run()
  arrived(t, bench)
  t.ok(line.sent < 20_000, `${line.sent} bytes by http`)
  const { mode, gid, nlink } = statSync(bench.path('files', image.imagefile))
  t.equal(mode & 0o777, 0o640, 'as packs are where a seeder reads them (rules 9.11)')
  t.equal(gid, statSync(bench.path('files')).gid)
  t.equal(nlink, 1)
  t.strictSame(begun(bench.path('files')), [])
  t.equal(times.times, 1)
  t.strictSame(copies.condition, { ok: true, reason: '' })
  t.match(bench.log.join('\n'), `info ${image.imagefile} (${pack.length} bytes) was fetched by torrent`)
})

t.test('what came by torrent is used after a restart of svcd', async t => {
  const { line, given, overrides } = await site(t, { more: ['--max-overall-upload-limit=4M'] })
  const { bench, copies, open } = await lacking(t, objects, [line.source], { overrides })
  const part = () => {
    const [name = ''] = begun(bench.path('files'))
    return (statSync(bench.path('files', name, 'file'), { throwIfNoEntry: false })?.blocks ?? 0) * 512
  }
  const running = copies.run()
  await until(
    () => part() > 8 * MEGABYTE,
    () => bench.log.join('\n')
  )
  t.match(limitsOf(bench.path('files')), /^Max address space +536870912 /m, 'peers cannot make it take more')
  await copies.close()
  await running
  const had = part()
  t.ok(had > 8 * MEGABYTE && had < pack.length, `${had} bytes`)
  t.notOk(existsSync(bench.path('files', image.imagefile)))
  const again = await open()
  await again.run()
  arrived(t, bench)
  const whole = await given()
  t.ok(whole < pack.length + had / 2, `${whole} bytes by torrent: what was there is not fetched again`)
  t.ok(line.sent < 40_000, `${line.sent} bytes by http`)
})

t.test(
  'where nothing comes by torrent, the log says why, and the pack comes by http from then on',
  async t => {
    const { line, overrides } = await site(t, { isSeeding: false })
    const { bench, copies } = await lacking(t, objects, [line.source], { overrides, pace: quick })
    line.most = 3 * MEGABYTE
    await copies.run()
    t.match(copies.condition, { ok: false, reason: /broke off/ })
    t.match(begun(bench.path('files')), [/^\.svcd-copy-/])
    line.most = Number.POSITIVE_INFINITY
    await copies.run()
    arrived(t, bench)
    const told = bench.log.filter(text => text.includes('by torrent'))
    t.equal(told.length, 1, bench.log.join('\n'))
    t.match(
      told[0],
      /did not come by torrent, and is fetched by http: 0 bytes came in 2 s, fewer than 1000: look at/
    )
    t.strictSame(begun(bench.path('files')), [])
    t.strictSame(copies.condition, { ok: true, reason: '' })
  }
)

t.test(
  'a pack of which a part has come by http goes on by http; what nobody waits for is removed',
  async t => {
    const { line, given, overrides } = await site(t)
    const { bench, copies } = await lacking(t, objects, [line.source], { overrides })
    const files = bench.path('files')
    writeFileSync(
      `${files}/.svcd-copy-${image.sha256.slice(0, 16)}-${image.imagefile}`,
      pack.subarray(0, 5_000_000)
    )
    mkdirSync(`${files}/.svcd-swarm-${'0'.repeat(16)}-nobody/x`, { recursive: true })
    await copies.run()
    arrived(t, bench)
    t.strictSame(begun(files), [])
    t.equal(await given(), 0)
    t.ok(line.sent < pack.length, 'the part is used')
  }
)

t.test('where torrent is turned off half-way, what has come makes room', async t => {
  const { line } = await site(t, { isSeeding: false })
  const disk = smallDisk(t, '40m')
  const { bench, copies } = await lacking(t, objects, [line.source], {
    overrides: ['torrent.tracker=', `paths.files=${disk}`]
  })
  const swarm = `${disk}/.svcd-swarm-${image.sha256.slice(0, 16)}-${image.imagefile}`
  mkdirSync(swarm)
  writeFileSync(`${swarm}/file`, pack.subarray(0, 20 * MEGABYTE))
  await copies.run()
  t.ok(readFileSync(`${disk}/${image.imagefile}`).equals(pack), bench.log.join('\n'))
  t.strictSame(readdirSync(disk), [image.imagefile])
})

t.test('a pack that has come and cannot get its name is not fetched again', async t => {
  const { line, given, overrides } = await site(t)
  const { bench, copies } = await lacking(t, objects, [line.source], { overrides })
  // The list of what svcd has fetched cannot be written.
  mkdirSync(bench.path('state', 'copies.json', 'in-the-way'), { recursive: true })
  await copies.run()
  t.equal(copies.condition.ok, false)
  t.notOk(existsSync(bench.path('files', image.imagefile)))
  rmSync(bench.path('state', 'copies.json'), { recursive: true })
  await copies.run()
  arrived(t, bench)
  const bytes = await given()
  t.ok(bytes < pack.length * 1.5, `${bytes} bytes by torrent`)
})

t.test('what comes too slowly by torrent is left for http', async t => {
  const { line, overrides } = await site(t, { more: ['--max-overall-upload-limit=100K'] })
  const pace = { bytes: 1000, ms: 3000, brisk: MEGABYTE }
  const { bench, copies } = await lacking(t, objects, [line.source], { overrides, pace })
  await copies.run()
  arrived(t, bench)
  t.match(bench.log.join('\n'), /is fetched by http: \d+ bytes came in 3 s, fewer than 1048576: look at/)
})

t.test('a tracker that does not let the program end does not keep the pack', async t => {
  /** As the tracker, but for those who have all: they get a byte a second. */
  const dripping = async (announce: string) => {
    const server = createServer((request, response) => {
      const { search, searchParams } = new URL(request.url ?? '', announce)
      if (searchParams.get('left') !== '0')
        return void fetch(`${announce}${search}`)
          .then(answer => answer.arrayBuffer())
          .then(bytes => response.end(Buffer.from(bytes)))
      response.writeHead(200, { 'content-length': 100_000 })
      const drops = setInterval(() => response.write('d'), 1000)
      response.on('close', () => clearInterval(drops))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => {
      server.closeAllConnections()
      server.close()
    })
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/announce`
  }
  const { line, overrides } = await site(t, { announced: dripping })
  const { bench, copies } = await lacking(t, objects, [line.source], { overrides })
  await copies.run()
  arrived(t, bench)
  t.match(bench.log.join('\n'), 'was fetched by torrent')
  t.ok(line.sent < 20_000, `${line.sent} bytes by http`)
})

t.test('a tracker over udp is not asked: aria2c would talk to everybody', async t => {
  const { line, overrides } = await site(t, {
    announced: announce => announce.replace(/^http/, 'udp'),
    isSeeding: false
  })
  const { bench, copies } = await lacking(t, objects, [line.source], { overrides })
  await copies.run()
  arrived(t, bench)
  t.match(bench.log.join('\n'), /is fetched by http: its tracker is not asked by http$/m)
})

for (const [what, offered, why] of [
  ['of the same size', content(pack.length, 5), /what came is another file, by its checksum/],
  ['of another size', content(pack.length + 1, 5), /its torrent is of a file with another size/]
] as const)
  t.test(`a torrent of another file ${what}: nothing of it gets the name`, async t => {
    const { line, overrides } = await site(t, { offered })
    const { bench, copies } = await lacking(t, objects, [line.source], { overrides })
    await copies.run()
    arrived(t, bench)
    t.match(bench.log.join('\n'), why)
    t.strictSame(begun(bench.path('files')), [])
  })

t.test(
  'a disk that fills up while a torrent comes: said, nothing is left, and it comes when there is room',
  async t => {
    const { line, overrides } = await site(t, { more: ['--max-overall-upload-limit=8M'] })
    const disk = smallDisk(t, '40m')
    const { bench, copies } = await lacking(t, objects, [line.source], {
      overrides: [...overrides, `paths.files=${disk}`]
    })
    const running = copies.run()
    await until(
      () => begun(disk).some(name => existsSync(`${disk}/${name}/file`)),
      () => bench.log.join('\n')
    )
    const free = fillDisk(disk)
    await running
    t.match(copies.condition, { ok: false, reason: /no room for its \d+ bytes .*make room/ })
    t.strictSame(readdirSync(disk), ['filler'])
    free()
    await copies.run()
    t.ok(readFileSync(`${disk}/${image.imagefile}`).equals(pack))
    t.match(bench.log.join('\n'), 'was fetched by torrent')
  }
)
