import { connect, type Socket } from 'node:net'
import { StringDecoder } from 'node:string_decoder'
import { unavailable } from '../base/errors.js'
import { cleanLine } from '../control/bmc.js'
import type { Feed } from '../http/route.js'

/** Characters of a console that wait for its reader; conmand drops what a slow reader does not take. */
const MOST_WAITING = 64 * 1024
const MOST_PIECE = 16 * 1024
/** Typed bytes that conmand has not taken. */
const MOST_TYPED = 64 * 1024
const ANSWER_MS = 10_000
const MOST_ANSWER = 4096

/** conmand's escape character, which is no byte of UTF-8, and its order for a serial break. */
const BREAK = Buffer.from([0xff, 'B'.charCodeAt(0)])

/** Quotes cannot be part of a word of conmand's protocol. */
const word = (text: string) => text.replace(/[^\w.@-]/g, '_')

/** One reader of a console, who may type too: a stream of server-sent events, each a text in JSON. */
export class Attachment implements Feed {
  readonly keepAlive = ':\n\n'
  readonly #decoder = new StringDecoder('utf8')
  readonly #socket: Socket
  #head: string
  #waiting = ''
  #ending: string | undefined
  #hasEnded = false
  #wake: (() => void) | undefined

  private constructor(socket: Socket, head: string, rest: Buffer) {
    this.#socket = socket
    this.#waiting = this.#decoder.write(rest)
    this.#head = head
    socket
      .on('data', (bytes: Buffer) => this.#take(bytes))
      .on('error', () => {})
      .once('close', () => this.end('conmand has ended the connection'))
  }

  /** Attaches to the console of a node. Throws 503 with the reason if conmand does not let it. */
  static async open(port: number, node: string, user: string, session: string): Promise<Attachment> {
    const socket = connect({ port, host: '127.0.0.1' })
    try {
      const rest = await greet(socket, [
        `HELLO USER='${word(user)}'\n`,
        `CONNECT OPTION=JOIN CONSOLE='${word(node)}'\n`
      ])
      return new Attachment(socket, `event: session\ndata: ${JSON.stringify(session)}\n\n`, rest)
    } catch (error) {
      socket.destroy()
      const { code, message } = error as NodeJS.ErrnoException
      const reason =
        code === 'ECONNREFUSED'
          ? `conmand does not run (port ${port}): type systemctl start svcd-consoles`
          : `conmand: ${cleanLine(message)}`
      throw unavailable(`console of node ${node}: ${reason}`)
    }
  }

  get ended(): boolean {
    return this.#hasEnded
  }

  next(): string {
    const head = this.#head
    this.#head = ''
    if (head !== '') return head
    const piece = this.#waiting.slice(0, MOST_PIECE)
    this.#waiting = this.#waiting.slice(MOST_PIECE)
    if (this.#waiting.length < MOST_WAITING / 2) this.#socket.resume()
    if (piece !== '') return `data: ${JSON.stringify(piece)}\n\n`
    if (this.#ending === undefined || this.#hasEnded) return ''
    this.#hasEnded = true
    return `event: end\ndata: ${JSON.stringify(this.#ending)}\n\n`
  }

  follow(wake: () => void): () => void {
    this.#wake = wake
    return () => this.#leave()
  }

  /** Detaches if its stream has not begun. */
  endUnfollowed(): void {
    if (!this.#wake) this.#leave()
  }

  #leave(): void {
    this.end('detached')
    this.onGone()
  }

  /** Called when its reader has left. */
  onGone = () => {}

  /** Sends typed text. Throws 503 if conmand does not take it. */
  type(text: string, isBreak: boolean): void {
    if (this.#socket.writableLength > MOST_TYPED)
      throw unavailable('conmand does not take what is typed: attach again')
    if (text !== '') this.#socket.write(text)
    if (isBreak) this.#socket.write(BREAK)
  }

  /** Detaches; the reader still gets what waits, and then the reason. */
  end(reason: string): void {
    if (this.#ending !== undefined) return
    this.#ending = reason
    this.#socket.destroy()
    this.#wake?.()
  }

  #take(bytes: Buffer): void {
    this.#waiting += this.#decoder.write(bytes)
    if (this.#waiting.length >= MOST_WAITING) this.#socket.pause()
    this.#wake?.()
  }
}

/** Sends each line after the answer to the one before; returns the bytes that follow the last answer. */
function greet(socket: Socket, lines: readonly string[]): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let received = Buffer.alloc(0)
    let asked = 0
    const settle = (done: () => void) => {
      socket.setTimeout(0)
      for (const event of ['timeout', 'connect', 'error', 'close', 'data']) socket.removeAllListeners(event)
      // Until its owner listens.
      socket.on('error', () => {})
      done()
    }
    const fail = (error: Error) => settle(() => reject(error))
    const ask = () => socket.write(lines[asked++] as string)
    socket
      .setTimeout(ANSWER_MS, () => fail(new Error(`no answer within ${ANSWER_MS / 1000} s`)))
      .once('connect', ask)
      .once('error', fail)
      .once('close', () => fail(new Error('it has ended the connection')))
      .on('data', (bytes: Buffer) => {
        received = Buffer.concat([received, bytes])
        const end = received.indexOf('\n')
        if (end < 0 && received.length <= MOST_ANSWER) return
        const answer = received.toString('latin1', 0, Math.max(0, end))
        received = received.subarray(end + 1)
        if (!answer.startsWith('OK')) fail(new Error(/MESSAGE='([^']*)'/.exec(answer)?.[1] ?? answer))
        else if (asked < lines.length) ask()
        else {
          socket.pause()
          settle(() => resolve(received))
        }
      })
  })
}
