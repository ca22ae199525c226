import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { compile } from '../program/child.js'

/** Compiles the store and the programs of this directory into `directory`: the test runner's loader takes a second. */
export function compilePrograms(directory: string): void {
  compile(
    directory,
    'lib/store',
    'lib/disk',
    'lib/background.ts',
    'lib/concurrency.ts',
    'lib/errors.ts',
    'test/store'
  )
}

/** A running program, and the lines it printed. */
export class Program {
  readonly process: ChildProcess
  readonly lines: string[] = []
  readonly ended: Promise<void>
  #rest = ''
  #heard = () => {}

  constructor(directory: string, name: string, ...args: string[]) {
    this.process = spawn(process.execPath, [join(directory, 'test/store', name), ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: {}
    })
    this.process.stdout?.setEncoding('utf8').on('data', (text: string) => {
      const lines = `${this.#rest}${text}`.split('\n')
      this.#rest = lines.pop() ?? ''
      this.lines.push(...lines)
      this.#heard()
    })
    this.ended = new Promise(resolve => {
      this.process.on('close', () => {
        resolve()
        this.#heard()
      })
    })
  }

  /** Resolves with the first line that starts with one of these; undefined when the program ended without. */
  async line(...starts: string[]): Promise<string | undefined> {
    for (;;) {
      const found = this.lines.find(line => starts.some(start => line.startsWith(start)))
      if (found !== undefined) return found
      if (this.process.exitCode !== null || this.process.signalCode !== null) return undefined
      await new Promise<void>(resolve => {
        this.#heard = resolve
      })
    }
  }

  /** kill -9; a program that has ended stays so. */
  async kill(): Promise<void> {
    this.process.kill('SIGKILL')
    await this.ended
  }
}
