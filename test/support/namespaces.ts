import { type ChildProcess, spawn } from 'node:child_process'
import { output, requirePrograms, requireRoot } from './programs.js'

/** A process in each namespace: it stays although another mount namespace unlinks its name, which ends the mount. */
const holders = new Map<string, ChildProcess>()

const ip = (...words: readonly string[]) => output('ip', words)

/** Makes a network namespace with its loopback up, and gives its name; no other run has it. */
export async function addNamespace(what: string): Promise<string> {
  requireRoot()
  requirePrograms('ip')
  const name = `svcd-${process.pid}-${what}`
  // A run with the same process id may have been killed. Names of others are never touched: their owner may be
  // alive where this process does not see it, and the namespace would end under it.
  await removeNamespace(name).catch(() => {})
  await ip('netns', 'add', name)
  await ip('-n', name, 'link', 'set', 'lo', 'up')
  const hold = ['--pdeathsig', 'KILL', 'ip', 'netns', 'exec', name, 'sleep', 'infinity']
  const holder = spawn('setpriv', hold, { stdio: 'ignore' })
  holder.unref()
  holders.set(name, holder)
  return name
}

/**
 * Ends the programs of a namespace, which would keep it, and removes it. A run that was killed may leave a
 * name without a namespace.
 */
export async function removeNamespace(name: string): Promise<void> {
  holders.get(name)?.kill('SIGKILL')
  holders.delete(name)
  for (const pid of (await ip('netns', 'pids', name).catch(() => '')).split('\n').filter(Boolean))
    try {
      process.kill(Number(pid), 'SIGKILL')
    } catch {
      // It ended by itself meanwhile.
    }
  await ip('netns', 'delete', name)
}
