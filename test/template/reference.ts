import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'

const SCRIPT = join(dirname(fileURLToPath(import.meta.url)), 'reference.py')
const MISSING = 'Python with jinja2 is missing, type: apt-get install python3-jinja2'
// the distribution's Python first: another one on PATH does not see the distribution's packages
const PYTHONS = ['/usr/bin/python3', 'python3']

/** What Python's jinja2 made of a template. */
export type Answer = { readonly text: string } | { readonly error: string }

type Python = ChildProcessByStdio<Writable, Readable, null>

/** One python3 process that renders with jinja2 (StrictUndefined), the reference for lib/template. */
export class Reference {
  /** Version of jinja2. */
  readonly version: string
  readonly #python: Python
  readonly #lines: AsyncIterator<string>
  #last: Promise<unknown> = Promise.resolve()
  #files: Readonly<Record<string, string>> | undefined

  private constructor(version: string, python: Python, lines: AsyncIterator<string>) {
    this.version = version
    this.#python = python
    this.#lines = lines
  }

  /** Throws an Error that says what to type where python3 or its jinja2 is missing. */
  static async start(): Promise<Reference> {
    for (const program of PYTHONS.filter(name => !name.startsWith('/') || existsSync(name))) {
      const python = spawn(program, ['-W', 'ignore', SCRIPT], { stdio: ['pipe', 'pipe', 'inherit'] })
      // a program that cannot be started, or ends early, ends the lines too
      python.on('error', () => {})
      python.stdin.on('error', () => {})
      const lines = createInterface({ input: python.stdout })[Symbol.asyncIterator]()
      const first = await lines.next()
      const hello: { jinja2: string | null } = first.done ? { jinja2: null } : JSON.parse(first.value)
      if (hello.jinja2 !== null) return new Reference(hello.jinja2, python, lines)
      python.stdin.end()
    }
    throw new Error(MISSING)
  }

  /** Renders `name` of `files`, which are also what it includes. Requests may overlap. */
  render(files: Readonly<Record<string, string>>, name: string, data: object): Promise<Answer> {
    // The texts of all files take longer to send than the rendering.
    const request = files === this.#files ? { name, data } : { files, name, data }
    this.#files = files
    this.#python.stdin.write(`${JSON.stringify(request)}\n`)
    const answer = this.#last.then(async () => {
      const line = await this.#lines.next()
      if (line.done) throw new Error('the python3 process has ended')
      return JSON.parse(line.value) as Answer
    })
    this.#last = answer.catch(() => {})
    return answer
  }

  /** Ends the process, after the requests so far. */
  async stop(): Promise<void> {
    await this.#last
    this.#python.stdin.end()
    await this.#lines.next()
  }
}
