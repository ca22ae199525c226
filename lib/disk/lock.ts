import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { open } from 'node:fs/promises'

/**
 * Locks a directory exclusively: a state, so that no daemon starts on it, or an image, for a pack or a shell
 * (rules 9.13). Writes nothing. Returns the release; undefined if it is locked.
 */
export async function tryLockDirectory(directory: string): Promise<(() => Promise<void>) | undefined> {
  const handle = await open(directory, 'r')
  if (await tryFlock(handle.fd)) return () => handle.close()
  await handle.close()
  return undefined
}

/** Tries to take the lock. flock(1) takes it on our open file, which keeps it. */
export async function tryFlock(fd: number): Promise<boolean> {
  try {
    const program = spawn('flock', ['--nonblock', '3'], { stdio: ['ignore', 'ignore', 'ignore', fd] })
    const [code] = await once(program, 'exit')
    return code === 0
  } catch (error) {
    const missing = error instanceof Error && 'code' in error && error.code === 'ENOENT'
    throw missing ? new Error('the program flock (package util-linux) is missing') : error
  }
}
