import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'

/** Something that answers http in the place of a controller. */
export async function impostor(
  t: Test,
  answer: RequestListener,
  name = 'odd'
): Promise<{ readonly name: string; readonly url: string }> {
  const server = createServer(answer)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { name, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}
