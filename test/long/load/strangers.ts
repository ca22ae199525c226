import { connect, type Socket } from 'node:net'

// A process of strangers: node strangers.mjs '<options as JSON>'. They keep so many connections open, each misused in the
// same way; one that is closed is opened again a second later. Each second a line of JSON tells how many are open.

/** What strangers do with a connection. */
export type Misuse =
  /** Nothing. */
  | 'idle'
  /** Send a header and then a byte every two seconds. */
  | 'write slowly'
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
  /** Addresses that they come from, 127.<subnet>.x.y. */
  readonly addresses: number
  readonly subnet: number
}

const options: Strangers = JSON.parse(process.argv[2] ?? '{}')
const { host, port, misuse, connections, addresses, subnet } = options

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

const misuses: Readonly<Record<Misuse, (socket: Socket, n: number) => void>> = {
  idle: () => undefined,
  'write slowly': socket => {
    socket.write(head('POST', '/token', 'Content-Length: 8000\r\n\r\n'))
    const timer = setInterval(() => socket.write('x'), 2000)
    socket.on('close', () => clearInterval(timer))
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
  const localAddress = `127.${subnet}.${1 + Math.floor((n % addresses) / 200)}.${1 + ((n % addresses) % 200)}`
  const socket = connect({ host, port, localAddress })
  socket.on('connect', () => {
    open++
    opened++
    socket.once('close', () => open--)
    misuses[misuse](socket, n)
  })
  if (misuse === 'idle' || misuse === 'write slowly') socket.resume()
  socket.on('error', () => undefined)
  socket.on('close', () => setTimeout(begin, 1000, n))
}

// A few at a time: this process has to live too.
let begun = 0
const timer = setInterval(() => {
  for (let i = 0; i < 50 && begun < connections; i++) begin(begun++)
  if (begun === connections) clearInterval(timer)
}, 20)
setInterval(() => console.log(JSON.stringify({ open, opened, answers })), 1000)
