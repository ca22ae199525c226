// What the benches have in common: a daemon that tells its CPU time and its longest stall, and a client for it.
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = name => fileURLToPath(new URL(name, import.meta.url))
const children = new Set()
/** Taken away at the end, with all that runs. */
export const temporary = mkdtempSync(join(tmpdir(), 'svcd-bench-'))
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1))
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(temporary, { recursive: true, force: true, maxRetries: 3 })
})

export const median = values => quantile(values, 0.5)
export const quantile = (values, q) => values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) * q)]
export const row = (...columns) =>
  console.log(columns.map((text, i) => (i === 0 ? text.padEnd(48) : text.padStart(13))).join(''))
export const machine = () => `node ${process.version}, ${cpus().length} CPUs (${cpus()[0]?.model})`

/** A child with an IPC channel, killed with this process. */
export function start(file, args = [], options = {}) {
  const child = spawn(process.execPath, [...(options.execArgv ?? []), here(file), ...args], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc']
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

export const answerOf = child => new Promise(resolve => child.once('message', resolve))

/** A daemon on the state in `directory`; resolves once it listens. Without `loaded` it cannot tell what it spent. */
export async function startDaemon(directory, loaded = ['--import', here('stall.mjs')]) {
  const settings = {
    'paths.state': join(directory, 'state'),
    'paths.files': join(directory, 'files'),
    'http.listen': '127.0.0.1:0',
    'http.url': 'http://127.0.0.1:7050'
  }
  const sets = Object.entries(settings).flatMap(([key, value]) => ['--set', `${key}=${value}`])
  const child = start('../bin/svcd', ['serve', '--config', here('../etc/svcd.ini'), ...sets], {
    execArgv: loaded
  })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', text => {
      if (said.length < 10_000) said += text
    })
  while (!/listens on http:\/\/127\.0\.0\.1:(\d+)/.test(said)) {
    if (child.exitCode !== null) throw new Error(`svcd did not start: ${said}`)
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  return new Daemon(child, Number(/listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(said)[1]), directory)
}

class Daemon {
  #child
  #agent = new Agent({ keepAlive: true, maxSockets: 1 })
  #token

  constructor(child, port, directory) {
    this.#child = child
    this.port = port
    this.directory = directory
  }

  get pid() {
    return this.#child.pid
  }

  /** Milliseconds of CPU time, and of the longest stall of the event loop, since this was asked last. */
  async spent() {
    this.#child.send('spent')
    return answerOf(this.#child)
  }

  async stop() {
    this.#agent.destroy()
    if (this.#child.exitCode !== null) return
    const gone = new Promise(resolve => this.#child.once('exit', resolve))
    this.#child.kill('SIGKILL')
    await gone
  }

  /** The answer to one request as the admin; anything but 2xx throws. */
  async ask(method, path, body) {
    this.#token ??= await this.#login()
    return this.send(method, path, { body, headers: { 'x-access-tokens': this.#token } })
  }

  async #login() {
    const password = readFileSync(join(this.directory, 'state', 'admin-password'), 'utf8').trim()
    const text = await this.send('POST', '/token', { body: JSON.stringify({ username: 'admin', password }) })
    return JSON.parse(text).token
  }

  /** The answer to one request; `how`: its body, and what node:http's request takes besides. */
  send(method, path, { body, ...how } = {}) {
    return new Promise((resolve, reject) => {
      const outgoing = request(
        { host: '127.0.0.1', port: this.port, method, path, agent: this.#agent, ...how },
        answer => {
          const pieces = []
          answer.on('data', piece => pieces.push(piece))
          answer.on('error', reject)
          answer.on('end', () => {
            const text = Buffer.concat(pieces).toString()
            if (answer.statusCode < 300) resolve(text)
            else reject(new Error(`${method} ${path}: ${answer.statusCode} ${text}`))
          })
        }
      )
      outgoing.on('error', reject)
      outgoing.end(body)
    })
  }
}
