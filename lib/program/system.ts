import { open, stat } from 'node:fs/promises'
import { run } from './program.js'

const timeLimitMs = 60_000

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
  const { status } = await run('flock', ['--nonblock', '1'], { output: fd, ok: [0, 1], timeLimitMs })
  return status === 0
}

/** Returns a user's name, or the number if there is none. */
export async function nameOf(uid: number): Promise<string> {
  const named = await run('id', ['-nu', '--', `${uid}`], { timeLimitMs }).catch(() => undefined)
  return named?.stdout.trim() || `${uid}`
}

/** Returns the prefix with which root runs a command as the owner of a directory; '' if root owns it. */
export async function runuserPrefix(directory: string): Promise<string> {
  const { uid } = await stat(directory)
  return uid === 0 ? '' : `runuser -u ${await nameOf(uid)} -- `
}
