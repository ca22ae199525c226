// node bench/swarm-model.mjs [--image 1000] [--boot 50] [--controller 10] [--node 1] [--rack 40] [--uplink
// 10] [--cpu 4.63] [--goal 15] [--json] How long an image takes to all nodes, by http and by torrent: image
// and boot files in MB, links in Gbit/s, racks of so many nodes with a link of `uplink` each, `cpu` ms of the
// controller for the requests of a machine (bench/storm.mjs), and how many controllers it takes to be ready
// in `goal` minutes. It is fitted to figures of test/image/swarm.test.ts; that the others follow is a test
// (test/image/swarm-model.test.ts).
import { parseArgs } from 'node:util'
import { columns } from './table.mjs'

/**
 * Measured with 8 nodes and links of 0.2 Gbit/s for all: MB, seconds, and images that left the controller.
 */
export const MEASURED = [
  { mb: 25, torrent: 8.2, images: 2.27, http: 9.65 },
  { mb: 210, torrent: 22.3, images: 1.28, http: 71.9 },
  { mb: 1049, torrent: 93.2, images: 1.19 }
]
const NODES = 8
const LINK = 0.2
/** The share of a link that carries the file: 1,448 of the 1,514 bytes of a frame. */
const PAYLOAD = 1448 / 1514
/** From the start of the script to the first byte, and from the last to the end, in seconds. */
const HTTP_START = 1.3
/** So many parts the simulation takes a file for, and so many peers the tracker names to each node. */
const PARTS = 64
const PEERS = 50
const SIZES = [8, 100, 1000, 10_000, 60_000, 158_976]
/** MB/s of a link in Gbit/s. */
const megabytes = gbit => gbit * 125

/** Seconds by http: all nodes load at once and share the controller's link. */
export const http = (nodes, mb, controller) => HTTP_START + (nodes * mb) / (PAYLOAD * megabytes(controller))

