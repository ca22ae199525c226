import { run } from '../program/program.js'
import type { Course } from './course.js'

/** Whether this process can give a file to any user. */
const isRoot = () => process.getuid?.() === 0

/**
 * Throws Error where a copy of a tree would lose owners: this process is not root, and the tree has a file of another user,
 * or of a group that it is not in. cp says nothing of that.
 */
export async function checkOwners(tree: string, course: Required<Course>): Promise<void> {
  if (isRoot()) return
  const groups = new Set([process.getgid?.(), ...(process.getgroups?.() ?? [])])
  const ours = [...groups].flatMap(group => ['!', '-gid', `${group}`])
  const others = ['(', '!', '-uid', `${process.getuid?.()}`, '-o', '(', ...ours, ')', ')']
  const { signal, timeLimitMs } = course
  const words = [tree, '-xdev', ...others, '-print', '-quit']
  const { stdout } = await run('find', words, { signal, timeLimitMs })
  if (stdout !== '')
    throw new Error(`${stdout.trimEnd()} belongs to another user or group: to keep that is not permitted`)
}

/** Throws Error where what is taken from a node would lose its owners: this process is not root. */
export function checkOwnersOfNode(node: string): void {
  if (!isRoot())
    throw new Error(`the files of node ${node} belong to its users: to keep that is not permitted`)
}
