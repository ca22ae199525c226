import { connect, type Socket } from 'node:net'

// A process of strangers: node strangers.mjs '<options as JSON>'. They keep so many connections open, each
// misused in the same way; one that is closed is opened again a second later. Each second a line of JSON
// tells how many are open.

/** What strangers do with a connection. */
export type Misuse =
  /** Nothing. */
  | 'idle'
  /** Send a header and then a byte every two seconds. */
  | 'write slowly'
  /**
   * Send a header and then 168 bytes of the body in each second, which is a pace that a long body may have.
   */
  | 'send a body slowly'
  /** The same with a GET, which needs no body. */
  | 'send a body with a GET'
  /** The same behind requests that come whole. */
  | 'pipeline a body that does not end'
  /** Ask for an image and read nothing. */
  | 'read nothing'
  /** Send requests with 15 kB of headers one behind the other, and read no answer. */
  | 'pipeline'
  /** Send one request that is over a limit after the other: header, body, path, wrong password. */
  | 'exceed'

export interface Strangers {
  readonly host: string
  readonly port: number
  readonly misuse: Misuse
  readonly connections: number
  /** Addresses that they come from, 127.<subnet>.x.y, or those of `network`. */
  readonly addresses: number
  readonly subnet: number
  /** The first two numbers of their addresses: `10.9`. */
  readonly network?: string
  /** One that is cut comes again so much later; absent: a second. */
  readonly againMs?: number
}

const options: Strangers = JSON.parse(process.argv[2] ?? '{}')
const {
  host,
  port,
  misuse,
  connections,
  addresses,
  subnet,
  network = `127.${subnet}`,
  againMs = 1000
} = options

let open = 0
let opened = 0
let answers = 0

const head = (method: string, path: string, more = '') => `${method} ${path} HTTP/1.1\r\nHost: a\r\n${more}`
const login = (password: string) => {
  const body = JSON.stringify({ username: 'admin', password })
  return `${head('POST', '/token', `Content-Length: ${body.length}\r\n`)}\r\n${body}`
}
const stuffed = `${head('POST', '/token', `X: ${'x'.repeat(15_000)}\r\nContent-Length: 2\r\n`)}\r\n{}`
const excesses = [
  head('GET', '/boot', `X: ${'x'.repeat(20_000)}\r\n\r\n`),
  `${head('POST', '/token', 'Content-Length: 9000\r\n')}\r\n${'x'.repeat(9000)}`,
  `${head('POST', '/config/group/x', 'Content-Length: 99999999999\r\n')}\r\n`,
  head('GET', `/boot/search/${'x'.repeat(9000)}`, '\r\n'),
  head('GET', '/boot', `Range: bytes=${'0-0,'.repeat(2000)}0-0\r\n\r\n`),
  login('wrong'),
  login('x'.repeat(8000))
]

/** Ten seconds of the pace at once: there may be tens of thousands of them. */
function drip(socket: Socket, first: string): void {
  socket.write(first + 'x'.repeat(336))
  const timer = setInterval(() => socket.write('x'.repeat(1680)), 10_000)
  socket.on('close', () => clearInterval(timer))
}

const misuses: Readonly<Record<Misuse, (socket: Socket, n: number) => void>> = {
  idle: () => undefined,
  'write slowly': socket => {
    socket.write(head('POST', '/token', 'Content-Length: 8000\r\n\r\n'))
    const timer = setInterval(() => socket.write('x'), 2000)
    socket.on('close', () => clearInterval(timer))
  },
  'send a body slowly': socket => drip(socket, head('POST', '/token', 'Content-Length: 8000\r\n\r\n')),
  'send a body with a GET': socket =>
    drip(socket, head('GET', '/boot/none', 'Content-Length: 65000\r\n\r\n')),
  'pipeline a body that does not end': socket => {
    const whole = head('GET', '/boot', '\r\n').repeat(3)
    drip(socket, whole + head('POST', '/token', 'Content-Length: 8000\r\n\r\n'))
  },
  'read nothing': socket => {
    socket.pause()
    socket.write(head('GET', '/files/compute.tar.gz', '\r\n'))
  },
  pipeline: socket => {
    socket.pause()
    const more = () => {
      while (!socket.destroyed && socket.write(stuffed)) if (socket.writableLength > 100_000) break
    }
    socket.on('drain', more)
    more()
  },
  exceed: (socket, n) => {
    let at = n
    const more = () => socket.write(excesses[at++ % excesses.length] ?? '')
    socket.on('data', () => {
      answers++
      more()
    })
    more()
  }
}

function begin(n: number): void {
  const localAddress = `${network}.${1 + Math.floor((n % addresses) / 200)}.${1 + ((n % addresses) % 200)}`
  const socket = connect({ host, port, localAddress })
  socket.on('connect', () => {
    open++
    opened++
    socket.once('close', () => open--)
    misuses[misuse](socket, n)
  })
  if (!['read nothing', 'pipeline', 'exceed'].includes(misuse)) socket.resume()
  socket.on('error', () => undefined)
  socket.on('close', () => setTimeout(begin, againMs, n))
}

// A few at a time: this process has to live too.
let begun = 0
const timer = setInterval(() => {
  for (let i = 0; i < 50 && begun < connections; i++) begin(begun++)
  if (begun === connections) clearInterval(timer)
}, 20)
setInterval(() => console.log(JSON.stringify({ open, opened, answers })), 1000)
