import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer } from 'node:net'

// Below the range that the kernel takes the ports of outgoing connections from, and in a part of it that no
// other process of this run has: nobody takes the port between the look and the use.
let next = 10_000 + (process.pid % 1_000) * 20

/**
 * A port of 127.0.0.1 that nobody listens on, by TCP or UDP. No other test is given it as long as this one
 * runs.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = next++
    if ((await isFree(port, 'tcp')) && (await isFree(port, 'udp'))) return port
  }
}

async function isFree(port: number, protocol: 'tcp' | 'udp'): Promise<boolean> {
  const socket = protocol === 'tcp' ? createServer() : createSocket('udp4')
  try {
    if ('listen' in socket) socket.listen(port, '127.0.0.1')
    else socket.bind(port, '127.0.0.1')
    await once(socket, 'listening')
    await new Promise<void>(resolve => socket.close(() => resolve()))
    return true
  } catch {
    return false
  }
}
