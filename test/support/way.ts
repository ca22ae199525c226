import { connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'
import type { EtcdServer } from './etcd.js'

/** A way to etcd that can be cut, and made silent: then nothing passes, and nobody is told. */
export class Way {
  readonly #sockets = new Set<Socket>()
  #silent = new Set<Socket>()
  #isSilent = false
  url = ''

  static async to(t: Test, etcd: EtcdServer): Promise<Way> {
    const way = new Way()
    const port = Number(new URL(etcd.url).port)
    const server = createServer(near => {
      const far = connect(port, '127.0.0.1')
      way.#pass(near, far)
      way.#pass(far, near)
    })
    await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
    const address = server.address()
    if (address === null || typeof address === 'string') throw new Error('no port')
    way.url = `http://127.0.0.1:${address.port}`
    t.teardown(() => {
      way.cut()
      server.close()
    })
    return way
  }

  #pass(from: Socket, to: Socket): void {
    this.#sockets.add(from)
    if (this.#isSilent) this.#silent.add(from)
    from.on('data', bytes => this.#silent.has(from) || to.write(bytes))
    from.on('error', () => to.destroy())
    from.on('close', () => {
      this.#sockets.delete(from)
      to.destroy()
    })
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  /** The connections there are, and new ones until `release`, are silent for good. */
  silence(): void {
    this.#isSilent = true
    this.#silent = new Set(this.#sockets)
  }

  release(): void {
    this.#isSilent = false
  }
}
