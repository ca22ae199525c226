import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createLog } from '../../../lib/base/log.js'
import { Distribution, type DistributionOptions } from '../../../lib/image/torrent/distribution.js'
import { scrape } from '../../../lib/image/torrent/scrape.js'
import { keepSeeding, Ledger } from '../../../lib/image/torrent/seeding.js'
import { createTorrent, type Seeder } from '../../../lib/image/torrent/torrent.js'
import { run } from '../../../lib/program/program.js'
import { freePort } from '../../support/free-port.js'
import { output, requirePrograms, requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { aria2, forSeeders, type OpenTracker, openTracker, transmission, until } from '../servers.js'

requireRoot()
requirePrograms('opentracker', 'transmission-daemon', 'transmission-remote', 'aria2c', 'setpriv')

// As systemd starts the daemon.
process.umask(0o077)
// They wait more than they work.
t.jobs = 4

const { signal } = new AbortController()
type Settings = DistributionOptions['torrent']

/**
 * A tracker, a files directory with torrents a, b and c of three small images, and what the ini would say.
 */
async function cluster(t: Test) {
  const tracker = await openTracker(t)
  await tracker.start()
  const root = scratch(t)
  const files = join(root, 'files')
  await mkdir(files)
  const announce = `http://127.0.0.1:${tracker.port}/announce`
  const infoHashes = new Map<string, string>()
  for (const image of ['a.tar', 'b.tar', 'c.tar']) {
    const file = join(files, image)
    const name = `${image}.torrent`
    await writeFile(file, image.repeat(100_000))
    const made = await createTorrent({ file, name: image, announce, output: join(files, name), signal })
    infoHashes.set(name, made.infoHash)
  }
  await forSeeders(files)
  const torrent: Settings = {
    tracker: announce,
    whitelist: tracker.whitelist,
    tracker_reload: tracker.reload,
    seeder: 'none',
    seeder_url: '',
    seeder_secret: '',
    seeder_watch: ''
  }
  return { tracker, root, files, infoHashes, torrent, hash: (name: string) => infoHashes.get(name) ?? '' }
}

type Cluster = Awaited<ReturnType<typeof cluster>>

function distribute(t: Test, { files, root, torrent }: Cluster, settings: Partial<Settings>) {
  const lines: string[] = []
  const log = createLog('info', line => lines.push(line))
  const distribution = new Distribution({
    torrent: { ...torrent, ...settings },
    files,
    state: root,
    log,
    run: ([program = '', ...words], signal) => run(program, words, { timeLimitMs: 30_000, signal }),
    intervalMs: 300
  })
  t.teardown(() => distribution.close())
  const conditions = () => [distribution.tracker, distribution.seeder, lines]
  return {
    distribution,
    /** Waits until all is well and the tracker knows a seeder of each of these. */
    well: (...infoHashes: string[]) =>
      until(async () => {
        if (!distribution.tracker.ok || !distribution.seeder.ok) return false
        const known = await scrape(torrent.tracker, infoHashes, signal)
        return infoHashes.every(infoHash => (known.get(infoHash) ?? 0) > 0)
      }, conditions),
    /** Waits until this part says so. */
    says: (part: 'tracker' | 'seeder', reason: RegExp) =>
      until(() => !distribution[part].ok && reason.test(distribution[part].reason), conditions)
  }
}

/** Bytes that this transmission has uploaded of all it has now. */
async function uploaded(url: string): Promise<number> {
  const list = await output('transmission-remote', [new URL(url).host, '--auth', secret, '-t', 'all', '-i'])
  return /^ {2}Uploaded: None$/m.test(list) ? 0 : 1
}

const whitelisted = async ({ whitelist }: OpenTracker) =>
  (await readFile(whitelist, 'utf8')).split('\n').filter(Boolean)

const secret = 'admin:correct horse'

const backends = {
  async transmission(t: Test) {
    const server = await transmission(t, {
      'rpc-authentication-required': true,
      'rpc-username': 'admin',
      'rpc-password': 'correct horse',
      // What an admin may have set for torrents of his own does not end ours.
      'ratio-limit': 0,
      'ratio-limit-enabled': true,
      'start-added-torrents': false
    })
    const remote = (...args: string[]) =>
      output('transmission-remote', [new URL(server.url).host, '--auth', secret, ...args])
    return {
      server,
      settings: { seeder: 'transmission', seeder_url: server.url, seeder_secret: secret } as const,
      add: (torrent: string, dir: string) => remote('--download-dir', dir, '--add', torrent),
      async infoHashes() {
        const list = await remote('--torrent', 'all', '--info')
        return [...list.matchAll(/^ {2}Hash: ([0-9a-f]{40})$/gm)].map(([, infoHash]) => infoHash as string)
      }
    }
  },
  async aria2(t: Test) {
    const server = await aria2(t)
    const call = async (method: string, ...params: unknown[]) => {
      const body = {
        jsonrpc: '2.0',
        id: 1,
        method: `aria2.${method}`,
        params: ['token:swordfish', ...params]
      }
      const answer = await fetch(server.url, { method: 'POST', body: JSON.stringify(body) })
      return ((await answer.json()) as { result: { infoHash: string }[] }).result
    }
    return {
      server,
      settings: { seeder: 'aria2', seeder_url: server.url, seeder_secret: 'swordfish' } as const,
      async add(torrent: string, dir: string) {
        const seeding = {
          dir,
          'check-integrity': 'true',
          'seed-ratio': '0.0',
          'rpc-save-upload-metadata': 'false'
        }
        await call('addTorrent', await readFile(torrent, 'base64'), [], seeding)
      },
      infoHashes: async () => (await call('tellActive', ['infoHash'])).map(({ infoHash }) => infoHash)
    }
  }
}

for (const [name, backend] of Object.entries(backends)) {
  // rules 9.10
  t.test(`${name}: torrents follow what is wanted`, async t => {
    const all = await cluster(t)
    const { tracker, files, hash } = all
    const { server, settings, add, infoHashes } = await backend(t)
    await server.start()
    const seeded = async () => (await infoHashes()).sort()
    const gone = (torrent: string) =>
      until(
        async () => !(await seeded()).includes(hash(torrent)),
        () => torrent
      )
    // The admin's own: one of no image, and one of an image of ours.
    const theirs = join(server.directory, 'theirs.tar')
    await writeFile(theirs, 'theirs')
    const foreign = await createTorrent({
      file: theirs,
      name: 'theirs.tar',
      announce: all.torrent.tracker,
      output: `${theirs}.torrent`,
      signal
    })
    await forSeeders(server.directory)
    // The tracker would refuse it, and aria2 not ask again for long.
    await writeFile(tracker.whitelist, `${hash('c.tar.torrent')}\n`)
    await output('sh', tracker.reload.slice(1))
    await add(`${theirs}.torrent`, server.directory)
    await add(join(files, 'c.tar.torrent'), files)
    const own = [foreign.infoHash, hash('c.tar.torrent')]

    const { distribution, well, says } = distribute(t, all, settings)
    t.notOk(distribution.seeder.ok, 'nothing is well that was not looked at')
    distribution.wanted([...all.infoHashes.keys()])
    await well(...all.infoHashes.values())
    t.strictSame(await seeded(), [...all.infoHashes.values(), foreign.infoHash].sort())
    t.strictSame(await whitelisted(tracker), [...all.infoHashes.values()].sort())

    distribution.wanted(['b.tar.torrent'])
    await gone('a.tar.torrent')
    await well()
    t.strictSame(await seeded(), [hash('b.tar.torrent'), ...own].sort(), "the admin's stay")
    t.strictSame(await whitelisted(tracker), [hash('b.tar.torrent')])

    await server.stop()
    await says('seeder', /\[torrent\] seeder_url/)
    t.ok(distribution.tracker.ok)
    await server.start()
    await well(hash('b.tar.torrent'))
    t.strictSame(await seeded(), [hash('b.tar.torrent')], 'a restarted seeder gets it back')
    await distribution.close()

    // Torrent turned off, what was ours goes, and nothing else; then it is given again.
    const off = distribute(t, all, { ...settings, tracker: '' })
    off.distribution.wanted([])
    await gone('b.tar.torrent')
    await off.distribution.close()
    const back = distribute(t, all, settings)
    back.distribution.wanted(['b.tar.torrent'])
    await back.well(hash('b.tar.torrent'))
    await back.distribution.close()

    const next = distribute(t, all, settings)
    next.distribution.wanted([])
    await gone('b.tar.torrent')
    await next.well()
    t.strictSame(await seeded(), [], 'after a restart it is known what was ours')
    t.strictSame(await whitelisted(tracker), [])
    t.strictSame((await readdir(files)).sort(), [
      'a.tar',
      'a.tar.torrent',
      'b.tar',
      'b.tar.torrent',
      'c.tar',
      'c.tar.torrent'
    ])
  })

  t.test(`${name}: what is wrong is named`, async t => {
    const all = await cluster(t)
    const { server, settings } = await backend(t)
    await server.start()
    const stranger = distribute(t, all, { ...settings, seeder_secret: 'admin:guess' })
    stranger.distribution.wanted(['a.tar.torrent'])
    await stranger.says('seeder', /does not take \[torrent\] seeder_secret/)
    t.notMatch(stranger.distribution.seeder.reason, 'guess')
    await stranger.distribution.close()

    const { distribution, well, says } = distribute(t, all, settings)
    await writeFile(join(all.files, 'b.tar'), 'c'.repeat(500_000))
    await writeFile(join(all.files, 'd.tar.torrent'), 'no torrent')
    distribution.wanted(['a.tar.torrent', 'b.tar.torrent', 'd.tar.torrent', 'e.tar.torrent'])
    await says(
      'seeder',
      /d\.tar\.torrent cannot be used.*e\.tar\.torrent cannot be used.*b\.tar\.torrent: [^;]* right/
    )
    t.ok(distribution.tracker.ok)
    distribution.wanted(['a.tar.torrent'])
    await well(all.hash('a.tar.torrent'))
    t.equal((await readFile(join(all.files, 'b.tar'), 'utf8')).slice(0, 3), 'ccc', 'the file was left alone')
  })
}

t.test('a tracker that missed a reload, or forgets all, is told again', async t => {
  const all = await cluster(t)
  const { server, settings } = await backends.transmission(t)
  await server.start()
  const count = join(all.root, 'reloads')
  const script = join(all.root, 'reload')
  // The first time it says it did it, and did not.
  await writeFile(
    script,
    `echo >> ${count}; [ "$(wc -l < ${count})" -lt 2 ] || exec ${all.tracker.reload.join(' ')}`
  )
  const { distribution, well, says } = distribute(t, all, { ...settings, tracker_reload: ['sh', script] })
  distribution.wanted(['a.tar.torrent'])
  await well(all.hash('a.tar.torrent'))
  const reloads = async () => (await readFile(count, 'utf8')).length
  const before = await reloads()
  const looks = distribution.tracker
  await until(
    () => distribution.tracker !== looks,
    () => distribution.tracker
  )
  t.equal(await reloads(), before, 'no change, no reload')
  distribution.wanted(['a.tar.torrent', 'b.tar.torrent'])
  await well(all.hash('b.tar.torrent'))
  t.ok((await reloads()) > before, 'a change, a reload')
  await all.tracker.stop()
  await says('tracker', /^tracker http:\/\/127\.0\.0\.1:\d+\/announce \(\[torrent\] tracker\): /)
  await all.tracker.start()
  await well(all.hash('a.tar.torrent'), all.hash('b.tar.torrent'))
})

t.test('what the admin adds at the same moment stays his', async t => {
  const root = scratch(t)
  const ledger = new Ledger(join(root, 'seeding.json'))
  const asked: string[] = []
  const seeder: Seeder = {
    list: async () => [],
    add: async ({ name }) => {
      asked.push(name)
      return false
    },
    remove: async () => {},
    start: async () => {},
    announce: async () => {}
  }
  const torrent = { name: 'a.tar.torrent', infoHash: 'a'.repeat(40) }
  await keepSeeding(seeder, ledger, root, new Set([torrent.name]), [torrent], signal)
  t.strictSame(asked, ['a.tar.torrent'])
  t.strictSame([...(await new Ledger(ledger.file).read())], [])
  await writeFile(ledger.file, '{')
  await t.rejects(new Ledger(ledger.file).read(), { message: /seeding\.json cannot be read/ })
})

// Half a minute, most of it until transmission lets a node have something.
const isLong = process.env.SVCD_LONG === '1'

const servesAgain = async (t: Test) => {
  const all = await cluster(t)
  const { server, settings } = await backends.transmission(t)
  await server.start()
  const { distribution, well } = distribute(t, all, settings)
  distribution.wanted(['a.tar.torrent'])
  await well(all.hash('a.tar.torrent'))
  for (const node of ['first', 'again']) {
    const own = join(all.root, node)
    const listen = `--listen-port=${await freePort()}`
    const quiet = ['--no-conf', '--enable-dht=false', '--enable-dht6=false', '--bt-enable-lpd=false', listen]
    const torrent = join(all.files, 'a.tar.torrent')
    await output('aria2c', [...quiet, '--seed-time=0', '--bt-stop-timeout=30', `--dir=${own}`, torrent])
    t.equal(await readFile(join(own, 'a.tar'), 'utf8'), 'a.tar'.repeat(100_000))
    // Added anew, it is checked, and announced.
    await until(
      async () => distribution.seeder.ok && (await uploaded(server.url)) === 0,
      () => distribution.seeder
    )
    await well(all.hash('a.tar.torrent'))
  }
}
t.test('transmission: one that was added but not set up, as a crash leaves it, loses the limits', async t => {
  const all = await cluster(t)
  const { server, settings, add } = await backends.transmission(t)
  await server.start()
  await add(join(all.files, 'a.tar.torrent'), all.files)
  const remote = (...args: string[]) =>
    output('transmission-remote', [new URL(server.url).host, '--auth', secret, '-t', 'all', ...args])
  await remote('--seedratio', '5')
  const ledger = new Ledger(join(all.root, 'seeding.json'))
  await ledger.set(all.hash('a.tar.torrent'), 'a.tar.torrent')
  const { distribution, well } = distribute(t, all, settings)
  distribution.wanted(['a.tar.torrent'])
  await until(
    async () => / Ratio Limit: Unlimited/.test(await remote('--info')),
    () => distribution.seeder
  )
  await well(all.hash('a.tar.torrent'))
})

if (isLong) t.test('transmission serves a node again that it has served', servesAgain)

t.test('a watch directory', async t => {
  const all = await cluster(t)
  const watch = join(all.root, 'watch')
  const server = await transmission(t, {
    'download-dir': all.files,
    'watch-dir': watch,
    'watch-dir-enabled': true
  })
  const settings = { seeder: 'transmission', seeder_watch: watch } as const
  const { distribution, well, says } = distribute(t, all, settings)
  distribution.wanted(['a.tar.torrent'])
  await says('seeder', /^a\.tar\.torrent: \[torrent\] seeder_watch: ENOENT|^\[torrent\] seeder_watch: ENOENT/)
  await mkdir(watch)
  await writeFile(join(watch, 'theirs.torrent'), 'theirs')
  await says('seeder', /a\.tar\.torrent: the tracker knows no seeder of it/)
  t.ok((await readdir(watch)).includes('a.tar.torrent'))
  await server.start()
  await well(all.hash('a.tar.torrent'))
  distribution.wanted([])
  await until(
    async () => (await readdir(watch)).every(name => !name.startsWith('a.tar')),
    () => distribution.seeder
  )
  t.match(await readdir(watch), [/^theirs\.torrent/], "the admin's stays")
})

t.test('the tracker over udp', async t => {
  const { tracker, infoHashes } = await cluster(t)
  const hashes = [...infoHashes.values()]
  const announce = `udp://127.0.0.1:${tracker.port}`
  t.strictSame(
    [...(await scrape(announce, hashes, signal)).entries()],
    hashes.map(hash => [hash, 0])
  )
  const many = Array.from({ length: 120 }, (_, i) => i.toString(16).padStart(40, 'a'))
  t.equal((await scrape(announce, many, signal)).size, 120)
  t.equal((await scrape(`http://127.0.0.1:${tracker.port}/announce`, many, signal)).size, 120)
  await t.rejects(scrape(`udp://127.0.0.1:${await freePort()}`, [], signal))
})

t.test('a whitelist that cannot be kept, a reload that fails', async t => {
  const all = await cluster(t)
  const failing = distribute(t, all, { tracker_reload: ['false'] })
  failing.distribution.wanted(['a.tar.torrent'])
  await failing.says('tracker', /^\[torrent\] tracker_reload: false failed with status 1/)
  t.strictSame(await whitelisted(all.tracker), [all.hash('a.tar.torrent')])
  const missing = distribute(t, all, { tracker_reload: ['no-such-program'] })
  missing.distribution.wanted(['a.tar.torrent'])
  await missing.says('tracker', /^\[torrent\] tracker_reload: no-such-program is not installed/)
  const fresh = join(all.root, 'tracker', 'whitelist')
  const made = distribute(t, all, { whitelist: fresh, tracker_reload: [] })
  made.distribution.wanted(['a.tar.torrent'])
  await until(
    () => made.distribution.tracker.ok,
    () => made.distribution.tracker
  )
  t.equal((await stat(join(all.root, 'tracker'))).mode & 0o777, 0o755, 'the tracker may look in')
  t.equal((await stat(fresh)).mode & 0o777, 0o644)
  await rm(all.tracker.whitelist)
  await mkdir(all.tracker.whitelist)
  await failing.says('tracker', /^\[torrent\] whitelist: EISDIR/)
})

t.test('a tracker that is none, and none at all', async t => {
  const all = await cluster(t)
  const { server } = await backends.aria2(t)
  await server.start()
  const wrong = distribute(t, all, { tracker: server.url.replace('jsonrpc', 'announce') })
  wrong.distribution.wanted([])
  await wrong.says('tracker', /it answers a scrape with status 404/)
  const nowhere = distribute(t, all, { tracker: 'http://127.0.0.1:1/x' })
  nowhere.distribution.wanted([])
  await nowhere.says('tracker', /does not end in \/announce/)
  const off = distribute(t, all, { tracker: '' })
  off.distribution.wanted(['a.tar.torrent'])
  for (const part of [off.distribution.tracker, off.distribution.seeder])
    t.strictSame(part, { ok: false, reason: 'torrent is off: [torrent] tracker is empty' })
  await off.distribution.close()
})

t.test('without a seeder of ours somebody else has to seed', async t => {
  const all = await cluster(t)
  const { distribution, says, well } = distribute(t, all, {})
  distribution.wanted(['a.tar.torrent'])
  await says('seeder', /a\.tar\.torrent: the tracker knows no seeder of it/)
  const { server, add } = await backends.aria2(t)
  await server.start()
  await add(join(all.files, 'a.tar.torrent'), all.files)
  await well(all.hash('a.tar.torrent'))
})
