import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import t, { type Test } from 'tap'
import { start, startChild } from '../support/child.js'
import { installData } from '../support/install-data.js'
import { installScript } from '../support/install-script.js'
import { compiled, node, requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { aria2, forSeeders, openTracker, type Place, transmission, until } from './servers.js'
import type { Order } from './swarm-controller.js'
import { type SwarmNetwork, swarmNetwork } from './swarm-network.js'

requireRoot()
requirePrograms('ip', 'tc', 'unshare', 'setpriv', 'opentracker', 'aria2c', 'transmission-cli', 'curl')

const isLong = process.env.SVCD_LONG === '1'
const NODES = isLong ? 8 : 6
const RATE = '200mbit'

interface Round {
  readonly seeder: 'aria2' | 'transmission'
  /**
   * Of the image; the smaller it is, the more the start of a swarm, when all ask the controller, rules the
   * figures.
   */
  readonly megabytes: number
  /** A second swarm whose tracker is killed. */
  readonly withKill: boolean
  readonly withHttp: boolean
}

const rounds: readonly Round[] = isLong
  ? [
      { seeder: 'aria2', megabytes: 200, withKill: true, withHttp: true },
      { seeder: 'transmission', megabytes: 200, withKill: false, withHttp: false },
      { seeder: 'aria2', megabytes: 1000, withKill: true, withHttp: false }
    ]
  : [{ seeder: 'aria2', megabytes: 24, withKill: true, withHttp: false }]
const image = 'image.tar'
const port = 7050

async function sha256(file: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(file), hash)
  return hash.digest('hex')
}

/** An image that cannot be compressed, with a tracker and a seeder that offers it. */
async function controller(t: Test, network: SwarmNetwork, round: Round) {
  const root = scratch(t)
  const files = join(root, 'files')
  await mkdir(files)
  execFileSync(
    'dd',
    ['if=/dev/urandom', `of=${join(root, 'payload')}`, 'bs=1M', `count=${round.megabytes}`],
    {
      stdio: 'ignore'
    }
  )
  execFileSync('tar', ['-C', root, '-cf', join(files, image), 'payload'])
  await forSeeders(files)
  const tracker = await openTracker(t, network.controller)
  await tracker.start()
  const seeder = await (round.seeder === 'aria2'
    ? aria2(t, network.controller)
    : transmission(t, {}, network.controller))
  await seeder.start()
  const { address } = network.controller
  const order: Order = {
    address,
    port,
    files,
    state: root,
    image,
    torrent: {
      tracker: `http://${address}:${tracker.port}/announce`,
      whitelist: tracker.whitelist,
      tracker_reload: tracker.reload,
      seeder: round.seeder,
      seeder_url: seeder.url,
      seeder_secret: round.seeder === 'aria2' ? 'swordfish' : '',
      seeder_watch: ''
    }
  }
  await writeFile(join(root, 'order.json'), JSON.stringify(order))
  const child = await startChild(
    [...network.controller.enter, 'setpriv', '--pdeathsig', 'KILL'].concat([
      ...node,
      join(compiled, 'test/image/swarm-controller.js'),
      join(root, 'order.json')
    ]),
    log => /^ready$/m.test(log)
  )
  t.teardown(() => child.stop())
  const file = join(files, image)
  return {
    tracker,
    log: child.output,
    payload: await sha256(join(root, 'payload')),
    bytes: (await stat(file)).size,
    imagesum: await sha256(file)
  }
}

type SwarmController = Awaited<ReturnType<typeof controller>>

interface Plan {
  readonly method: 'torrent' | 'http'
  readonly edit?: (script: string) => string
}

