// A daemon under measurement, with the shipped ini, so one line is logged for each request; its log is a
// file.
import { openSync, readFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ask, here, start } from './harness.mjs'

/**
 * The checkout that is measured: this one, or the one that BENCH_CHECKOUT names (for a baseline of an older
 * commit).
 */
export const checkout = process.env.BENCH_CHECKOUT ?? here('..')

/** The environment that the unit gives svcd. */
function unitEnvironment() {
  const unit = readFileSync(join(checkout, 'systemd/svcd.service'), 'utf8')
  const words = [...unit.matchAll(/^Environment=(.*)$/gm)].flatMap(([, line]) => line.split(' '))
  return Object.fromEntries(words.map(word => word.split('=')))
}

/**
 * A daemon on <directory>/state and <directory>/files; resolves once it listens. With `watched` it tells the
 * longest stall of its event loop, which costs it a little; with `asUnit` it has the environment that the
 * unit gives it.
 */
export async function startDaemon(directory, { watched = false, asUnit = false, settings = {} } = {}) {
  const all = {
    'paths.state': join(directory, 'state'),
    'paths.files': join(directory, 'files'),
    'http.listen': '127.0.0.1:0',
    'http.url': 'http://127.0.0.1:7050',
    ...settings
  }
  const sets = Object.entries(all).flatMap(([key, value]) => ['--set', `${key}=${value}`])
  const log = join(directory, 'log')
  const began = performance.now()
  const child = start(join(checkout, 'bin/svcd'), {
    args: ['serve', '--config', join(checkout, 'etc/svcd.ini'), ...sets],
    execArgv: watched ? ['--import', here('stall.mjs')] : [],
    output: openSync(log, 'w'),
    env: { ...process.env, ...(asUnit && unitEnvironment()) }
  })
  const listens = /listens on http:\/\/127\.0\.0\.1:(\d+)/
  const said = () => readFileSync(log, 'utf8')
  while (!listens.test(said())) {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error(`svcd did not start: ${said()}`)
    await sleep(5)
  }
  return new Daemon(child, Number(listens.exec(said())[1]), directory, performance.now() - began)
}

class Daemon {
  #child
  #agent = new Agent({ keepAlive: true, maxSockets: 1 })
  #token

  constructor(child, port, directory, startMs) {
    this.#child = child
    this.port = port
    this.directory = directory
    this.startMs = startMs
  }

  get pid() {
    return this.#child.pid
  }

  /** The bytes that the kernel has counted as written to a disk by it, in whole pages. */
  writtenBytes() {
    return Number(/^write_bytes: (\d+)$/m.exec(readFileSync(`/proc/${this.pid}/io`, 'utf8'))[1])
  }

  /**
   * Milliseconds of the longest `stall` of the event loop since this was asked last, of the longest without the
   * garbage collector (`own`), and of the collector's longest `pause`; it must be `watched`.
   */
  stalls() {
    return ask(this.#child, 'stall')
  }

  async stop() {
    this.#agent.destroy()
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const gone = new Promise(resolve => this.#child.once('exit', resolve))
    this.#child.kill('SIGKILL')
    await gone
  }

  /** A whole request as the admin, for the load. */
  async raw(method, path, body = '') {
    const head = `${method} ${path} HTTP/1.1\r\nHost: bench\r\nx-access-tokens: ${await this.token()}\r\n`
    return `${head}${method === 'POST' ? `Content-Length: ${body.length}\r\n` : ''}\r\n${body}`
  }

  /** The answer to one request as the admin; anything but 2xx throws. */
  async ask(method, path, body) {
    return this.send(method, path, { body, headers: { 'x-access-tokens': await this.token() } })
  }

  /** A token of the admin. */
  async token() {
    if (this.#token !== undefined) return this.#token
    const password = readFileSync(join(this.directory, 'state', 'admin-password'), 'utf8').trim()
    const text = await this.send('POST', '/token', { body: JSON.stringify({ username: 'admin', password }) })
    this.#token = JSON.parse(text).token
    return this.#token
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
