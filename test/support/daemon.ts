import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { builtTree } from './built-tree.js'
import { type Child, start } from './child.js'
import { Client, type Read } from './client.js'
import { adminToken, sshKeyMade } from './first-start.js'
import { notesIn } from './notes.js'
import { output, requirePrograms } from './programs.js'
import { isWritten } from './stored-texts.js'
import { until } from './until.js'

/** An answer of the service: the status code and the body, parsed when there is one. */
export interface Answer {
  readonly status: number
  readonly body: unknown
}

/** A node's status; null where nothing is known. */
export interface NodeStatus {
  readonly state: string | null
  readonly reason: string | null
  readonly history: readonly { readonly state: string }[]
}

/** How to start a daemon. */
export interface DaemonOptions {
  /** Existing directory; the built service, its state and its files are made in it. */
  readonly directory: string
  /** `address:port`; absent: a free port of loopback, and a URL for nodes that leads nowhere. */
  readonly listen?: string
  /** Put before every command: a network namespace, say. */
  readonly enter?: readonly string[]
  /** Further ini keys: `section.key=value`. */
  readonly set?: readonly string[]
}

/**
 * The real daemon, built from the sources as they are now, as a program of its own on directories that
 * outlive it, and its first admin beside it. Controller is the same within the test's process.
 */
export class Daemon {
  readonly tree: string
  child: Child | undefined
  readonly #options: DaemonOptions
  readonly #clients = new Set<Client>()
  #url = ''
  #token = ''

  constructor(options: DaemonOptions) {
    requirePrograms('curl')
    this.#options = options
    this.tree = builtTree(this.path('svcd'))
    mkdirSync(this.path('files'), { recursive: true })
  }

  /** One that listens. Throws an Error with its log when it does not come up. */
  static async start(options: DaemonOptions): Promise<Daemon> {
    const daemon = new Daemon(options)
    await daemon.start()
    return daemon
  }

  /** Of a directory or file: state/…, files/…, images/…. */
  path(...names: string[]): string {
    return join(this.#options.directory, ...names)
  }

  /** Begins a start; it is not the daemon that the others of these mean until `start` has made it so. */
  launch(): Child {
    const { listen, enter = [], set = [] } = this.#options
    const settings = [
      `http.listen=${listen ?? '127.0.0.1:0'}`,
      ...(listen === undefined ? ['http.url=http://10.1.255.254:7050'] : []),
      `paths.state=${this.path('state')}`,
      `paths.files=${this.path('files')}`,
      `image.directory=${this.path('images')}`,
      ...set
    ]
    const command = [...enter, join(this.tree, 'bin', 'svcd'), 'serve']
    const [program = '', ...args] = [...command, '--config', join(this.tree, 'etc', 'svcd.ini')]
    return start(program, [...args, ...settings.flatMap(value => ['--set', value])])
  }

  /** Resolves once it listens. */
  async start(): Promise<void> {
    this.child = this.launch()
    await this.child.says('next, ask for a token')
    // One that listens on all addresses does not say so in a URL.
    this.#url = /listens on (http:\S+);/.exec(this.log())?.[1] ?? `http://${this.#options.listen}`
    if (this.#token !== '') return
    this.#token = await adminToken(this.path('state'))
    await sshKeyMade(this.path('state'), this.#options.set ?? [], () => this.log())
  }

  /** A connection of the admin's to a daemon that is not in another network. */
  client(): Client {
    const { hostname, port } = new URL(this.#url)
    const client = new Client(hostname, Number(port), this.#token)
    this.#clients.add(client)
    return client
  }

  /** One request with the admin's token, which waits so many seconds. */
  async request(method: 'GET' | 'POST', path: string, body?: unknown, seconds = 120): Promise<Answer> {
    const sent = body === undefined ? undefined : JSON.stringify(body)
    const { enter = [] } = this.#options
    const ask = enter.length === 0 ? this.#ask.bind(this) : this.#askByCurl.bind(this)
    const { status, text } = await ask(method, path, sent, seconds)
    return { status, body: text === '' ? undefined : JSON.parse(text) }
  }

  async #ask(method: string, path: string, body: string | undefined, seconds: number): Promise<Read> {
    const { hostname, port } = new URL(this.#url)
    const client = new Client(hostname.replace(/^\[|\]$/g, ''), Number(port), this.#token)
    try {
      return await client.send(method, path, body, AbortSignal.timeout(seconds * 1000))
    } finally {
      client.close()
    }
  }

  /** From another network, which no socket of this process reaches. */
  async #askByCurl(method: string, path: string, body: string | undefined, seconds: number): Promise<Read> {
    const { enter = [] } = this.#options
    const [program = '', ...args] = [...enter, 'curl', '--silent', '--show-error', '--max-time', `${seconds}`]
    const more = [
      ...['--request', method, '--header', `x-access-tokens: ${this.#token}`, this.#url + path],
      ...(body === undefined ? [] : ['--data-binary', body]),
      ...['--write-out', '\n%{http_code}']
    ]
    const text = await output(program, [...args, ...more], { timeout: seconds * 1000 })
    const end = text.lastIndexOf('\n')
    return { status: Number(text.slice(end + 1)), text: text.slice(0, end) }
  }

  /**
   * Creates `config.<type>.<name>`.
   * @throws Error with the service's message when the answer is not 201.
   */
  async create(type: string, name: string, fields: object): Promise<void> {
    const path = `/config/${type}/${name}`
    const { status, body } = await this.request('POST', path, { config: { [type]: { [name]: fields } } })
    if (status !== 201) throw new Error(`POST ${path}: ${status} ${JSON.stringify(body)}`)
  }

  /**
   * What GET /monitor/node/{node} says: the last state, the reason if there is one, and the states so far.
   */
  async monitor(node: string): Promise<NodeStatus> {
    const { status, body } = await this.request('GET', `/monitor/node/${node}`)
    const found = (body as { monitor?: { status: Record<string, NodeStatus> } }).monitor?.status[node]
    if (!found) throw new Error(`GET /monitor/node/${node}: ${status} ${JSON.stringify(body)}`)
    return found
  }

  /**
   * Resolves when what an interrupted daemon left is put right: the work on images, and the files behind
   * changes.
   */
  settled(): Promise<void> {
    const state = this.path('state')
    return until(() => notesIn(state).length === 0 && isWritten(state))
  }

  /** What it has logged. */
  log(): string {
    return this.child?.output() ?? ''
  }

  /** SIGTERM; resolves when it has ended. */
  stop(): Promise<void> {
    return this.#end(child => child.stop())
  }

  /** SIGKILL; resolves when it has ended. */
  kill(): Promise<void> {
    return this.#end(child => child.kill())
  }

  async #end(how: (child: Child) => Promise<void>): Promise<void> {
    for (const client of this.#clients) client.close()
    this.#clients.clear()
    if (this.child) await how(this.child)
  }
}
