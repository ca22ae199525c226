import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { locate } from './locate.js'

/** By the path of a setpriv: whether it knows --pdeathsig. Busybox's does not. */
const able = new Map<string, Promise<boolean>>()

/**
 * The command that runs `file` so that the kernel kills it when this process ends, however that happens. Without
 * a setpriv that can do this, the command itself. What `file` starts in its turn is not covered.
 */
export async function boundToUs(file: string, args: readonly string[]): Promise<[string, string[]]> {
  const setpriv = await locate('setpriv')
  if (setpriv === undefined) return [file, [...args]]
  const can = able.get(setpriv) ?? canBind(setpriv)
  able.set(setpriv, can)
  return (await can) ? [setpriv, ['--pdeathsig', 'KILL', '--', file, ...args]] : [file, [...args]]
}

async function canBind(setpriv: string): Promise<boolean> {
  const child = spawn(setpriv, ['--pdeathsig', 'KILL', '--', setpriv, '--version'], {
    env: {},
    stdio: 'ignore'
  })
  const [status] = await once(child, 'exit').catch(() => [undefined])
  return status === 0
}
