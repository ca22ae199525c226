import { readdirSync, readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { Daemon } from '../support/daemon.js'
import { proof } from '../support/proof.js'
import { bodyOf, pathOf, table } from '../support/routes.js'
import { scratch } from '../support/scratch.js'
import { mutated } from './mutate.js'
import { fuzzSeed, Random } from './random.js'

// Raw bytes on the http port of a daemon that is a process of its own: no crash, no 500, no hang, no memory
// kept.

const long = process.env.SVCD_LONG !== undefined
const requests = Number(process.env.FUZZ_REQUESTS ?? (long ? 1_000_000 : 1200))
/** Requests on one connection; the last one is mutated as it stands on the wire, so nothing can follow it. */
const perConnection = 4
const parallel = 128
/** So long an answer may take before the connection is ended. */
const idleMs = 100
const random = new Random(fuzzSeed())
const again = `again with FUZZ_SEED=${random.seed}`

const directory = scratch(t)
const daemon = await Daemon.start({ directory })
t.teardown(() => daemon.stop())
const client = daemon.client()
const { hostname, port } = new URL(`http://${client.address}:${client.port}`)

const made: [string, object][] = [
  ['/config/network/cluster', { network: '127.141.0.0/16', dhcp: true, ...range() }],
  [
    '/config/osimage/compute',
    { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'compute.tar.gz' }
  ],
  [
    '/config/group/compute',
    { osimage: 'compute', interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] }
  ],
  ['/config/node/n1', { group: 'compute', macaddr: '52:54:00:00:00:01' }],
  ['/config/bmcsetup/boards', { username: 'root', password: 'calvin' }],
  ['/config/switch/sw1', { read: 'community' }],
  ['/config/otherdev/pdu', {}],
  ['/config/secrets/group/compute', [{ name: 'key', path: '/etc/key', content: 'aGVsbG8=' }]]
]
for (const [path, body] of made) {
  const { status, text } = await client.post(path, body)
  if (status !== 201) throw new Error(`POST ${path}: ${status} ${text}`)
}

function range() {
  return { dhcp_range_begin: '127.141.9.1', dhcp_range_end: '127.141.9.99' }
}

/** A good request for each route, with a token and without. What would start programs is left out. */
const seeds = table
  .filter(({ path }) => !/_os(grab|push)$|_pack$|\/kernel$/.test(path))
  .flatMap(route => {
    const head = `${route.method} ${pathOf(route)} HTTP/1.1\r\nHost: a\r\n`
    const json = JSON.stringify(bodyOf(route))
    const body = route.method === 'GET' ? '\r\n' : `Content-Length: ${json.length}\r\n\r\n${json}`
    return [head + body, `${head}x-access-tokens: ${client.token}\r\n${body}`]
  })

/** What once was found, or is known to have broken others. A file holds one connection's bytes. */
const corpus = readdirSync(join(import.meta.dirname, 'corpus/http')).map(name => ({
  name,
  bytes: readFileSync(join(import.meta.dirname, 'corpus/http', name), 'latin1')
}))

/** A request whose frame is whole, so that another one may follow it: only words in it are changed. */
function framed(): string {
  const seed = random.pick(seeds)
  const [, method = '', path = '', rest = ''] = /^(\w+) (\S+) (.*)$/s.exec(seed) ?? []
  // A removal would leave little to look at.
  if (/_delete|import/.test(path) && !random.is(0.1)) return framed()
  const end = rest.indexOf('\r\n\r\n')
  const body = rest.slice(end + 4)
  const words = [body, '{node}', '%', 'x'.repeat(70)]
  const changed = random.is(0.6) ? path : mutated(random, path, words).replace(/[\0-\x20\x7f-\xff]/g, '')
  const json = body === '' || random.is(0.2) ? body : mutated(random, body, seeds)
  const head = rest.slice(0, end).replace(/Content-Length: \d+/, `Content-Length: ${json.length}`)
  return `${method} /${changed.replace(/^\/+/, '')} ${head}\r\n\r\n${json}`
}

