import { createHash } from 'node:crypto'
import { createReadStream, existsSync, mkdirSync, renameSync, statSync } from 'node:fs'
import { open, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { type Child, startChild } from './child.js'
import { checkout } from './programs.js'

const forwarder = `
const net = require('node:net')
const [socket, address, port] = process.argv.slice(1)
net.createServer(client => {
  const up = net.connect(socket)
  for (const [one, other] of [[client, up], [up, client]]) {
    one.on('error', () => other.destroy())
    one.pipe(other)
  }
}).listen(Number(port), address, () => console.log('listening'))
`

/**
 * An http proxy for the machines of a network without a way out: it fetches what apt's mirrors have, and
 * keeps the packages below .cache/proxy. It listens at `address:port` of the namespace that `enter` leads
 * into.
 */
export async function startDebianProxy(options: {
  readonly enter: readonly string[]
  readonly directory: string
  readonly address: string
  readonly port: number
}): Promise<{ readonly asked: readonly string[]; stop(): Promise<void> }> {
  const { enter, directory, address, port } = options
  const kept = join(checkout, '.cache/proxy')
  // Files that a mirror lacks, by their paths below the host.
  const instead = process.env.SVCD_MIRROR_FILES ?? join(kept, 'instead')
  mkdirSync(kept, { recursive: true })
  const socket = join(directory, 'proxy.sock')
  const asked: string[] = []
  const server = createServer(async (request, response) => {
    const { url = '' } = request
    asked.push(url)
    try {
      if (!/^http:\/\/(?:deb|security)\.debian\.org\//.test(url)) throw new Error('no mirror')
      const own = join(instead, new URL(url).pathname)
      const file =
        existsSync(own) && statSync(own).isFile()
          ? own
          : join(kept, createHash('sha256').update(url).digest('hex'))
      const isPackage = file === own || /\.u?deb$|\/by-hash\//.test(url)
      if (!isPackage || !existsSync(file)) {
        const answer = await fetch(url)
        const body = Buffer.from(await answer.arrayBuffer())
        if (!isPackage || !answer.ok) {
          const type = answer.headers.get('content-type') ?? 'application/octet-stream'
          response.writeHead(answer.status, { 'Content-Type': type, 'Content-Length': body.length })
          response.end(request.method === 'HEAD' ? undefined : body)
          return
        }
        await writeFile(`${file}.${process.pid}`, body)
        renameSync(`${file}.${process.pid}`, file)
      }
      const opened = await open(file)
      const { size } = await opened.stat()
      await opened.close()
      response.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': size })
      if (request.method === 'HEAD') response.end()
      else createReadStream(file).pipe(response)
    } catch (error) {
      response.writeHead(502, { 'Content-Type': 'text/plain' })
      response.end(`${error}\n`)
    }
  })
  await new Promise<void>(resolve => server.listen(socket, resolve))
  const command = [...enter, process.execPath, '-e', forwarder, socket, address, String(port)]
  const child: Child = await startChild(command, log => log.includes('listening'))
  return {
    asked,
    stop: async () => {
      await child.stop()
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    }
  }
}
