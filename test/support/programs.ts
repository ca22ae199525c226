import { execFile } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** What test/compile.mjs has made of the checkout: the code of lib/ and test/, links to everything else. */
export const compiled = join(import.meta.dirname, '../..')

/** The checkout this test runs in. */
export const checkout = join(compiled, '../..')

// Debian keeps dhcpd, ip and debugfs where an ordinary user's PATH does not look.
const searchPath = `${process.env.PATH ?? ''}${delimiter}/usr/sbin${delimiter}/sbin`

/** The environment of every program here: the system directories are on its PATH. */
export const programEnv = (): NodeJS.ProcessEnv => ({ ...process.env, PATH: searchPath, LC_ALL: 'C.UTF-8' })

/**
 * Node as a command, without the loader that the test runner puts into the environment of all its children.
 */
export const node: readonly string[] = ['env', '--unset=NODE_OPTIONS', process.execPath]

const isThere = (path: string): boolean => {
  try {
    accessSync(path, constants.R_OK)
    return true
  } catch {
    return false
  }
}

/** The path of a program on the search path, undefined where there is none. */
export const locate = (program: string): string | undefined =>
  searchPath
    .split(delimiter)
    .map(directory => join(directory, program))
    .find(isThere)

/**
 * Checks that programs (by name) and files (by absolute path) are there.
 * @throws Error naming every one that is missing and the command that installs them.
 */
export function requirePrograms(...needed: string[]): void {
  const missing = needed.filter(name => !(name.startsWith('/') ? isThere(name) : locate(name)))
  if (missing.length > 0) throw new Error(`${missing.join(', ')} missing; type, as root: sh test/packages.sh`)
}

/** @throws Error unless the process is root: taps and network namespaces need it. */
export function requireRoot(): void {
  if (process.getuid?.() !== 0)
    throw new Error(
      'the machine test makes network namespaces and taps, which needs root; type: sudo make test'
    )
}

/**
 * Runs a program to its end and gives its standard output; after `timeout` milliseconds (2 minutes) it is
 * killed.
 * @throws Error holding the command line and what it wrote to standard error.
 */
export async function output(
  program: string,
  args: readonly string[],
  options: { cwd?: string; timeout?: number } = {}
): Promise<string> {
  try {
    const done = await run(program, [...args], {
      env: programEnv(),
      timeout: 120_000,
      killSignal: 'SIGKILL',
      maxBuffer: 64 << 20,
      ...options
    })
    return done.stdout
  } catch (error) {
    const { stderr, message } = error as { stderr?: string; message: string }
    throw new Error(`${program} ${args.join(' ')}: ${stderr?.trim() || message}`)
  }
}
