import { isIPv6 } from 'node:net'
import { type Course, run } from '../../program/program.js'
import { type Remote, remoteFailure, type Target } from './remote.js'

/** The node of a transfer, its limits and its reports. */
interface TransferContext extends Target, Course {
  readonly remote: Remote
  readonly dryrun: boolean
  /** Words of a program that runs cp and rsync (`run`). */
  readonly through?: readonly string[] | undefined
  /** 0..1, never backwards. */
  progress(fraction: number): void
  /** Takes `new`, `changed`, `attributes` (the contents are the same) or `deleted`, a blank, the path. */
  change(text: string): unknown
}

export interface CopyRequest extends TransferContext {
  /** `grab_filesystems` and `grab_exclude` of the image. */
  readonly filesystems: readonly string[]
  readonly exclude: readonly string[]
  /** Absolute paths of the node's own files, such as secrets: left out both ways. */
  readonly own?: readonly string[]
}

export interface Transfer extends TransferContext {
  /** Directories as rsync takes them with --relative. They are on the node where `from` is `node`. */
  readonly sources: readonly string[]
  readonly destination: string
  readonly from: 'node' | 'controller'
  readonly rules: readonly string[]
}

const VANISHED = 24
/** rsync gives up after so many seconds without a byte. */
const SILENCE = 300
/** Bounds of the complaints that are passed on, as they come from the node. */
const COMPLAINTS = 20
const LONGEST_COMPLAINT = 500

/**
 * Runs rsync with all attributes of a system's files, and deletes what the source does not hold. Throws Error
 * in one sentence with the node's name, or the ProgramError of an abort.
 */
export async function transfer(request: Transfer): Promise<{ readonly changes: number }> {
  const { remote, node, signal, timeLimitMs, line, through } = request
  const { words, cwd } = await remote.command(node)
  let changes = 0
  let fraction = 0
  let complaints = 0
  let first: string | undefined
  const onLine = (text: string) => {
    const change = readChange(text)
    if (change !== undefined) {
      changes += 1
      return request.change(change)
    }
    const done = readProgress(text)
    if (done === undefined || done <= fraction) return
    fraction = done
    request.progress(fraction)
  }
  const onErrorLine = (text: string) => {
    if (text.trim() === '' || afterthought.test(text)) return
    const complaint = shown(text).slice(0, LONGEST_COMPLAINT)
    first ??= complaint
    complaints += 1
    if (complaints <= COMPLAINTS) return line(complaint)
  }
  try {
    const { status } = await run('rsync', argumentsOf(request, words), {
      ...{ signal, timeLimitMs, cwd, wrapper: through, onLine, onErrorLine },
      ok: request.from === 'node' ? [0, VANISHED] : [0]
    })
    if (status === VANISHED) line(`files vanished on node ${node} while they were read: it is running`)
  } catch (error) {
    throw remoteFailure(error, remote, request, first)
  }
  return { changes }
}

function argumentsOf(request: Transfer, ssh: readonly string[]): string[] {
  const { address, sources, destination, from, rules } = request
  const host = isIPv6(address) ? `[${address}]` : address
  const far = (path: string) => `${host}:${path}`
  return [
    ...['-aHAX', '--numeric-ids', '--sparse', '--delete', '--relative', '--one-file-system'],
    // Paths go to the node's rsync, not through its shell.
    '--protect-args',
    ...['--outbuf=L', '--8-bit-output', '--info=progress2', '--out-format=%i %n', `--timeout=${SILENCE}`],
    ...(request.dryrun ? ['--dry-run'] : []),
    // Deletions come last, so that running programs of the node find their files. Directories above a single
    // pushed file system are no part of it.
    ...(from === 'node' ? [] : ['--delete-delay', '--no-implied-dirs']),
    ...rules.map(rule => `--filter=${rule}`),
    `--rsh=${ssh.join(' ')}`,
    '--',
    ...(from === 'node' ? sources.map(far) : sources),
    from === 'node' ? destination : far(destination)
  ]
}

/** rsync's closing lines after a failure. The cause comes before them, or is the exit status. */
const afterthought = /^rsync (error|warning):|^rsync: connection unexpectedly closed/

const itemised = /^([<>ch.])([fdLDS])([^ ]{9}| {9}) (.+)$/s
const deleted = /^\*deleting {3}(.+)$/s
/** A directory whose time alone differs: its new and removed members are listed themselves. */
const timeAlone = /^\.d\.\.[tT]\.{6} /

/** Reads a line of rsync's `%i %n` as a change, undefined for none. No name ends a line: rsync escapes it. */
export function readChange(line: string): string | undefined {
  const gone = deleted.exec(line)?.[1]
  if (gone !== undefined) return `deleted ${shown(gone)}`
  const [, update, , attributes = '', name = ''] = itemised.exec(line) ?? []
  if (update === undefined || timeAlone.test(line)) return undefined
  if (update === '.' && attributes.trim() === '') return undefined
  const kind = attributes.startsWith('+') ? 'new' : update === '.' ? 'attributes' : 'changed'
  return `${kind} ${shown(name)}`
}

/** Escapes the control characters that rsync leaves: tabs, and those beyond ASCII. */
const shown = (name: string) =>
  name.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, character =>
    [...Buffer.from(character)].map(byte => `\\#${byte.toString(8).padStart(3, '0')}`).join('')
  )

/** Reads the share of finished files from a line of --info=progress2. */
export function readProgress(line: string): number | undefined {
  const [, left, all] = /^\s*[\d,.]+\s+\d+%\s.*\bchk=(\d+)\/(\d+)\)/.exec(line) ?? []
  return left === undefined ? undefined : 1 - Number(left) / Math.max(1, Number(all))
}
