import { type FileHandle, open, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { exists, readRegularFile, replaceFile } from '../../disk/file.js'
import { refuseForeignLinks } from '../../disk/open-directory.js'
import { type DiskStep, identityIn } from '../../disk/steps.js'
import { tryFlock } from '../../program/system.js'
import { LockedError } from '../errors.js'

/** A start waits this long for a lock holder that has not written its name yet. */
const PATIENCE_MS = 10_000
const STEP_MS = 50

/** The locked state directory. */
export interface Lock {
  /** Fails if the path now leads to another directory, or cannot be examined; precedes every write. */
  readonly ownershipCheck: DiskStep
  release(): Promise<void>
}

interface LockHolder {
  readonly pid: number
  /** Clock ticks from boot to the start of the process: detects a reused pid. */
  readonly startTime: string
  readonly bootId: string
  /** Device and inode of the locked directory, which a copy does not share. */
  readonly directory: string
}

/**
 * Locks a state directory: one daemon at a time (rules 11.3). The kernel lock on the directory itself ends
 * with this process, however that ends, and no disk failure removes it. Throws LockedError with the holder,
 * and Error for a link in it owned by another user than root and this one.
 */
export async function acquireLock(directory: string): Promise<Lock> {
  const holderFile = join(directory, 'holder.json')
  const handle = await open(directory, 'r')
  try {
    await takeLock(handle, directory, holderFile)
    await refuseForeignLinks(directory)
    const self: LockHolder = {
      pid: process.pid,
      startTime: await startTimeOf(process.pid),
      bootId: await bootId(),
      directory: await identityOf(directory)
    }
    // Replaced, not opened: opening a pipe would wait for its reader.
    await replaceFile(holderFile, `${JSON.stringify(self)}\n`)
    return {
      ownershipCheck: {
        same: directory,
        identity: self.directory,
        otherwise: `${directory} is another directory than at the start: start svcd again`
      },
      release: () => handle.close()
    }
  } catch (error) {
    await handle.close()
    throw error
  }
}

/** Takes the lock on an open directory; throws the LockedError. */
async function takeLock({ fd }: FileHandle, directory: string, holderFile: string): Promise<void> {
  for (const giveUp = performance.now() + PATIENCE_MS; ; await sleep(STEP_MS)) {
    const isTaken = await tryFlock(fd)
    const earlier = join(directory, 'lock')
    if (isTaken && !(await exists(earlier))) return
    const holder = await readHolder(holderFile)
    if (holder && (await isHeldBy(holder, directory))) throw new LockedError(directory, holder.pid)
    // Earlier versions of svcd created this directory as their lock.
    if (isTaken) return rm(earlier, { recursive: true, force: true })
    // The holder has not written its name yet.
    if (performance.now() > giveUp)
      throw new Error(`${directory}: another process has locked it and does not say which it is`)
  }
}

async function readHolder(file: string): Promise<LockHolder | undefined> {
  try {
    const { pid, startTime, bootId, directory = '' } = JSON.parse((await readRegularFile(file)).toString())
    const texts = { startTime: String(startTime), bootId: String(bootId), directory: String(directory) }
    return { pid: Number(pid), ...texts }
  } catch {
    return undefined // A partial text: its writer was killed before it got the lock.
  }
}

/** Whether that process is alive and holds this very directory. */
async function isHeldBy(holder: LockHolder, directory: string): Promise<boolean> {
  if (holder.bootId !== (await bootId()) || holder.startTime !== (await startTimeOf(holder.pid))) return false
  // Earlier versions did not record the directory.
  return holder.directory === '' || holder.directory === (await identityOf(directory))
}

const identityOf = async (directory: string) => identityIn(await stat(directory, { bigint: true }))

const bootId = async () => (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim()

/** Field 22 of /proc/<pid>/stat; '' if there is no such process, or only its zombie. */
async function startTimeOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  // The program's name in parentheses may itself contain spaces and parentheses.
  const [state = '', ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return 'ZX'.includes(state) ? '' : (rest[18] ?? '')
}