/** A generator of numbers in [0, 1), always the same ones. */
function random(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

/**
 * A swarm in steps: in each one every node can send one part and take one part, and the controller sends
 * `seeds`. Everyone offers to peers of its own in turn, and sends a part by chance of those that the other
 * lacks. Gives how many times as long it takes as one node alone from its own link, and how many images the
 * controller has sent.
 */
export function swarm(nodes, seeds = 1) {
  const next = random(nodes)
  const below = n => Math.floor(next() * n)
  const words = PARTS / 32
  const have = new Uint32Array((nodes + 1) * words)
  have.fill(0xffffffff, nodes * words)
  const count = new Uint16Array(nodes)
  const taken = new Int32Array(nodes).fill(-1)
  const peers = Math.min(PEERS, nodes)
  const peersOf = Int32Array.from({ length: nodes * peers }, () => below(nodes))
  const order = Int32Array.from({ length: nodes }, (_, i) => i)
  let left = nodes
  let sent = 0
  let step = 0

  /** One part from `from` to one of some peers that lacks what it has. */
  const send = (from, pick, tries) => {
    for (let t = 0; t < tries; t++) {
      const to = pick()
      if (to === from || taken[to] === step || count[to] === PARTS) continue
      const first = below(words)
      for (let w = 0; w < words; w++) {
        const word = (first + w) % words
        let useful = have[from * words + word] & ~have[to * words + word]
        if (useful === 0) continue
        for (let skip = below(32); skip > 0 && (useful & (useful - 1)) !== 0; skip--) useful &= useful - 1
        have[to * words + word] |= useful & -useful
        taken[to] = step
        if (++count[to] === PARTS) left--
        return true
      }
    }
    return false
  }

  for (; left > 0; step++) {
    for (let i = 0; i < seeds; i++) if (send(nodes, () => below(nodes), 4 * peers)) sent++
    // Another order in each step: nobody is always first.
    for (let i = order.length - 1; i > 0; i--) {
      const j = below(i + 1)
      ;[order[i], order[j]] = [order[j], order[i]]
    }
    for (const from of order)
      if (count[from] > 0) send(from, () => peersOf[from * peers + below(peers)], peers)
  }
  return { times: step / PARTS, images: sent / PARTS }
}

/** The two that a torrent is fitted by: seconds before it is under way, and what of a link it uses. */
export function fit() {
  const { times } = swarm(NODES)
  const [small, , large] = MEASURED
  const perMb = (large.torrent - small.torrent) / (large.mb - small.mb)
  return { start: small.torrent - small.mb * perMb, share: times / (megabytes(LINK) * perMb) }
}

/** Seconds by torrent: each node takes from the others what its link, or its part of the rack's, carries. */
export function torrent(nodes, mb, { controller, node, rack = 1, uplink = Number.POSITIVE_INFINITY }) {
  const { start, share } = fit()
  const link = Math.min(node, uplink / Math.min(rack, nodes))
  const found = swarm(nodes, Math.max(1, Math.floor(controller / link)))
  return { seconds: start + (found.times * mb) / (share * megabytes(link)), images: found.images }
}

function main() {
  const { values: flags } = parseArgs({
    options: {
      image: { type: 'string', default: '1000' },
      boot: { type: 'string', default: '50' },
      controller: { type: 'string', default: '10' },
      node: { type: 'string', default: '1' },
      rack: { type: 'string', default: '40' },
      uplink: { type: 'string', default: '10' },
      cpu: { type: 'string', default: '4.63' },
      goal: { type: 'string', default: '15' },
      json: { type: 'boolean', default: false }
    }
  })
  const keys = ['image', 'boot', 'controller', 'node', 'rack', 'uplink', 'cpu', 'goal']
  const [image, boot, controller, node, rack, uplink, cpuMs, goal] = keys.map(key => Number(flags[key]))
  if (keys.some(key => !(Number(flags[key]) > 0))) {
    console.error('each of these is a number above 0')
    process.exit(2)
  }
  const { start, share } = fit()
  const checked = MEASURED.map(({ mb, torrent: seconds, images, http: byHttp }) => ({
    mb,
    torrent: { measured: seconds, model: start + (swarm(NODES).times * mb) / (share * megabytes(LINK)) },
    ...(byHttp && { http: { measured: byHttp, model: http(NODES, mb, LINK) } }),
    images: { measured: images, model: swarm(NODES).images }
  }))
  if (flags.json) {
    console.log(JSON.stringify({ start, share, checked }))
    return
  }
  const minutes = seconds =>
    seconds / 60 < 10 ? (seconds / 60).toFixed(1) : Math.round(seconds / 60).toLocaleString('en')
  console.log(
    `Fitted to 8 nodes at 0.2 Gbit/s: a torrent is under way after ${start.toFixed(1)} s and uses ${(share * 100).toFixed(0)} % of a link.\n`
  )
  const rows = SIZES.map(nodes => {
    const racks = Math.ceil(nodes / rack)
    /** The rack's caches load while they serve: the slower of the two. */
    const cached = mb => Math.max(http(racks, mb, controller), http(Math.min(rack, nodes), mb, uplink))
    const requests = (nodes * cpuMs) / 1000
    const files = http(nodes, boot, controller)
    const byHttp = http(nodes, image, controller)
    const { seconds, images } = torrent(nodes, image, { controller, node, rack, uplink })
    const first = Math.max(files, requests)
    const firstCached = Math.max(cached(boot), requests)
    /** More controllers share what the nodes ask them for; a swarm is no quicker for it. */
    const controllers = (shared, fixed) =>
      goal * 60 > fixed ? String(Math.max(1, Math.ceil(shared / (goal * 60 - fixed)))) : 'none'
    return [
      nodes.toLocaleString('en'),
      ...[requests, files, byHttp, seconds].map(minutes),
      images.toFixed(1),
      ...[
        first + byHttp,
        first + seconds,
        Math.max(cached(image + boot), requests),
        firstCached + seconds
      ].map(minutes),
      controllers(first + byHttp, 0),
      controllers(first, seconds),
      controllers(firstCached, seconds)
    ]
  })
  console.log(
    `Image ${image} MB, boot files ${boot} MB. Links in Gbit/s: controller ${controller}, node ${node}, ` +
      `rack of ${rack} nodes ${uplink}.\nMinutes; then how many controllers are ready in ${goal}.\n`
  )
  const parts = ['requests', 'boot files', 'by http', 'by torrent', 'images sent']
  const all = ['all: http', 'torrent', 'caches', 'torrent+caches']
  console.log(
    columns([['nodes', ...parts, ...all, 'controllers: http', 'torrent', 'torrent+caches'], ...rows])
  )
}

if (import.meta.filename === process.argv[1]) main()