/** Begins to install the image on every node with the shipped script, as far as the unpacking. */
async function install(t: Test, network: SwarmNetwork, at: SwarmController, plan: Plan) {
  const { method, edit = script => script } = plan
  const { address } = network.controller
  const root = scratch(t)
  const one = async (place: Place, i: number) => {
    const own = join(root, `node${i}`)
    for (const name of ['sysroot', 'svctmp']) await mkdir(join(own, name), { recursive: true })
    const script = installScript(
      installData({
        node: `${method}${i}`,
        url: `http://${address}:${port}`,
        api_address: address,
        api_port: port,
        imagefile: image,
        imagesum: at.imagesum,
        torrent: `${image}.torrent`,
        provision_method: method,
        // So that nothing hides that the torrent failed.
        provision_fallback: 'none'
      })
    )
    const edited = script
      .replace(/^_SYSTEMROOT=.*$/m, `_SYSTEMROOT=${own}/sysroot`)
      .replace(/^_TMP=.*$/m, `_TMP=${own}/svctmp`)
      .replace(/^ {2}run_step network network$/m, `  sha256sum <${own}/sysroot/payload >${own}/sum; exit 0`)
    await writeFile(join(own, 'script'), edit(edited))
    const [program = '', ...enter] = [...place.enter, 'unshare', '--mount', '--propagation', 'private']
    // On the disk: many machines in one have not the memory of many.
    const inside =
      'for at in "$0/sysroot" "$0/svctmp"; do mount --bind "$at" "$at" || exit 1; done; exec sh "$0/script"'
    const child = start(program, [...enter, 'sh', '-c', inside, own], { input: '' })
    const { code } = await child.ended
    t.equal(code, 0, `node ${i} succeeds`, { log: JSON.stringify(child.output().slice(-2000)) })
    t.equal((await readFile(join(own, 'sum'), 'utf8')).slice(0, 64), at.payload, `node ${i} has the image`)
  }
  return { root, done: Promise.all(network.nodes.map(one)) }
}

/** How long an installation took, and how many images have left the controller meanwhile. */
async function measured(
  t: Test,
  what: string,
  network: SwarmNetwork,
  bytes: number,
  work: () => Promise<unknown>
) {
  const [sent, begun] = [await network.sent(), performance.now()]
  await work()
  const seconds = (performance.now() - begun) / 1000
  const images = ((await network.sent()) - sent) / bytes
  const size = (bytes / 1e6).toFixed(0)
  t.comment(
    `${what}: ${NODES} nodes, ${size} MB, ${RATE}: ${seconds.toFixed(1)} s, ${images.toFixed(2)} images sent`
  )
  return images
}

for (const round of rounds)
  t.test(`${NODES} nodes, ${round.megabytes} MB, seeder ${round.seeder}`, async t => {
    const network = await swarmNetwork(NODES, RATE)
    t.teardown(() => network.close())
    const at = await controller(t, network, round)

    const byTorrent = await measured(t, 'torrent', network, at.bytes, async () => {
      const { done } = await install(t, network, at, { method: 'torrent' })
      await done
    })
    t.ok(byTorrent <= 3, `${byTorrent.toFixed(2)} images left the controller`)

    if (round.withKill)
      await measured(t, 'torrent, tracker killed half-way', network, at.bytes, async () => {
        const { root, done } = await install(t, network, at, { method: 'torrent' })
        await Promise.all([killed(t, at, root), done])
      })

    if (!round.withHttp) return
    const byHttp = await measured(t, 'http', network, at.bytes, async () => {
      const { done } = await install(t, network, at, { method: 'http' })
      await done
    })
    t.ok(byHttp >= NODES, `${byHttp.toFixed(2)} images left the controller`)
  })

/** Kills the tracker as soon as the first node has half of the image. */
async function killed(t: Test, at: SwarmController, root: string): Promise<void> {
  let arrived = 0
  await until(
    async () => {
      const file = await stat(join(root, `node0/svctmp/torrent/${image}`)).catch(() => undefined)
      arrived = (file?.blocks ?? 0) * 512
      return arrived >= at.bytes / 2
    },
    () => arrived
  )
  t.ok(arrived < at.bytes, 'half-way')
  await at.tracker.stop()
}

const byTransmission = async (t: Test) => {
  const network = await swarmNetwork(1, RATE)
  t.teardown(() => network.close())
  const at = await controller(t, network, {
    seeder: 'aria2',
    megabytes: 32,
    withKill: false,
    withHttp: false
  })
  const { done } = await install(t, network, at, {
    method: 'torrent',
    edit: script => script.replace('in aria2c transmission-cli;', 'in transmission-cli;')
  })
  await done
}
if (isLong) t.test('a node with transmission-cli', byTransmission)
