import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { open } from 'node:fs/promises'

/**
 * Holds a directory, so that nobody else holds it meanwhile: that of the state, so that no daemon starts on it, or that of an
 * image, for a pack or a shell (rules 9.13). It writes nothing. Gives what ends it; undefined where somebody has it.
 */
export async function holdDirectory(directory: string): Promise<(() => Promise<void>) | undefined> {
  const handle = await open(directory, 'r')
  if (await flock(handle.fd)) return () => handle.close()
  await handle.close()
  return undefined
}

/** Whether the lock is ours now. flock(1) takes it on our open file and leaves it there. */
export async function flock(fd: number): Promise<boolean> {
  try {
    const program = spawn('flock', ['--nonblock', '3'], { stdio: ['ignore', 'ignore', 'ignore', fd] })
    const [code] = await once(program, 'exit')
    return code === 0
  } catch (error) {
    const missing = error instanceof Error && 'code' in error && error.code === 'ENOENT'
    throw missing ? new Error('the program flock (package util-linux) is missing') : error
  }
}
