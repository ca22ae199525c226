import { type ChildProcess, spawn } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { buildSync, transformSync } from 'esbuild'

export const root = fileURLToPath(new URL('../..', import.meta.url))

const options = { format: 'esm', target: 'es2022' } as const

/** The code of one module. */
export const compile = (source: string): string => transformSync(source, { ...options, loader: 'ts' }).code

let modules: [string, string][] | undefined

/** Name and code of every module, compiled once per test file. */
function compiled(): [string, string][] {
  const lib = join(root, 'lib')
  const outdir = '/'
  modules ??= buildSync({
    entryPoints: readdirSync(lib, { recursive: true, encoding: 'utf8' })
      .filter(name => name.endsWith('.ts'))
      .map(name => join(lib, name)),
    outbase: lib,
    outdir,
    ...options,
    write: false
  }).outputFiles.map(({ path, text }) => [relative(outdir, path), text])
  return modules
}

/** What a checkout holds beside its sources that the service, or its installation, needs. */
const copied = [
  ...['bin', 'build', 'docs', 'dracut', 'etc', 'initramfs-tools', 'libexec', 'templates', 'systemd'],
  ...['package.json', 'package-lock.json', 'README.md', 'CHANGELOG.md', 'LICENSE']
]

/**
 * A built copy of the checkout in an empty directory, made from the sources as they are now (without the type
 * check), so that no test runs against yesterday's dist/.
 */
export function builtTree(directory: string): string {
  for (const [name, code] of compiled()) replaceModule(directory, name, code)
  writeFileSync(join(directory, 'dist', 'commit'), 'baked\n')
  for (const name of copied) cpSync(join(root, name), join(directory, name), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(directory, 'node_modules'))
  return directory
}

/** Puts other code in the place of a module of the tree. */
export function replaceModule(tree: string, name: string, code: string): void {
  const file = join(tree, 'dist', name)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, code)
}

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export interface Running {
  readonly process: ChildProcess
  readonly ended: Promise<Ended>
  /** Both streams as far as they have come. */
  output(): string
  /** Resolves once the output (both streams) holds this text; rejects when the program ends without it. */
  says(text: string): Promise<void>
}

/** Starts a program by its argument array; `input` is its whole standard input, absent: an open pipe. */
export function start(
  command: string,
  args: readonly string[],
  { input, env }: { input?: string | Uint8Array; env?: Record<string, string> } = {}
): Running {
  // The runner gives every child its own module loader; the program under test is to run as it is. `env`
  // becomes the program, so that pid and signals are the program's.
  const child = spawn('env', ['-u', 'NODE_OPTIONS', command, ...args], { env: { ...process.env, ...env } })
  let seen = ''
  const waiting = new Set<() => void>()
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', chunk => {
      seen += chunk
      for (const look of waiting) look()
    })
  if (input !== undefined) child.stdin.end(input)
  const outputs = Promise.all([buffer(child.stdout), buffer(child.stderr)])
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code, signal) =>
      outputs.then(
        ([stdout, stderr]) => resolve({ code, signal, stdout: `${stdout}`, stderr: `${stderr}` }),
        reject
      )
    )
  })
  const says = (text: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (!seen.includes(text)) return
        waiting.delete(look)
        resolve()
      }
      waiting.add(look)
      look()
      ended.then(() => reject(new Error(`ended without "${text}", after: ${seen}`)), reject)
    })
  return { process: child, ended, output: () => seen, says }
}

/** Runs `svcd` of a tree to its end. */
export function svcd(tree: string, args: readonly string[], input?: string | Uint8Array): Promise<Ended> {
  return start(join(tree, 'bin', 'svcd'), args, { input: input ?? '' }).ended
}

/** Starts a program on a terminal of its own; both its streams are the terminal. */
export function onTerminal(command: string, ...args: readonly string[]) {
  const spawnHere = 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))'
  const running = start('python3', ['-c', spawnHere, command, ...args])
  const type = (keys: string | Uint8Array) => running.process.stdin?.write(keys)
  return { ...running, type }
}
