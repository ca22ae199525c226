import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { utimesSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer as createRelay, type Socket } from 'node:net'
import type { Test } from 'tap'
import { checkParam } from '../../../lib/api/params.js'
import type { Caller } from '../../../lib/auth/access.js'
import { HttpServer } from '../../../lib/http/server.js'
import { Checksums } from '../../../lib/image/copies/checksums.js'
import { Copies, type CopiesOptions } from '../../../lib/image/copies/copies.js'
import type { Pace, Source } from '../../../lib/image/copies/download.js'
import { Manifest } from '../../../lib/image/manifest.js'
import { PackReconciler } from '../../../lib/image/pack-reconciler.js'
import type { Tx } from '../../../lib/model/stored.js'
import { ControllerAuth } from '../../../lib/peers/proofs.js'
import { copyRoutes } from '../../../lib/peers/routes.js'
import { Bench } from '../bench.js'

const KEY = Buffer.alloc(32, 7)

/** Bytes that do not compress, and are others at each place. */
export function content(bytes: number, seed = 1): Buffer {
  const words = new Uint32Array(Math.ceil(bytes / 4))
  let x = seed
  for (let at = 0; at < words.length; at++) {
    x = (Math.imul(x, 1_664_525) + 1_013_904_223) >>> 0
    words[at] = x
  }
  return Buffer.from(words.buffer, 0, bytes)
}

/** An image with a kernel of an admin's, and a pack with its record. */
export function imageOf(pack: Buffer, name = 'compute') {
  const sha256 = createHash('sha256').update(pack).digest('hex')
  const imagefile = `${name}-${sha256.slice(0, 12)}.tar.zst`
  const objects = (tx: Tx) => {
    tx.put('osimage', name, { name, imagefile, kernelfile: `${name}-kernel`, initrdfile: `${name}-initrd` })
    tx.put('pack', imagefile, {
      ...{ name: imagefile, osimage: name, sha256, bytes: pack.length, time: 1, packer: 'system' }
    })
  }
  return { imagefile, sha256, objects, kernelfile: `${name}-kernel`, initrdfile: `${name}-initrd` }
}

/** Puts a file there that nobody has written for a while. */
export function putFile(bench: Bench, name: string, bytes: Buffer): void {
  writeFileSync(bench.path('files', name), bytes)
  utimesSync(bench.path('files', name), 1_000_000, 1_000_000)
}

/** A controller that gives what lies in its files directory: the routes of svcd on a server of svcd's. */
export async function controllerWith(t: Test, objects: (tx: Tx) => void, key: Uint8Array = KEY) {
  const bench = await Bench.open(t)
  await bench.put(objects)
  const checksums = new Checksums(Date.now)
  const { model, config, log } = bench.context
  const proofs = new ControllerAuth(key, Date.now)
  const server = new HttpServer<Caller>({
    routes: copyRoutes({ model, config: config as never }, proofs, checksums),
    authorize: () => ({ kind: 'anonymous' }),
    param: checkParam,
    maxBody: 1024,
    trustedProxies: [],
    log
  })
  const { port } = await server.listen('127.0.0.1', 0)
  t.teardown(async () => {
    checksums.close()
    await server.close(0)
  })
  return { bench, proofs, source: { name: 'one', url: `http://127.0.0.1:${port}` } }
}

/** A way to a controller that counts what it sends, and breaks after so many bytes. */
export class Line {
  /** Bytes that came from the controller. */
  sent = 0
  /** Where each connection is broken. */
  most = Number.POSITIVE_INFINITY
  bytesPerSecond = Number.POSITIVE_INFINITY
  source!: Source

  static async to(t: Test, { name, url }: Source): Promise<Line> {
    const line = new Line()
    const sockets = new Set<Socket>()
    const relay = createRelay(near => {
      const far = connect(Number(new URL(url).port), '127.0.0.1')
      let passed = 0
      near.pipe(far)
      far.on('data', (bytes: Buffer) => {
        passed += bytes.length
        line.sent += bytes.length
        if (!near.write(bytes)) far.pause()
        else if (line.bytesPerSecond < Number.POSITIVE_INFINITY) {
          far.pause()
          setTimeout(() => far.resume(), (bytes.length / line.bytesPerSecond) * 1000)
        }
        if (passed < line.most) return
        far.destroy()
        near.destroySoon()
      })
      near.on('drain', () => far.resume())
      for (const [one, other] of [
        [near, far],
        [far, near]
      ] as const) {
        sockets.add(one)
        one.on('error', () => other.destroy())
        one.on('end', () => other.end())
        one.on('close', () => sockets.delete(one))
      }
    })
    relay.listen(0, '127.0.0.1')
    await once(relay, 'listening')
    t.teardown(() => {
      for (const socket of sockets) socket.destroy()
      relay.close()
    })
    line.source = { name, url: `http://127.0.0.1:${(relay.address() as AddressInfo).port}` }
    return line
  }
}

/** A controller that lacks the files of these objects, and the controllers that it asks. */
export async function lacking(
  t: Test,
  objects: (tx: Tx) => void,
  sources: readonly Source[],
  options: {
    readonly overrides?: readonly string[]
    readonly pace?: Pace
    readonly files?: CopiesOptions['files']
  } = {}
) {
  const bench = await Bench.open(t, ...(options.overrides ?? []))
  await bench.put(objects)
  const arrived = { times: 0 }
  const proofs = new ControllerAuth(KEY, Date.now)
  const open = async () => {
    const { config, log, ticks } = bench.context
    const { files = bench.context.files } = options
    const [file, directory] = [bench.path('state', 'copies.json'), bench.path('files')]
    const damaged = (message: string) => log.warn(message)
    const manifest = await Manifest.open({ file, directory, ticks, damaged })
    const noTorrents = { ...config, torrent: { ...config.torrent, tracker: '' } }
    const packs = new PackReconciler(
      { ...bench.context, config: noTorrents, ownsObjects: () => false, files, manifest },
      { installing: { packs: () => new Set() }, torrents: () => {} }
    )
    const copies = new (class extends Copies {
      /** Also removes what no object names. */
      override async run() {
        await packs.run()
        await super.run()
      }
    })({
      ...bench.context,
      ...{ config: config as never, files, manifest },
      sources: () => [...sources],
      asking: {
        trust: { rejectUnauthorized: true },
        proofs,
        ...(options.pace ? { pace: options.pace } : {})
      },
      arrived: () => {
        arrived.times++
      }
    })
    t.teardown(async () => {
      await packs.close()
      await copies.close()
    })
    return copies
  }
  return { bench, open, copies: await open(), arrived }
}