function connectionBytes(): string {
  const first = Array.from({ length: perConnection - 1 }, framed).join('')
  const seed = random.is(0.2) && corpus.length > 0 ? random.pick(corpus).bytes : random.pick(seeds)
  return first + mutated(random, seed, seeds)
}

let connections = 0

/** What a daemon answers to bytes, after which nothing comes: until it closes the connection. */
function exchange(bytes: string): Promise<string> {
  return new Promise(resolve => {
    let answer = ''
    // Connections come from many addresses, as they would from many machines.
    const localAddress = `127.0.${1 + (connections % 200)}.1`
    connections++
    const socket: Socket = connect({ host: hostname, port: Number(port), localAddress })
    socket.setEncoding('latin1')
    // Half a request is waited for by the daemon. Nothing more comes then, and it has to close.
    socket.setTimeout(idleMs, () => {
      if (socket.writableEnded) {
        answer += '\r\nHUNG'
        socket.destroy()
      }
      socket.setTimeout(60_000)
      socket.end()
    })
    socket.on('data', (text: string) => {
      answer += text
    })
    // A reset after a refusal is an end like another.
    socket.on('error', () => undefined)
    socket.on('close', () => resolve(answer))
    const data = Buffer.from(bytes, 'latin1')
    const cut = random.is(0.3) ? random.below(data.length) : data.length
    socket.write(data.subarray(0, cut))
    if (cut < data.length) setImmediate(() => socket.write(data.subarray(cut)))
  })
}

const memoryMb = () =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${daemon.child?.pid}/status`, 'utf8'))?.[1]) / 1024

const counts = new Map<string, number>()

/** Why an answer is a fault; undefined: it is none. */
function fault(answer: string): string | undefined {
  if (answer.endsWith('HUNG')) return 'the connection hung'
  if (answer !== '' && !answer.startsWith('HTTP/1.1 ')) return 'no http'
  const statuses = [...answer.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status = '']) => status)
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1)
  // 503 says what is not there: a DHCP server, say.
  const bad = statuses.find(status => status >= '500' && status !== '503')
  return bad && `status ${bad}`
}

const faults: string[] = []
async function probe(bytes: string): Promise<void> {
  const reason = fault(await exchange(bytes))
  if (reason) faults.push(`${reason}: ${JSON.stringify(bytes).slice(0, 4000)}`)
}

const isAlive = async () => (await daemon.request('GET', '/version')).status === 200

// rules 1.5, 2.11
t.test('what was once found', async t => {
  for (const { name, bytes } of corpus) {
    await probe(bytes)
    t.same(faults, [], name)
  }
  t.ok(await isAlive())
})

// rules 1.5, 2.11
t.test('bytes of any kind', async t => {
  let begun = 0
  let early: number | undefined
  const work = async () => {
    while (begun < requests && faults.length < 5) {
      begun += perConnection
      if (begun > requests / 10) early ??= memoryMb()
      await probe(connectionBytes())
    }
  }
  await Promise.all(Array.from({ length: parallel }, work))
  const alive = await isAlive().catch(() => false)
  const rise = memoryMb() - (early ?? 0)
  proof('raw requests', {
    tried: begun,
    crashes: alive ? 0 : 1,
    unmeant5xx: faults.length,
    memoryMb: rise,
    note: `seed ${random.seed}, answers ${[...counts]
      .sort()
      .map(([status, count]) => `${status}: ${count}`)
      .join(', ')}`
  })
  t.ok((counts.get('200') ?? 0) > begun / 20, 'many of them reach a handler')
  t.same(faults, [], again)
  t.ok(alive, `the daemon answers; ${again}; ${daemon.log().slice(-2000)}`)
  t.notMatch(daemon.log(), /^(\S+ error|<3>)/m, again)
  if (long) t.ok(rise < 100, `memory rose by ${rise.toFixed()} MB; ${again}`)
})
