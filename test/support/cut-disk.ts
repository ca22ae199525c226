import { closeSync, openSync, readSync, writeSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'

/** Takes so many bytes of what the client sends. */
type Take = (bytes: number) => Promise<Buffer>

const SECTOR = 4096
const OPTION_MAGIC = Buffer.from('IHAVEOPT')
const REPLY_MAGIC = 0x67446698
const HAS_FLAGS = 1
const SEND_FLUSH = 4
const SEND_FUA = 8
const FUA = 1
const command = { read: 0, write: 1, disconnect: 2, flush: 3 } as const
const GO = 7
/** A flush takes as long as on a hard disk: the power has time to go before it. */
const FLUSH_MS = 15
const answer = { ack: 1, info: 3, unsupported: 0x80000001 } as const

/**
 * A disk with a write-back cache, for qemu over NBD on a unix socket: what was written is in the cache until
 * the machine asks for a flush. `cut` is the end of the power: of the cache some sectors reach the medium, in
 * no order, and the rest is lost.
 */
export class CutDisk {
  readonly #file: number
  readonly #size: number
  /** By sector: what the medium does not have yet. */
  readonly #cache = new Map<number, Buffer>()
  readonly #sockets = new Set<Socket>()
  readonly #server: Server
  flushes = 0
  /** Bytes that the machine has written. */
  written = 0

  private constructor(file: string, size: number) {
    this.#file = openSync(file, 'r+')
    this.#size = size
    this.#server = createServer(socket => void this.#serve(socket))
  }

  /** Serves the file of `size` bytes, the medium, at the socket `path`. */
  static async serve(file: string, size: number, path: string): Promise<CutDisk> {
    const disk = new CutDisk(file, size)
    await new Promise<void>(resolve => disk.#server.listen(path, resolve))
    return disk
  }

  /**
   * Power off: each sector of the cache is on the medium or lost. Returns how many were in it, and how many
   * were lost.
   */
  cut(random: () => number): { cached: number; lost: number } {
    for (const socket of this.#sockets) socket.destroy()
    const cached = this.#cache.size
    let lost = 0
    for (const [sector, bytes] of this.#cache)
      if (random() < 0.5) lost++
      else writeSync(this.#file, bytes, 0, SECTOR, sector * SECTOR)
    this.#cache.clear()
    return { cached, lost }
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise(resolve => this.#server.close(resolve))
    closeSync(this.#file)
  }

  async #serve(socket: Socket): Promise<void> {
    this.#sockets.add(socket)
    let come: Buffer = Buffer.alloc(0)
    let wake = () => {}
    socket
      .on('data', chunk => {
        come = Buffer.concat([come, chunk])
        wake()
      })
      .on('error', () => {})
      .on('close', () => {
        this.#sockets.delete(socket)
        wake()
      })
    const take = async (bytes: number): Promise<Buffer> => {
      while (come.length < bytes && !socket.destroyed)
        await new Promise<void>(resolve => {
          wake = resolve
        })
      if (come.length < bytes) throw new Error('the machine went off')
      const part = come.subarray(0, bytes)
      come = come.subarray(bytes)
      return part
    }
    try {
      await this.#choose(socket, take)
      while (await this.#obey(socket, take));
      socket.end()
    } catch (error) {
      if (!socket.destroyed) throw error
    }
  }

  /** Fixed newstyle negotiation, without the zeroes that old clients want; any name is this disk. */
  async #choose(socket: Socket, take: Take): Promise<void> {
    socket.write(Buffer.concat([Buffer.from('NBDMAGIC'), OPTION_MAGIC, Buffer.from([0, 3])]))
    await take(4)
    for (;;) {
      const head = await take(16)
      const number = head.readUInt32BE(8)
      await take(head.readUInt32BE(12))
      const reply = (type: number, data = Buffer.alloc(0)) => {
        const bytes = Buffer.alloc(20)
        bytes.writeBigUInt64BE(0x3e889045565a9n)
        bytes.writeUInt32BE(number, 8)
        bytes.writeUInt32BE(type, 12)
        bytes.writeUInt32BE(data.length, 16)
        socket.write(Buffer.concat([bytes, data]))
      }
      if (number !== GO) {
        reply(answer.unsupported)
        continue
      }
      const info = Buffer.alloc(12)
      info.writeBigUInt64BE(BigInt(this.#size), 2)
      info.writeUInt16BE(HAS_FLAGS | SEND_FLUSH | SEND_FUA, 10)
      reply(answer.info, info)
      return reply(answer.ack)
    }
  }

  /** Carries out one request; false after the last. */
  async #obey(socket: Socket, take: Take): Promise<boolean> {
    const head = await take(28)
    const [flags, type] = [head.readUInt16BE(4), head.readUInt16BE(6)]
    const [offset, length] = [Number(head.readBigUInt64BE(16)), head.readUInt32BE(24)]
    let data: Buffer = Buffer.alloc(0)
    if (type === command.disconnect) return false
    if (type === command.read) data = this.#read(offset, length)
    else if (type === command.write) this.#write(offset, await take(length))
    if (type === command.flush || (type === command.write && flags & FUA)) {
      await delay(FLUSH_MS)
      if (socket.destroyed) return false
      this.#flush()
    }
    const reply = Buffer.alloc(16)
    reply.writeUInt32BE(REPLY_MAGIC)
    head.copy(reply, 8, 8, 16)
    return socket.write(Buffer.concat([reply, data])) || !socket.destroyed
  }

  #sector(sector: number): Buffer {
    const cached = this.#cache.get(sector)
    if (cached) return cached
    const bytes = Buffer.alloc(SECTOR)
    readSync(this.#file, bytes, 0, SECTOR, sector * SECTOR)
    return bytes
  }

  #read(offset: number, length: number): Buffer {
    const first = Math.floor(offset / SECTOR)
    const count = Math.ceil((offset + length) / SECTOR) - first
    const sectors = Array.from({ length: count }, (_, i) => this.#sector(first + i))
    return Buffer.concat(sectors).subarray(offset - first * SECTOR, offset - first * SECTOR + length)
  }

  #write(offset: number, data: Buffer): void {
    this.written += data.length
    for (let done = 0; done < data.length; ) {
      const sector = Math.floor((offset + done) / SECTOR)
      const at = offset + done - sector * SECTOR
      const bytes = Buffer.from(this.#sector(sector))
      done += data.copy(bytes, at, done, done + SECTOR - at)
      this.#cache.set(sector, bytes)
    }
  }

  #flush(): void {
    this.flushes++
    for (const [sector, bytes] of this.#cache) writeSync(this.#file, bytes, 0, SECTOR, sector * SECTOR)
    this.#cache.clear()
  }
}
