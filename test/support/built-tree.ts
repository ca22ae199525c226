import { cpSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { buildSync, transformSync } from 'esbuild'
import { type Ended, start } from './child.js'
import { checkout } from './programs.js'

const options = { format: 'esm', target: 'es2022' } as const

/** The code of one module. */
export const compile = (source: string): string => transformSync(source, { ...options, loader: 'ts' }).code

/**
 * Compiles programs of the checkout, each with all that it imports, to the same paths below `directory`, so that a test
 * can start a process of its own with them without the test runner's loader, which takes a second.
 */
export function compilePrograms(directory: string, ...programs: string[]): void {
  buildSync({
    ...options,
    entryPoints: programs.map(name => join(checkout, name)),
    outbase: checkout,
    outdir: directory,
    bundle: true,
    platform: 'node',
    packages: 'external'
  })
}

let modules: [string, string][] | undefined

/** Name and code of every module, compiled once per test file. */
function compiled(): [string, string][] {
  const lib = join(checkout, 'lib')
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
  ...['package.json', 'package-lock.json', 'README.md', 'SECURITY.md', 'CHANGELOG.md', 'LICENSE']
]

/**
 * A built copy of the checkout in an empty directory, made from the sources as they are now (without the type
 * check), so that no test runs against yesterday's dist/.
 */
export function builtTree(directory: string): string {
  for (const [name, code] of compiled()) replaceModule(directory, name, code)
  writeFileSync(join(directory, 'dist', 'commit'), 'baked\n')
  for (const name of copied) cpSync(join(checkout, name), join(directory, name), { recursive: true })
  symlinkSync(join(checkout, 'node_modules'), join(directory, 'node_modules'))
  return directory
}

/** Puts other code in the place of a module of the tree. */
export function replaceModule(tree: string, name: string, code: string): void {
  const file = join(tree, 'dist', name)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, code)
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
