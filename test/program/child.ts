import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import ts from 'typescript'

const root = join(import.meta.dirname, '../..')

/**
 * Compiles modules of the checkout (folders or files) into `directory`, so that a test can start a process of its
 * own with them without the test runner's loader.
 */
export function compile(directory: string, ...paths: string[]): void {
  const files = paths.flatMap(path =>
    path.endsWith('.ts') ? [path] : readdirSync(join(root, path)).map(name => join(path, name))
  )
  for (const file of files.filter(name => name.endsWith('.ts') && !name.endsWith('.test.ts'))) {
    const { outputText } = ts.transpileModule(readFileSync(join(root, file), 'utf8'), {
      compilerOptions: {
        module: ts.ModuleKind.ESNext,
        target: ts.ScriptTarget.ES2022,
        verbatimModuleSyntax: true
      }
    })
    const target = join(directory, file.replace(/ts$/, 'js'))
    mkdirSync(dirname(target), { recursive: true })
    writeFileSync(target, outputText)
  }
}

/** A node process, and the lines it prints as they come. */
export class NodeProcess {
  readonly process: ChildProcess
  readonly ended: Promise<void>
  readonly #lines: AsyncIterator<string>

  constructor(file: string, ...args: string[]) {
    this.process = spawn(process.execPath, [file, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { PATH: process.env.PATH }
    })
    this.ended = new Promise(resolve => this.process.once('close', () => resolve()))
    if (!this.process.stdout) throw new Error('no standard output')
    this.#lines = createInterface(this.process.stdout)[Symbol.asyncIterator]()
  }

  /** The next line; undefined when it has ended without. */
  async line(): Promise<string | undefined> {
    const { value, done } = await this.#lines.next()
    return done ? undefined : value
  }

  /** SIGKILL; resolves when it is gone. */
  async kill(): Promise<void> {
    this.process.kill('SIGKILL')
    await this.ended
  }
}
