import { setTimeout as delay } from 'node:timers/promises'
import { withFileName } from './file.js'

/** A lock that was not renewed for this long is taken over: its holder was killed. */
const STALE_MS = 5000
/** Longer than a killed holder's lock lasts; proper-lockfile may date a new lock a second ahead. */
const WAIT_MS = STALE_MS + 2000
const RETRY_MS = 100

/**
 * Runs `work` while this process holds a lock, a directory `lock` that proper-lockfile makes and removes.
 * Waits for another holder at most as long as the lock of a killed one lasts (7 s), then throws
 * Error(`busy`). The work must do no harm if the lock is lost, as after a pause of the whole process. Other
 * errors are the system's, and name `file`.
 */
export async function withLock<R>(
  { lock, file, busy }: { readonly lock: string; readonly file: string; readonly busy: string },
  work: () => Promise<R>
): Promise<R> {
  const release = await locked(lock, performance.now() + WAIT_MS).catch((error: NodeJS.ErrnoException) => {
    throw isHeld(error) ? new Error(busy) : withFileName(file, lock, error)
  })
  try {
    return await work()
  } finally {
    // If it cannot be removed, it lasts as long as that of a killed holder.
    await release().catch(() => {})
  }
}

async function locked(lock: string, until: number): Promise<() => Promise<void>> {
  const { default: lockfile } = await import('proper-lockfile')
  for (;;) {
    try {
      // The default throws outside of any promise.
      const onCompromised = () => {}
      return await lockfile.lock(lock, {
        lockfilePath: lock,
        realpath: false,
        stale: STALE_MS,
        onCompromised
      })
    } catch (error) {
      if (!isHeld(error as NodeJS.ErrnoException) || performance.now() > until) throw error
      await delay(RETRY_MS)
    }
  }
}

/**
 * Whether another process holds the lock. Of two that find the lock of a dead holder, the slower one may
 * remove the new lock of the faster one, to which it is missing right after its mkdir.
 */
const isHeld = ({ code, syscall }: NodeJS.ErrnoException) =>
  code === 'ELOCKED' || (code === 'ENOENT' && syscall !== 'mkdir')
