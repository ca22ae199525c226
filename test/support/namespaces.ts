import { readdir } from 'node:fs/promises'
import { output, requirePrograms, requireRoot } from './programs.js'

const ip = (...words: readonly string[]) => output('ip', words)

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

/** Makes a network namespace with its loopback up, and gives its name; no other run has it. */
export async function addNamespace(what: string): Promise<string> {
  requireRoot()
  requirePrograms('ip')
  await sweep()
  const name = `svcd-${process.pid}-${what}`
  await ip('netns', 'add', name)
  await ip('-n', name, 'link', 'set', 'lo', 'up')
  return name
}

/**
 * Ends the programs of a namespace, which would keep it, and removes it. A run that was killed may leave a
 * name without a namespace.
 */
export async function removeNamespace(name: string): Promise<void> {
  for (const pid of (await ip('netns', 'pids', name).catch(() => '')).split('\n').filter(Boolean))
    try {
      process.kill(Number(pid), 'SIGKILL')
    } catch {
      // It ended by itself meanwhile.
    }
  await ip('netns', 'delete', name)
}

/** Removes what runs that were killed have left. */
async function sweep(): Promise<void> {
  for (const name of await readdir('/run/netns').catch(() => [])) {
    const owner = Number(name.match(/^svcd-(\d+)-/)?.[1])
    // Another run may be sweeping too: what it took is gone.
    if (owner && !isAlive(owner)) await removeNamespace(name).catch(() => {})
  }
}
