import { isIP } from 'node:net'
import { mountPoints } from '../../disk/open-directory.js'
import { locate } from '../../program/program.js'
import type { Remote, Target } from './remote.js'

const QUICK_MS = 15_000

/** Checks in seconds what a grab or a push needs here and there. Throws Error with the reason (rules 2.4). */
export async function checkReachable(
  remote: Remote,
  node: string,
  address: string | undefined,
  signal: AbortSignal
): Promise<void> {
  if (address === undefined || isIP(address) === 0)
    throw new Error(`node ${node} has no address to be reached at`)
  await checkPrograms()
  await remote.run({ node, address }, ['rsync', '--version'], { signal, timeLimitMs: QUICK_MS })
}

/** Throws Error naming a missing program of the controller that a grab or a push needs. */
export async function checkPrograms(): Promise<void> {
  for (const program of ['rsync', 'ssh', 'ssh-keygen'])
    if ((await locate(program)) === undefined)
      throw new Error(`${program} is not installed on the controller`)
}

/** Returns the mount points of a node. Throws Error in one sentence with its name. */
export async function nodeMounts(remote: Remote, target: Target, signal: AbortSignal): Promise<string[]> {
  const limits = { signal, timeLimitMs: 4 * QUICK_MS }
  return [...new Set(mountPoints(await remote.run(target, ['cat', '/proc/self/mountinfo'], limits)))]
}
