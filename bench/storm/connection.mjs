// One machine's connection to the server: raw, kept as long as it is asked over, with the time limits of its
// program.
import { connect } from 'node:net'

/** All connections read into it: what came is looked at before the next read. */
const shared = Buffer.allocUnsafe(256 * 1024)

export class Connection {
  #socket
  #settle
  #timer
  #head = ''
  #awaited = 0
  #answer
  #body
  /** It can be asked over once more. */
  open = true
  /** An answer has come over it. */
  used = false

  constructor(port, localAddress) {
    const onread = { buffer: shared, callback: bytes => this.#read(bytes) }
    this.#socket = connect({ host: '127.0.0.1', port, localAddress, noDelay: true, onread })
    this.#socket.on('error', error => this.#end(error.code))
    this.#socket.on('close', () => this.#end('cut'))
  }

  /**
   * The answer to a whole request: `{ status, head, body }`, the body only if it is `wanted`. It rejects with
   * the reason when the connection ends before, and with 'late' after `limit` ms (0: never).
   */
  ask(request, limit, wanted) {
    return new Promise((resolve, reject) => {
      this.#settle = { resolve, reject }
      this.#body = wanted ? '' : undefined
      if (limit > 0) this.#timer = setTimeout(() => this.#end('late'), limit)
      this.#socket.write(request, 'latin1')
    })
  }

  close() {
    this.open = false
    this.#socket.destroy()
  }

  #end(reason) {
    this.close()
    clearTimeout(this.#timer)
    this.#settle?.reject(reason)
    this.#settle = undefined
  }

  #read(bytes) {
    let from = 0
    if (this.#awaited === 0) {
      const text = shared.latin1Slice(0, Math.min(bytes, 4096))
      this.#head += text
      const end = this.#head.indexOf('\r\n\r\n')
      if (end < 0) return true
      from = text.length - (this.#head.length - end - 4)
      const head = this.#head.slice(0, end + 2)
      this.#head = ''
      const status = Number(head.slice(9, 12))
      this.#answer = { status, head }
      this.#awaited = status === 204 ? 0 : Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)
    }
    if (this.#body !== undefined) this.#body += shared.latin1Slice(from, bytes)
    this.#awaited -= bytes - from
    if (this.#awaited <= 0) this.#done()
    return true
  }

  #done() {
    this.#awaited = 0
    this.used = true
    clearTimeout(this.#timer)
    const { resolve } = this.#settle ?? {}
    this.#settle = undefined
    if (/\r\nconnection: *close/i.test(this.#answer.head)) this.close()
    resolve?.({ ...this.#answer, body: this.#body })
  }
}
