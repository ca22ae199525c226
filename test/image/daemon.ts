import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { builtTree, compile, type Running, replaceModule, root, start } from '../support/built-tree.js'
import { Client } from '../support/client.js'

/** A place in the code where the daemon kills itself: before the first line of a module that holds `before`. */
export interface Crash {
  readonly module: string
  readonly before: string
  /** Milliseconds after that place is reached; 0 if absent. */
  readonly after?: number
}

/** The daemon as a program of its own, on directories that outlive it, which can be killed at a chosen place. */
export class Daemon {
  readonly tree: string
  running!: Running
  #client: Client | undefined
  #token = ''

  constructor(test: Test) {
    this.tree = builtTree(test.testdir())
    test.teardown(() => {
      this.#client?.close()
      this.running?.process.kill('SIGKILL')
    })
  }

  path(...names: string[]): string {
    return join(this.tree, 'var', ...names)
  }

  /** Puts other code in the place of a module. */
  replace(module: string, code: string): void {
    replaceModule(this.tree, `${module}.js`, code)
  }

  /** Resolves once it listens; it kills itself at `crash`. */
  async start(crash?: Crash): Promise<void> {
    const settings = [
      `paths.state=${this.path('state')}`,
      `paths.files=${this.path('files')}`,
      `image.directory=${this.path('images')}`,
      'http.listen=127.0.0.1:0',
      'http.url=http://10.1.255.254:7050'
    ]
    const undo = crash && this.#plant(crash)
    const args = ['serve', '--config', join(this.tree, 'etc', 'svcd.ini')]
    this.running = start(join(this.tree, 'bin', 'svcd'), [
      ...args,
      ...settings.flatMap(value => ['--set', value])
    ])
    await this.running.says('next, ask for a token')
    // Loaded by now: the next start has the code as it was.
    undo?.()
    const port = Number(/listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(this.running.output())?.[1])
    this.#client?.close()
    if (this.#token === '') {
      const password = readFileSync(this.path('state', 'admin-password'), 'utf8').trim()
      const client = new Client('127.0.0.1', port, '')
      this.#token = JSON.parse((await client.post('/token', { username: 'admin', password })).text).token
      client.close()
    }
    this.#client = new Client('127.0.0.1', port, this.#token)
  }

  get client(): Client {
    if (!this.#client) throw new Error('it was not started')
    return this.#client
  }

  async kill(): Promise<void> {
    this.running.process.kill('SIGKILL')
    await this.running.ended
  }

  /** Sends a request that the daemon does not survive. */
  async dies(send: (client: Client) => Promise<unknown>): Promise<NodeJS.Signals | null> {
    const answer = send(this.client).catch(() => undefined)
    const { signal } = await this.running.ended
    await answer
    return signal
  }

  /** Resolves when what was interrupted is put right. */
  async settled(): Promise<void> {
    while (readdirSync(this.path('state', 'work')).length > 0) await sleep(10)
  }

  #plant({ module, before, after = 0 }: Crash): () => void {
    const source = readFileSync(join(root, 'lib', `${module}.ts`), 'utf8')
    const lines = source.split('\n')
    const at = lines.findIndex(line => line.includes(before))
    if (at < 0) throw new Error(`${module}.ts has no line with ${before}`)
    const die = "process.kill(process.pid, 'SIGKILL')"
    lines.splice(at, 0, after > 0 ? `setTimeout(() => ${die}, ${after});` : `${die};`)
    const put = (text: string) => replaceModule(this.tree, `${module}.js`, compile(text))
    put(lines.join('\n'))
    return () => put(source)
  }
}
