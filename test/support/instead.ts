import { createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

/**
 * The port of something in the place of a controller, in raw sockets; it is told of the first bytes of each.
 */
export async function instead(t: Test, asked: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => undefined).once('data', () => asked(socket))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return (server.address() as { port: number }).port
}
