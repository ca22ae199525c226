import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { builtTree } from './built-tree.js'
import { type Child, startChild } from './child.js'
import { node, output, requirePrograms } from './programs.js'

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

/** The real daemon on a state directory of its own, and an admin with curl beside it. */
export interface Controller {
  /** One request with the admin's token. */
  request(method: 'GET' | 'POST', path: string, body?: unknown): Promise<Answer>
  /**
   * Creates `config.<type>.<name>`.
   * @throws Error with the service's message when the answer is not 201.
   */
  create(type: string, name: string, fields: object): Promise<void>
  /** What GET /monitor/node/{node} says: the last state, the reason if there is one, and the states so far. */
  monitor(node: string): Promise<NodeStatus>
  /** What the daemon has logged. */
  log(): string
  stop(): Promise<void>
}

/** How to start a daemon. */
export interface ControllerOptions {
  /** Existing directory; the built daemon, its state and `files/` are made in it. */
  readonly directory: string
  /** `address:port` */
  readonly listen: string
  /** Put before every command (net.ts). */
  readonly enter?: readonly string[]
  /** Further ini keys: `section.key=value`. */
  readonly set?: readonly string[]
}

/**
 * Starts `bin/svcd serve`, built from the sources as they are now, and logs in as its first admin.
 * @throws Error with the daemon's log when it does not come up.
 */
export async function startController(options: ControllerOptions): Promise<Controller> {
  requirePrograms('curl')
  const { directory, listen, enter = [], set = [] } = options
  const tree = builtTree(join(directory, 'svcd'))
  const state = join(directory, 'state')
  const files = join(directory, 'files')
  await mkdir(files, { recursive: true })
  const settings = [
    `http.listen=${listen}`,
    `paths.state=${state}`,
    `paths.files=${files}`,
    `image.directory=${join(directory, 'images')}`,
    ...set
  ]
  const curl = async (...args: string[]): Promise<Answer> => {
    const [program = '', ...rest] = [
      ...enter,
      'curl',
      '--silent',
      '--show-error',
      '--max-time',
      '20',
      ...args
    ]
    const text = await output(program, [...rest, '--write-out', '\n%{http_code}'])
    const end = text.lastIndexOf('\n')
    const body = text.slice(0, end)
    return { status: Number(text.slice(end + 1)), body: body === '' ? undefined : JSON.parse(body) }
  }
  const url = `http://${listen}`
  const daemon: Child = await startChild(
    [...enter, ...node, join(tree, 'bin/svcd'), 'serve', '--config']
      .concat(join(tree, 'etc/svcd.ini'))
      .concat(settings.flatMap(setting => ['--set', setting])),
    () =>
      curl(`${url}/version`).then(
        answer => answer.status === 200,
        () => false
      )
  )
  const post = (body: unknown) => ['--data-binary', JSON.stringify(body)]
  const login = async () => {
    const password = (await readFile(join(state, 'admin-password'), 'utf8')).trim()
    const { status, body } = await curl(`${url}/token`, ...post({ username: 'admin', password }))
    if (status !== 201) throw new Error(`POST /token: ${status} ${JSON.stringify(body)}`)
    return (body as { token: string }).token
  }
  const token = await login().catch(async error => {
    await daemon.stop()
    throw error
  })
  const request: Controller['request'] = (method, path, body) =>
    curl(
      ...['--request', method, '--header', `x-access-tokens: ${token}`, url + path],
      ...(body === undefined ? [] : post(body))
    )
  return {
    request,
    async create(type, name, fields) {
      const path = `/config/${type}/${name}`
      const { status, body } = await request('POST', path, { config: { [type]: { [name]: fields } } })
      if (status !== 201) throw new Error(`POST ${path}: ${status} ${JSON.stringify(body)}`)
    },
    async monitor(node) {
      const { status, body } = await request('GET', `/monitor/node/${node}`)
      if (status !== 200) throw new Error(`GET /monitor/node/${node}: ${status} ${JSON.stringify(body)}`)
      const { monitor } = body as { monitor: { status: Record<string, NodeStatus> } }
      const found = monitor.status[node]
      if (!found) throw new Error(`GET /monitor/node/${node} does not hold it: ${JSON.stringify(body)}`)
      return found
    },
    log: daemon.log,
    stop: daemon.stop
  }
}
