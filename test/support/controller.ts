import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import { loadConfig } from '../../lib/config/load.js'
import { type Daemon, startDaemon } from '../../lib/daemon.js'
import type { JobSummary } from '../../lib/jobs/record.js'
import { StoredFiles } from '../../lib/store/files/stored.js'
import { adminToken, sshKeyMade } from './first-start.js'
import { inject } from './inject.js'
import { notesIn } from './notes.js'
import { scratch } from './scratch.js'
import { isWritten, objectTexts } from './stored-texts.js'
import { until } from './until.js'

export interface Reply {
  readonly status: number
  readonly text: string
  /** The parsed body; undefined when it is empty or not JSON. */
  readonly body: ReturnType<typeof JSON.parse>
  readonly headers: Readonly<Record<string, unknown>>
}

export interface Ask {
  /** Null: none. The admin's otherwise. */
  readonly token?: string | null
  readonly source?: string
  readonly headers?: Record<string, string>
  readonly method?: string
}

const ini = fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url))

/** A daemon of its own for one test, with its state in a temporary directory, and the admin's token. */
export class Controller {
  daemon!: Daemon
  /** By how much the daemon's clock is set forward. */
  clockMs = 0
  /**
   * Gives what is stored elsewhere than in the state directory: the path that each file would have there →
   * its text.
   */
  elsewhere: (() => Promise<Record<string, string>>) | undefined
  /** The controller that is asked in the place of this one. */
  asked: { readonly server: Daemon['server']; readonly from: string; caughtUp(): Promise<void> } | undefined

  private constructor(
    readonly directory: string,
    readonly overrides: readonly string[],
    public token: string,
    readonly log: string[]
  ) {}

  static async start(test: Test, ...overrides: string[]): Promise<Controller> {
    const directory = scratch(test)
    mkdirSync(join(directory, 'files'))
    const log: string[] = []
    const all = [
      `paths.state=${join(directory, 'state')}`,
      `paths.files=${join(directory, 'files')}`,
      `image.directory=${join(directory, 'images')}`,
      'http.listen=127.0.0.1:0',
      'http.url=http://10.141.255.254:7050',
      'controller.address=10.141.255.254',
      ...overrides
    ]
    const controller = new Controller(directory, all, '', log)
    await controller.#boot()
    test.teardown(() => controller.daemon.close(1000))
    controller.token = await controller.#adminToken()
    await sshKeyMade(loadConfig(ini, all).paths.state, overrides, () => log.join('\n'))
    return controller
  }

  /** Stops the daemon and starts it again on the same state, and what is done to it meanwhile. */
  async restart(meanwhile = () => {}): Promise<void> {
    await this.daemon.close(1000)
    meanwhile()
    await this.#boot()
  }

  async #boot(): Promise<void> {
    const log = createLog('info', line => this.log.push(line))
    this.daemon = await startDaemon(loadConfig(ini, this.overrides), log, () => Date.now() + this.clockMs)
  }

  #adminToken(): Promise<string> {
    const { auth, paths } = loadConfig(ini, this.overrides)
    return adminToken(paths.state, () => Date.now() + this.clockMs, auth.token_lifetime)
  }

  async login(username = 'admin', password?: string): Promise<string> {
    const secret = password ?? readFileSync(join(this.directory, 'state', 'admin-password'), 'utf8').trim()
    const reply = await this.post('/token', { username, password: secret }, { token: null })
    return reply.body.token
  }

  get(path: string, ask: Ask = {}): Promise<Reply> {
    return this.#ask(ask.method ?? 'GET', path, undefined, ask)
  }

  /** Posts a value as JSON, or a string as it is. */
  post(path: string, body: unknown, ask: Ask = {}): Promise<Reply> {
    const text = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body)
    return this.#ask(ask.method ?? 'POST', path, text, ask)
  }

  /** A request over a real socket, path and body sent as they are. */
  raw(method: string, path: string, body?: string, headers: Record<string, string> = {}): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const { address, port } = this.daemon
      const outgoing = httpRequest({ host: address, port, method, path, headers }, incoming => {
        let text = ''
        incoming.setEncoding('utf8')
        incoming.on('data', chunk => {
          text += chunk
        })
        incoming.on('error', reject)
        incoming.on('end', () => resolve(reply(incoming.statusCode ?? 0, text, incoming.headers)))
      })
      outgoing.on('error', reject)
      outgoing.end(body)
    })
  }

  /** Puts a file where images are served from. */
  file(name: string, content: string | Buffer = name): void {
    writeFileSync(join(this.directory, 'files', name), content)
  }

  /**
   * Everything that is stored, path → text: what a refused request must leave alone. Files that the log
   * promises count as written.
   */
  state(): Record<string, string> {
    const texts = Object.entries(objectTexts(join(this.directory, 'state')))
    // The layout is no object.
    return Object.fromEntries(texts.filter(([path]) => !path.startsWith('layout/')))
  }

  /** Resolves when all files of objects and requests are written. */
  written(): Promise<void> {
    return until(() => isWritten(join(this.directory, 'state')))
  }

  /** A network, an image whose files are there, and a group: what a node needs to boot. */
  async cluster(): Promise<void> {
    for (const name of ['vmlinuz', 'initrd.img', 'compute.tar.gz']) this.file(name)
    await this.post('/config/network/cluster', { network: '10.141.0.0/16', gateway: '10.141.255.253' })
    await this.post('/config/osimage/compute', {
      kernelfile: 'vmlinuz',
      initrdfile: 'initrd.img',
      imagefile: 'compute.tar.gz'
    })
    await this.post('/config/group/compute', {
      osimage: 'compute',
      interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
    })
  }

  /**
   * Resolves when nothing goes on behind the answers: no job waits or runs, but those of these ids, and
   * nothing of an image is left to be put right or removed. Gives the files of that moment.
   */
  async idle(held: ReadonlySet<string> = new Set()): Promise<StoredFiles> {
    const { jobs } = this.daemon
    const state = join(this.directory, 'state')
    const hasEnded = ({ id, state }: JobSummary) =>
      held.has(id) || (state !== 'queued' && state !== 'running')
    const isAtRest = (texts: Record<string, string>) =>
      !Object.entries(texts).some(([path, text]) => path.startsWith('tree/') && text.includes('abandoned'))
    let stored: StoredFiles | undefined
    const isIdle = async () => {
      await this.asked?.caughtUp()
      const elsewhere = await this.elsewhere?.()
      if (!jobs.records().every(hasEnded)) return false
      // The log is read once: it is most of the work.
      stored = new StoredFiles(state)
      return (
        isAtRest(elsewhere ?? objectTexts(state, stored, ['tree'])) && notesIn(state, stored).length === 0
      )
    }
    await until(isIdle, () => ({ jobs: jobs.records(), work: notesIn(state) }))
    return stored ?? new StoredFiles(state)
  }

  async #ask(method: string, path: string, body: string | Buffer | undefined, ask: Ask): Promise<Reply> {
    const headers: Record<string, string> = { ...ask.headers }
    if (ask.token !== null) headers['x-access-tokens'] = ask.token ?? this.token
    const answer = await inject(this.asked?.server ?? this.daemon.server, {
      method,
      path,
      headers,
      ...(body === undefined ? {} : { body }),
      source: ask.source ?? this.asked?.from ?? '127.0.0.1'
    })
    return reply(answer.status, answer.body.toString('utf8'), answer.headers)
  }
}

function reply(status: number, text: string, headers: Readonly<Record<string, unknown>>): Reply {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    body = undefined
  }
  return { status, text, body, headers }
}
