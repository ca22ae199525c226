/**
 * The controller of the swarm test, in its network namespace: `/files/` over http, an ear for the nodes'
 * reports, and the real Distribution. Its argument is a file with an Order; says `ready` when the tracker
 * knows the seeder, and `<node> <state>` for each report.
 */
import { createReadStream, readFileSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { createLog } from '../../lib/base/log.js'
import { Distribution, type DistributionOptions } from '../../lib/image/torrent/distribution.js'
import { scrape } from '../../lib/image/torrent/scrape.js'
import { createTorrent } from '../../lib/image/torrent/torrent.js'
import { command } from '../../lib/services/control.js'

export interface Order {
  readonly address: string
  readonly port: number
  readonly files: string
  readonly state: string
  /** File in `files`, whose torrent is made and distributed. */
  readonly image: string
  readonly torrent: DistributionOptions['torrent']
}

const order: Order = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8'))
const { address, port, files, state, image, torrent } = order
const { signal } = new AbortController()
const say = (line: string) => process.stdout.write(`${line}\n`)

createServer(async (request, response) => {
  if (request.method === 'POST') {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part as Buffer)
    const { monitor } = JSON.parse(Buffer.concat(parts).toString())
    for (const [node, { state }] of Object.entries<{ state: string }>(monitor?.status ?? {}))
      say(`${node} ${state}`)
    response.writeHead(204).end()
    return
  }
  const file = join(files, basename(request.url ?? ''))
  response.writeHead(200, { 'content-length': statSync(file).size })
  createReadStream(file, { highWaterMark: 1 << 20 }).pipe(response)
}).listen(port, address)

const name = `${image}.torrent`
const file = join(files, image)
const { infoHash } = await createTorrent({
  file,
  name: image,
  announce: torrent.tracker,
  output: join(files, name),
  signal
})
const distribution = new Distribution({ torrent, files, state, log: createLog('info', say), run: command })
distribution.wanted([name])
while (!distribution.seeder.ok || !(await scrape(torrent.tracker, [infoHash], signal)).get(infoHash))
  await sleep(100)
say('ready')
