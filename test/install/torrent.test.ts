import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import { Distribution } from '../../lib/image/torrent/distribution.js'
import { scrape } from '../../lib/image/torrent/scrape.js'
import { createTorrent } from '../../lib/image/torrent/torrent.js'
import { command } from '../../lib/services/control.js'
import { aria2, forSeeders, openTracker, until } from '../image/servers.js'
import { freePort } from '../support/free-port.js'
import type { Shell } from '../support/node-root.js'
import { requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { completed, image, install } from './install.js'
import { shells } from './installing-node.js'
import { sha256 } from './packed-image.js'

requireRoot()
requirePrograms('opentracker', 'aria2c', 'transmission-cli')

// They wait more than they work.
t.jobs = 4

const { signal } = new AbortController()
const file = 'rocky9.tar.gz'

/** The torrent of the image for that tracker, and the files directory it lies in. */
async function made(t: Test, announce: string) {
  const files = join(scratch(t), 'files')
  await mkdir(files)
  await writeFile(join(files, file), image)
  const output = join(files, `${file}.torrent`)
  const { infoHash } = await createTorrent({ file: join(files, file), name: file, announce, output, signal })
  await forSeeders(files)
  return { files, infoHash, torrent: output }
}

/** A node with the real program, which has nothing of the system but what lies in /usr. */
const plan = (shell: Shell, program: string, torrent: Buffer) => ({
  shell,
  data: { torrent: `${file}.torrent`, provision_method: 'torrent', imagesum: sha256(image) },
  programs: {
    [program]: `export HOME=/; echo "it may take $(ulimit -v) KiB" >&2; exec /usr/bin/${program} "$@"`
  },
  answers: { [`/files/${file}.torrent`]: torrent }
})

const impatient = (script: string) =>
  script
    .replace('"$torrent_idle" -ge "$_STALL"', '"$torrent_idle" -ge 3')
    .replace('\n_SPREAD=10\n', '\n_SPREAD=1\n')

// transmission-cli takes no peer on a loopback address: see the swarm in test/image/.
for (const protocol of ['http', 'udp'])
  t.test(`aria2c fetches the image from the seeder and leaves the tracker, ${protocol}`, async t => {
    const tracker = await openTracker(t)
    await tracker.start()
    const dht = [
      '--enable-dht=true',
      `--dht-file-path=${join(scratch(t), 'dht')}`,
      // Two sockets can have one udp port, and only the second then hears anything: not that of a node.
      `--dht-listen-port=${await freePort()}`
    ]
    const seeder = await aria2(t, undefined, protocol === 'udp' ? dht : [])
    await seeder.start()
    const announce = `${protocol}://127.0.0.1:${tracker.port}/announce`
    const { files, torrent, infoHash } = await made(t, announce)
    const distribution = new Distribution({
      torrent: {
        tracker: announce,
        whitelist: tracker.whitelist,
        tracker_reload: tracker.reload,
        seeder: 'aria2',
        seeder_url: seeder.url,
        seeder_secret: 'swordfish',
        seeder_watch: ''
      },
      files,
      state: seeder.directory,
      log: createLog('error'),
      run: command
    })
    t.teardown(() => distribution.close())
    distribution.wanted([`${file}.torrent`])
    const seeders = async () => (await scrape(announce, [infoHash], signal)).get(infoHash)
    await until(
      async () => (await seeders()) === 1,
      () => [distribution.seeder, distribution.tracker]
    )
    for (const shell of shells) {
      const done = await install(t, plan(shell, 'aria2c', await readFile(torrent)))
      completed(t, done)
      t.strictSame(done.controller.gets(), [`/files/${file}.torrent`], 'not by http')
      t.equal(await seeders(), 1, 'the tracker sends nobody to a node that is gone')
      t.match(done.run.output, 'it may take 524288 KiB', 'peers cannot make it take more')
    }
  })

for (const program of ['aria2c', 'transmission-cli']) {
  t.test(`${program}: http when the tracker is dead, or does not know the torrent`, async t => {
    const tracker = await openTracker(t)
    await tracker.start()
    for (const port of [await freePort(), tracker.port]) {
      const { torrent } = await made(t, `http://127.0.0.1:${port}/announce`)
      const done = await install(t, { ...plan('ash', program, await readFile(torrent)), edit: impatient })
      completed(t, done)
      t.match(done.run.output, /nothing came by torrent for 60 s/)
      t.strictSame(done.controller.gets(), [`/files/${file}.torrent`, `/files/${file}`])
    }
  })
}
