import { ProgramError } from '../../program/program.js'
import type { Remote, Target } from './remote.js'

const LOST = 'the connection was lost'

/** What ssh says of itself: the words it uses, and the sentence for the admin. */
const sshFailures: readonly (readonly [RegExp, (remote: Remote, target: Target) => string])[] = [
  [
    /REMOTE HOST IDENTIFICATION HAS CHANGED|^Host key verification failed|^No .* host key is known/m,
    ({ knownHosts }, { node, address }) =>
      `node ${node} shows another host key at ${address} than before: if it was installed anew, remove ` +
      `${knownHosts}/${node}; if not, another machine answers there`
  ],
  [
    /^[^ ]+: Permission denied \(/m,
    ({ publicKey }, { node, address }) =>
      `node ${node} (${address}) does not accept svcd's ssh key: the line in ${publicKey} belongs into its ` +
      '/root/.ssh/authorized_keys'
  ],
  [
    /^ssh: .*Connection refused/m,
    ({ port }, { node, address }) =>
      `node ${node} refuses connections at ${address} port ${port}: no ssh server runs there`
  ],
  [
    /^ssh: .*(timed out|No route to host|unreachable|Host is down)|^Connection timed out/m,
    ({ port }, { node, address }) => `node ${node} does not answer at ${address} port ${port}`
  ],
  [/^Connection (to .* )?(closed|reset)|^client_loop: /m, (_, { node }) => `node ${node}: ${LOST}`]
]

/** What rsync's exit statuses mean (its manual, EXIT VALUES; 255 is ssh's); others speak through their last words. */
const rsyncFailures: Readonly<Record<number, string>> = {
  10: LOST,
  11: 'a file could not be read or written',
  12: LOST,
  20: 'rsync was stopped',
  22: 'rsync found no memory',
  23: 'not everything could be carried over',
  24: 'files vanished while they were read',
  30: 'nothing was sent for too long',
  255: LOST
}

/** ssh's own exit status, and rsync's when ssh ended: what ssh wrote is the reason then. */
const SSH_FAILED = 255
const STREAM_BROKE = 12
const NOT_FOUND = 127

/**
 * One sentence with the node's name for a failure of ssh or rsync to it: why, and what to do. `first`: the first
 * line that rsync or ssh complained with, which is the cause where several follow. What was stopped, or is no
 * failure of a program, comes back as it is.
 */
export function remoteFailure(error: unknown, remote: Remote, target: Target, first?: string): unknown {
  if (!(error instanceof ProgramError) || error.why === 'aborted') return error
  const { node } = target
  const sentence = (text: string) => new Error(text, { cause: error })
  if (error.why === 'missing') return sentence(`${error.program} is not installed on the controller`)
  if (error.why === 'time limit') return sentence(`node ${node}: ${error.message}`)
  const { status, stderr } = error
  if (status === NOT_FOUND || /^[^\n]*rsync: (command )?not found$/m.test(stderr))
    return sentence(`node ${node} has no rsync: it has to be installed there`)
  if (status === SSH_FAILED || status === STREAM_BROKE)
    for (const [words, say] of sshFailures) if (words.test(stderr)) return sentence(say(remote, target))
  const what = (error.program === 'rsync' && status !== undefined && rsyncFailures[status]) || undefined
  if (what === undefined && first === undefined) return sentence(`node ${node}: ${error.message}`)
  return sentence(`node ${node}: ${[what, first].filter(Boolean).join(': ')}`)
}
