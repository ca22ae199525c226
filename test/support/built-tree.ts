import { copyFileSync, cpSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { transformSync } from 'esbuild'
import { type Ended, start } from './child.js'
import { checkout, compiled } from './programs.js'

/** The code of one module. */
export const compile = (source: string): string =>
  transformSync(source, { format: 'esm', target: 'es2022', loader: 'ts' }).code

/** What a checkout holds beside its sources that the service, or its installation, needs. */
const copied = [
  ...['bin', 'build', 'docs', 'dracut', 'etc', 'initramfs-tools', 'libexec', 'page', 'templates', 'systemd'],
  ...['package.json', 'package-lock.json', 'README.md', 'SECURITY.md', 'CHANGELOG.md', 'changelog', 'LICENSE']
]

/**
 * A built copy of the checkout in an empty directory, made from the sources as they are now (without the type
 * check), so that no test runs against yesterday's dist/.
 */
export function builtTree(directory: string): string {
  cpSync(join(compiled, 'lib'), join(directory, 'dist'), { recursive: true })
  writeFileSync(join(directory, 'dist', 'commit'), 'baked\n')
  for (const name of copied)
    cpSync(join(checkout, name), join(directory, name), { recursive: true, verbatimSymlinks: true })
  symlinkSync(join(checkout, 'node_modules'), join(directory, 'node_modules'))
  return directory
}

/** Puts other code in the place of a module of the tree, which then runs module by module. */
export function replaceModule(tree: string, name: string, code: string): void {
  cpSync(join(compiled, 'plain', 'lib'), join(tree, 'dist'), { recursive: true })
  const file = join(tree, 'dist', name)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, code)
}

/** Puts the programs back that load fast, where no module of the tree is another one any more. */
export function restorePrograms(tree: string): void {
  for (const name of readdirSync(join(compiled, 'plain', 'lib'), { recursive: true, encoding: 'utf8' }))
    if (name.endsWith('.js')) copyFileSync(join(compiled, 'lib', name), join(tree, 'dist', name))
}

/** Runs `svcd` of a tree to its end. */
export function svcd(tree: string, args: readonly string[], input?: string | Uint8Array): Promise<Ended> {
  return start(join(tree, 'bin', 'svcd'), args, { input: input ?? '' }).ended
}

/** Starts a program on a terminal of its own; both its streams are the terminal. */
export function onTerminal(command: string, ...args: readonly string[]) {
  const spawnHere = 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))'
  const running = start('/usr/bin/python3', ['-c', spawnHere, command, ...args])
  const type = (keys: string | Uint8Array) => running.process.stdin?.write(keys)
  return { ...running, type }
}
