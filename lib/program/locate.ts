import { access, constants, stat } from 'node:fs/promises'
import { delimiter, isAbsolute, join, resolve } from 'node:path'

/** Where programs are looked for: PATH, and the system directories that an ordinary user's PATH lacks. */
export function searchPath(): string {
  const own = process.env.PATH || ['/usr/local/bin', '/usr/bin', '/bin'].join(delimiter)
  return [own, '/usr/local/sbin', '/usr/sbin', '/sbin'].join(delimiter)
}

/**
 * The absolute path of a program on the search path. A name with a slash is a path itself. Undefined: there is no
 * such file, or we may not run it.
 */
export async function locate(program: string, path: string = searchPath()): Promise<string | undefined> {
  if (program === '' || program.includes('\0')) return undefined
  if (program.includes('/')) return (await isProgram(program)) ? resolve(program) : undefined
  for (const directory of path.split(delimiter).filter(isAbsolute)) {
    const file = join(directory, program)
    if (await isProgram(file)) return file
  }
  return undefined
}

async function isProgram(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch {
    return false
  }
}
