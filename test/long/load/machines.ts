import { Agent, get } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

// A process of machines that boot, or that download images: node machines.mjs '<options as JSON>'. It ends by
// itself and prints one line of JSON: what was asked, what failed, and how long it took.

export interface Machines {
  readonly host: string
  readonly port: number
  /** Asked again and again, `#` being the number of a machine in two hexadecimal digits. */
  readonly path: string
  readonly machines: number
  /** `kept`: each keeps its connection; `new`: each request has one of its own. */
  readonly connection: 'kept' | 'new'
  /** All together ask so many times in a second, if they can. */
  readonly perSecond: number
  readonly seconds: number
  /** 127.<subnet>.x.y are their addresses, or those of `network`. */
  readonly subnet: number
  /** The first two numbers of their addresses: `10.9`. */
  readonly network?: string
  /** A 503 with Retry-After is obeyed, and no failure: downloads. */
  readonly patient: boolean
}

export interface Outcome {
  readonly asked: number
  readonly failed: number
  readonly refused: number
  readonly medianMs: number
  readonly p99Ms: number
  readonly maxMs: number
  readonly bytes: number
  /** The first few. */
  readonly reasons: readonly string[]
}

const options: Machines = JSON.parse(process.argv[2] ?? '{}')
const { host, port, path, machines, connection, perSecond, seconds, subnet, patient } = options
const { network = `127.${subnet}` } = options
const latenciesMs: number[] = []
const reasons: string[] = []
let refused = 0
let failed = 0
let bytes = 0

/**
 * Resolves with the status and the seconds of Retry-After; rejects when there is no whole answer within 60 s.
 */
function ask(n: number, agent: Agent): Promise<{ status: number; retrySeconds: number; text: string }> {
  return new Promise((resolve, reject) => {
    const localAddress = `${network}.${1 + Math.floor(n / 200)}.${1 + (n % 200)}`
    const digits = (n % 256).toString(16).padStart(2, '0')
    const request = get(
      { host, port, path: path.replace('#', digits), agent, localAddress, timeout: 60_000 },
      incoming => {
        let text = ''
        incoming.on('data', (piece: Buffer) => {
          bytes += piece.length
          if (incoming.statusCode !== 200 && text.length < 200) text += piece
        })
        incoming.on('error', reject)
        incoming.on('end', () =>
          resolve({
            status: incoming.statusCode ?? 0,
            retrySeconds: Number(incoming.headers['retry-after'] ?? 0),
            text: text.trim()
          })
        )
      }
    )
    // An idle connection may be ended just then: asked once more over a new one (RFC 9110, 9.2.2).
    request.on('error', (error: NodeJS.ErrnoException) => {
      if (request.reusedSocket && error.code === 'ECONNRESET') ask(n, agent).then(resolve, reject)
      else reject(error)
    })
    request.on('timeout', () => request.destroy(new Error('no answer within 60 s')))
  })
}

const began = performance.now()
const endsAt = began + seconds * 1000
let asked = 0

async function machine(n: number): Promise<void> {
  const agent = new Agent({ keepAlive: connection === 'kept', maxSockets: 1 })
  while (performance.now() < endsAt) {
    // All together keep the pace, whoever is free.
    const dueAt = began + (asked / perSecond) * 1000
    if (performance.now() < dueAt) {
      await sleep(dueAt - performance.now() + 1)
      continue
    }
    asked++
    const start = performance.now()
    try {
      const { status, retrySeconds, text } = await ask(n, agent)
      if (patient && status === 503 && retrySeconds > 0) {
        refused++
        await sleep(Math.min(retrySeconds * 1000, endsAt - performance.now()))
        continue
      }
      if (status !== 200) throw new Error(`status ${status} ${text}`)
      latenciesMs.push(performance.now() - start)
    } catch (error) {
      failed++
      if (reasons.length < 5) reasons.push(String(error))
    }
  }
  agent.destroy()
}

await Promise.all(Array.from({ length: machines }, (_, n) => machine(n)))
latenciesMs.sort((a, b) => a - b)
const at = (share: number) => Math.round((latenciesMs[Math.floor(latenciesMs.length * share)] ?? 0) * 10) / 10
const outcome: Outcome = {
  asked,
  failed,
  refused,
  medianMs: at(0.5),
  p99Ms: at(0.99),
  maxMs: Math.round(latenciesMs.at(-1) ?? 0),
  bytes,
  reasons
}
console.log(JSON.stringify(outcome))
