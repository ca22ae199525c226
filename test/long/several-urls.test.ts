import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { runMachine, tail } from '../support/virtual-machine.js'

const mac = '52:54:00:00:00:01'
/** Longer than the 15 s for which iPXE waited once. */
const retryAfterS = 20

interface Site {
  readonly port: number
  readonly asked: string[]
  readonly server: Server
}

/** A controller as iPXE sees it. The kernel is a script, so that what comes after it is seen. */
async function site(
  t: Test,
  answer: (path: string, count: number) => string | number | undefined
): Promise<Site> {
  const asked: string[] = []
  const server = createServer(({ url = '', socket }, response) => {
    asked.push(url)
    const text = answer(url, asked.filter(path => path === url).length)
    if (text === undefined) socket.destroy()
    else if (typeof text === 'number') response.writeHead(text, { 'Retry-After': retryAfterS }).end()
    else response.end(text)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close().closeAllConnections())
  return { port: (server.address() as AddressInfo).port, asked, server }
}

const files: Readonly<Record<string, string>> = {
  '/boot/vmlinuz': '#!ipxe\necho all is there\nsleep 600\n',
  '/boot/initrd.img': 'initrd'
}

// rules 4.28: run with the iPXE of Debian.
t.test('iPXE waits for a full controller, and leaves one that is gone', { timeout: 600_000 }, async t => {
  let script = ''
  const first = await site(t, (path, count) =>
    path === '/boot' ? script : path === '/boot/initrd.img' ? undefined : count === 1 ? 503 : files[path]
  )
  const second = await site(t, path => files[path] ?? 404)
  const [a, b] = [first, second].map(({ port }) => `http://10.0.2.2:${port}`)
  const c = await Controller.start(t, `http.url=${a},${b}`)
  await c.cluster()
  await c.post('/config/node/node001', { group: 'compute', macaddr: mac })
  script = (await c.get('/config/node/node001/_render/boot')).text
  const run = await runMachine({
    ...{ name: 'several', mac, network: { bootfile: `${a}/boot` } },
    until: /all is there/
  })
  const console = { console: tail(run.console) }
  t.same(
    first.asked.slice(0, 3),
    ['/boot', '/boot/vmlinuz', '/boot/vmlinuz'],
    'its turn was waited for',
    console
  )
  t.same(
    second.asked,
    ['/boot/initrd.img'],
    'the other one was asked for what the first did not give',
    console
  )
  t.match(run.console.replaceAll('\n', ''), `svcd: ${a} does not answer, or refuses: trying ${b}`)
})
