// The load of faults.test.ts, a program of its own on the network of the controllers: creates, changes of
// eight nodes at once, reports and boot scripts, until its input ends. It writes what was acknowledged, and
// what was not, to a file, a line each.
import { openSync, writeSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

/** What the program is told, as JSON in its first argument. */
export interface Task {
  /** host:port of each. */
  readonly controllers: readonly string[]
  readonly token: string
  readonly file: string
  /** Boot scripts a second, of all controllers together. */
  readonly scripts: number
  /** How many times as long as usual a client pauses between two changes or reports. */
  readonly slower: number
  /** The MACs of the nodes r1, r2, …, which report and boot. */
  readonly macs: readonly string[]
}

/** A line of the file. `at`: which controller; `ms`: since 1970. */
export type Line = { readonly ms: number } & (
  | { readonly kind: 'created'; readonly name: string; readonly address: string }
  | { readonly kind: 'refused'; readonly name: string; readonly address: string }
  | { readonly kind: 'changed'; readonly comment: string }
  // Not acknowledged: it may come late, and was made or not.
  | { readonly kind: 'unsure-change'; readonly comment: string }
  | { readonly kind: 'half'; readonly comment: string }
  | { readonly kind: 'reported'; readonly node: string; readonly count: number }
  | { readonly kind: 'unsure-report'; readonly node: string; readonly count: number }
  | { readonly kind: 'script-failed'; readonly at: number; readonly reason: string }
  | { readonly kind: 'scripts'; readonly counts: readonly number[] }
)

/** After so long a client asks another controller. */
const LIMIT_MS = 2000

type Told<L = Line> = L extends Line ? Omit<L, 'ms'> : never

async function main({ controllers, token, file, scripts, slower, macs }: Task): Promise<void> {
  const descriptor = openSync(file, 'a')
  const tell = (line: Told) => writeSync(descriptor, `${JSON.stringify({ ms: Date.now(), ...line })}\n`)
  let isOver = false
  process.stdin.on('end', () => {
    isOver = true
  })
  process.stdin.resume()

  const agents = controllers.map(() => new Agent({ keepAlive: true }))
  const ask = (
    at: number,
    method: string,
    path: string,
    limitMs: number,
    body?: string,
    agent = agents[at]
  ) =>
    new Promise<{ status: number; text: string }>((resolve, reject) => {
      const [host = '', port] = controllers[at]?.split(':') ?? []
      const headers = { 'x-access-tokens': token, 'content-length': Buffer.byteLength(body ?? '') }
      const outgoing = request({ host, port, method, path, headers, ...(agent && { agent }) }, incoming => {
        let text = ''
        incoming.setEncoding('utf8').on('data', (piece: string) => {
          text += piece
        })
        incoming.on('error', reject)
        incoming.on('end', () => {
          clearTimeout(timer)
          resolve({ status: incoming.statusCode ?? 0, text })
        })
      })
      const timer = setTimeout(() => outgoing.destroy(new Error('late')), limitMs)
      outgoing.on('error', error => {
        clearTimeout(timer)
        reject(error)
      })
      outgoing.end(body)
    })

  /**
   * Does it again and again; a controller that does not do it is left for the next one, unless it is to
   * `stay`.
   */
  async function again(
    at: number,
    pauseMs: number,
    work: (at: number) => Promise<boolean>,
    stay = false
  ): Promise<void> {
    while (!isOver) {
      const isDone = await work(at).catch(() => false)
      if (!isDone && !stay) at = (at + 1) % controllers.length
      await sleep(isDone ? pauseMs * slower : 50)
    }
  }

  const unanswered = () => ({ status: 0 })
  let made = 0
  const create = async (at: number) => {
    const i = ++made
    const [name, address] = [`d${i}`, `10.130.${Math.floor(i / 250)}.${(i % 250) + 1}`]
    const body = JSON.stringify({
      config: { otherdev: { [name]: { network: 'cluster', ipaddress: address } } }
    })
    const { status } = await ask(at, 'POST', `/config/otherdev/${name}`, LIMIT_MS, body)
    if (status === 201) tell({ kind: 'created', name, address })
    if (status === 503) tell({ kind: 'refused', name, address })
    return status === 201
  }
  let changes = 0
  const change = async (at: number) => {
    const comment = String(++changes)
    const table = ['name,comment', ...Array.from({ length: 8 }, (_, i) => `n${i + 1},${comment}`), ''].join(
      '\n'
    )
    const { status } = await ask(at, 'POST', '/config/node?format=csv', LIMIT_MS, table).catch(unanswered)
    tell({ kind: status === 200 ? 'changed' : 'unsure-change', comment })
    return status === 200
  }
  const look = async (at: number) => {
    const path = '/config/node?nodes=n%5B1-8%5D&fields=comment&format=csv'
    const { status, text } = await ask(at, 'GET', path, LIMIT_MS)
    const comments = new Set(
      text
        .split('\n')
        .slice(1, 9)
        .map(line => line.split(',').at(-1))
    )
    if (status === 200 && comments.size > 1) tell({ kind: 'half', comment: [...comments].join(' ') })
    return status === 200
  }
  let reports = 0
  const report = async (at: number) => {
    const count = ++reports
    const node = `r${(count % macs.length) + 1}`
    const body = JSON.stringify({ monitor: { status: { [node]: { state: `installer.${count}` } } } })
    const { status } = await ask(at, 'POST', `/monitor/node/${node}`, LIMIT_MS, body).catch(unanswered)
    tell({ kind: status === 204 ? 'reported' : 'unsure-report', node, count })
    return status === 204
  }

  const counts = controllers.map(() => 0)
  let asked = 0
  const scriptAgents = controllers.map(() => new Agent({ keepAlive: true, maxSockets: 16 }))
  const waiting = controllers.map(() => 0)
  const boot = async (at: number) => {
    const path = `/boot/search/mac/${macs[asked++ % macs.length]}`
    waiting[at] = (waiting[at] ?? 0) + 1
    try {
      const { status, text } = await ask(at, 'GET', path, 3000, undefined, scriptAgents[at])
      if (status !== 200 || !text.startsWith('#!ipxe')) throw new Error(`status ${status}`)
      counts[at] = (counts[at] ?? 0) + 1
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException
      tell({ kind: 'script-failed', at, reason: code ?? message })
    } finally {
      waiting[at] = (waiting[at] ?? 0) - 1
    }
  }
  const boots = async () => {
    const begun = performance.now()
    for (let sent = 0; !isOver; await sleep(10)) {
      const due = Math.floor(((performance.now() - begun) / 1000) * scripts)
      for (; sent < due; sent++) {
        const at = sent % controllers.length
        // One that does not answer is not asked by thousands.
        if ((waiting[at] ?? 0) < 64) void boot(at)
      }
    }
  }
  const count = setInterval(
    () => tell({ kind: 'scripts', counts: counts.map((_, at) => counts.splice(at, 1, 0)[0] ?? 0) }),
    1000
  )
  await Promise.all([
    // One at each controller: so the next acknowledged change is seen wherever it is first possible.
    ...controllers.map((_, at) => again(at, 90, create, true)),
    again(2, 150, change),
    again(0, 300, look),
    again(1, 20, report),
    again(2, 20, report),
    boots()
  ])
  clearInterval(count)
  process.exit()
}

await main(JSON.parse(process.argv[2] as string) as Task)
