import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'

/** Compiles the store and the programs in fixtures/ into `directory`: the test runner's loader takes a second to start. */
export function compilePrograms(directory: string): void {
  const compilerOptions: ts.CompilerOptions = {
    module: ts.ModuleKind.ESNext,
    target: ts.ScriptTarget.ES2022,
    verbatimModuleSyntax: true
  }
  for (const folder of ['lib/store', 'test/store']) {
    mkdirSync(join(directory, folder), { recursive: true })
    const source = new URL(`../../${folder}/`, import.meta.url)
    for (const file of readdirSync(source).filter(
      name => name.endsWith('.ts') && !name.endsWith('.test.ts')
    )) {
      const { outputText } = ts.transpileModule(readFileSync(new URL(file, source), 'utf8'), {
        compilerOptions
      })
      writeFileSync(join(directory, folder, file.replace(/ts$/, 'js')), outputText)
    }
  }
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
