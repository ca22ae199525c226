import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { compile, replaceModule, restorePrograms } from '../support/built-tree.js'
import type { Client } from '../support/client.js'
import { Daemon } from '../support/daemon.js'
import { checkout } from '../support/programs.js'

/**
 * A place in the code where the daemon kills itself: before the first line of a module that holds `before`.
 */
export interface Crash {
  readonly module: string
  readonly before: string
  /** Milliseconds after that place is reached; 0 if absent. */
  readonly after?: number
}

/** A daemon of one test, which can be killed at a chosen place. */
export class CrashingDaemon extends Daemon {
  /** A connection of the admin's to the daemon that runs. */
  admin!: Client
  #isReplaced = false

  /** @param set further ini keys */
  constructor(test: Test, ...set: readonly string[]) {
    super({ directory: test.testdir(), set })
    test.teardown(() => this.kill())
  }

  /** Puts other code in the place of a module. */
  replace(module: string, code: string): void {
    this.#isReplaced = true
    replaceModule(this.tree, `${module}.js`, code)
  }

  /** Resolves once it listens; it kills itself at `crash`. */
  override async start(crash?: Crash): Promise<void> {
    const undo = crash && this.#plant(crash)
    await super.start()
    // Loaded by now: the next start has the code as it was.
    undo?.()
    this.admin = this.client()
  }

  /** Sends a request that the daemon does not survive. */
  async dies(send: (admin: Client) => Promise<unknown>): Promise<NodeJS.Signals | null | undefined> {
    const answer = send(this.admin).catch(() => undefined)
    const end = await this.child?.ended
    await answer
    return end?.signal
  }

  #plant({ module, before, after = 0 }: Crash): () => void {
    const source = readFileSync(join(checkout, 'lib', `${module}.ts`), 'utf8')
    const lines = source.split('\n')
    const at = lines.findIndex(line => line.includes(before))
    if (at < 0) throw new Error(`${module}.ts has no line with ${before}`)
    const die = "process.kill(process.pid, 'SIGKILL')"
    lines.splice(at, 0, after > 0 ? `setTimeout(() => ${die}, ${after});` : `${die};`)
    const put = (text: string) => replaceModule(this.tree, `${module}.js`, compile(text))
    put(lines.join('\n'))
    return () => {
      put(source)
      if (!this.#isReplaced) restorePrograms(this.tree)
    }
  }
}
