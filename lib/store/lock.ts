import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { open, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import lockfile from 'proper-lockfile'
import { readRegularFile } from '../disk/regular-file.js'
import { LockedError } from './errors.js'

const STALE_MS = 10_000
const REFRESH_MS = 2000
const GUARD_SECONDS = '10'

/** The state directory, held by this process. */
export interface Lock {
  /** Why the directory is no longer ours, '' while it is. */
  readonly lost: string
  release(): Promise<void>
}

interface Holder {
  readonly pid: number
  /** Clock ticks from boot to the process's start: tells a reused pid. */
  readonly startTime: string
  readonly bootId: string
  /** Device and inode of the directory that is held. A copy has others, and nobody holds it. */
  readonly directory: string
}

/**
 * Takes the lock of a state directory, which one daemon has at a time. The lock of a dead process is removed at once; a
 * process that is stopped by a signal is alive. Throws a LockedError with the process that has the lock. `onLost` is
 * called when the lock disappears, or another process takes it, while it is held.
 */
export async function acquireLock(directory: string, onLost: (reason: string) => void): Promise<Lock> {
  // There are three steps: look at the holder, remove its lock, take the lock. Two starts must not mix them.
  const endGuard = await guard(directory)
  try {
    const lockfilePath = join(directory, 'lock')
    const holderFile = join(directory, 'holder.json')
    if (existsSync(lockfilePath)) {
      const holder = await readHolder(holderFile)
      if (holder !== undefined && (await holds(holder, directory)))
        throw new LockedError(directory, holder.pid)
      await rm(lockfilePath, { recursive: true, force: true })
    }
    // Before the lock, so that no lock is ever without its holder's name.
    await writeFile(holderFile, `${JSON.stringify(await thisProcess(directory))}\n`, { mode: 0o600 })
    let lost = ''
    const unlock = await lockfile.lock(directory, {
      lockfilePath,
      stale: STALE_MS,
      update: REFRESH_MS,
      onCompromised: error => {
        lost = `the lock of the state directory was lost: ${error.message}`
        onLost(lost)
      }
    })
    return {
      get lost() {
        return lost
      },
      async release() {
        if (lost === '') await unlock()
      }
    }
  } finally {
    await endGuard()
  }
}

/**
 * Waits for the right to take the lock: a kernel lock on the directory itself. It ends with this process, however
 * that ends, so it cannot go stale. flock(1) takes it on our open file and leaves it there.
 */
async function guard(directory: string): Promise<() => Promise<void>> {
  const handle = await open(directory, 'r')
  try {
    const flock = spawn('flock', ['-w', GUARD_SECONDS, '3'], {
      stdio: ['ignore', 'ignore', 'ignore', handle.fd]
    })
    const [code] = await once(flock, 'exit')
    if (code !== 0) throw new Error(`${directory}: another svcd is starting there and does not finish`)
  } catch (error) {
    await handle.close()
    const missing = error instanceof Error && 'code' in error && error.code === 'ENOENT'
    throw missing ? new Error('the program flock (package util-linux) is missing') : error
  }
  return () => handle.close()
}

async function readHolder(file: string): Promise<Holder | undefined> {
  try {
    const { pid, startTime, bootId, directory = '' } = JSON.parse((await readRegularFile(file)).toString())
    const texts = { startTime: String(startTime), bootId: String(bootId), directory: String(directory) }
    return { pid: Number(pid), ...texts }
  } catch {
    return undefined // it was killed, or the power went, while it wrote its name: it never got to the lock
  }
}

/** Whether that process is alive, and holds this very directory. */
async function holds(holder: Holder, directory: string): Promise<boolean> {
  if (holder.bootId !== (await bootId()) || holder.startTime !== (await startTimeOf(holder.pid))) return false
  // An earlier version did not write its directory down.
  return holder.directory === '' || holder.directory === (await identityOf(directory))
}

async function thisProcess(directory: string): Promise<Holder> {
  return {
    pid: process.pid,
    startTime: await startTimeOf(process.pid),
    bootId: await bootId(),
    directory: await identityOf(directory)
  }
}

/** The same by every path that leads to the directory: through links and bind mounts too. */
async function identityOf(directory: string): Promise<string> {
  const { dev, ino } = await stat(directory, { bigint: true })
  return `${dev}:${ino}`
}

async function bootId(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim()
}

/** Field 22 of /proc/<pid>/stat; '' when there is no such process, or only its zombie. */
async function startTimeOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  // The second field, the program's name in parentheses, may hold spaces and parentheses itself.
  const [state = '', ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return 'ZX'.includes(state) ? '' : (rest[18] ?? '')
}
