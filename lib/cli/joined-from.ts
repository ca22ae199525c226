import { spawn } from 'node:child_process'
import { isIPv6 } from 'node:net'
import { join } from 'node:path'
import { unlessMissing } from '../disk/missing.js'
import { readRegularFile } from '../disk/regular-file.js'
import { UsageError } from './usage.js'

/** Without these svcd does not start beside others. */
export const KEYS = ['token.key', 'secret.key'] as const
/** It is there while the ini names no users. */
export const PASSWORD = 'admin-password'

const KEY_BYTES = 32
const MOST_PASSWORD = 1000
const MOST_OUTPUT = 64 * 1024

/** What another controller has. */
export interface Given {
  /** In words, for messages. */
  readonly where: string
  readonly files: ReadonlyMap<string, Buffer>
  /** How far its clock is ahead of this one's; undefined where that is not known. */
  readonly aheadMs: number | undefined
}

/** Reads the files from a directory of this machine: a medium that somebody has carried here. Throws Error. */
export async function fromDirectory(directory: string): Promise<Given> {
  const files = new Map<string, Buffer>()
  for (const name of [...KEYS, PASSWORD]) {
    const bytes = await unlessMissing(readRegularFile(join(directory, name)), undefined)
    if (bytes) files.set(name, bytes)
  }
  return checked({ where: directory, files, aheadMs: undefined })
}

const CLOSED = 41
const UNREADABLE = 42
const LINK = 43
const SSH_FAILED = 255

/**
 * What runs on the other side, in any shell: the directory comes by standard input, so that nothing has to be quoted. The files come as
 * base64: a terminal that is in between cannot spoil them, and no byte of them is in a list of processes.
 */
const SCRIPT =
  `sh -c 'IFS= read -r directory; cd "$directory" || exit ${CLOSED}; date +%s; ` +
  `for name in ${[...KEYS, PASSWORD].join(' ')}; do test -e "$name" || continue; ` +
  `test -h "$name" && exit ${LINK}; printf "%s " "$name"; base64 -w 0 <"$name" || exit ${UNREADABLE}; echo; done'`

/** How to read the files of the controller at `[USER@]HOST[:DIRECTORY]`, by ssh; `usual`: where they are there. Throws UsageError. */
export function overSsh(source: string, usual: string): () => Promise<Given> {
  const { user, host, directory = usual } = placeIn(source)
  return () => asked(user === undefined ? host : `${user}@${host}`, directory)
}

/** Throws UsageError for what is no place: nothing of it can be an option, or mean something to a shell. */
function placeIn(source: string): { user: string | undefined; host: string; directory: string | undefined } {
  const parts =
    /^(?:([A-Za-z0-9_][\w.-]*)@)?(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?))(?::(\/[^\0\n]*))?$/.exec(
      source
    )
  const [, user, bracketed, name, directory] = parts ?? []
  const host = bracketed ?? name
  if (host === undefined || (bracketed !== undefined && !isIPv6(bracketed)))
    throw new UsageError(
      'join takes [USER@]HOST[:/STATE-DIRECTORY] of a controller, or a directory with its files (svcd join /media/keys)'
    )
  return { user, host, directory }
}

async function asked(host: string, directory: string): Promise<Given> {
  const where = `${host}:${directory}`
  const options = [
    '-T',
    '-o',
    'ConnectTimeout=10',
    '-o',
    'ServerAliveInterval=5',
    '-o',
    'ClearAllForwardings=yes'
  ]
  // What it asks for (a password, whether a host key is right) it asks on the terminal; what it has to say, it says itself.
  const child = spawn('ssh', [...options, '--', host, SCRIPT], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', ({ message }) => reject(new Error(`ssh cannot be started: ${message}`)))
    child.once('close', resolve)
  })
  child.stdin.on('error', () => {}) // it has ended, and says why
  child.stdin.end(`${directory}\n`)
  let said = ''
  let firstMs: number | undefined
  child.stdout.setEncoding('latin1').on('data', (text: string) => {
    // The time is told first, and at once: what was typed before it does not count.
    firstMs ??= Date.now()
    said += text
    if (said.length > MOST_OUTPUT) child.kill()
  })
  const code = await ended
  if (code === CLOSED)
    throw new Error(`${where}: there is no such directory, or ${host} may not enter it; ${AS_ROOT}`)
  if (code === UNREADABLE) throw new Error(`${where}: the keys may not be read; ${AS_ROOT}`)
  // Root would read what a daemon without its rights points at.
  if (code === LINK)
    throw new Error(
      `${where}: one of ${[...KEYS, PASSWORD].join(', ')} is a link, and is not followed. ${BY_HAND}`
    )
  if (code === SSH_FAILED)
    throw new Error(`${host} is not reached by ssh; its own words are above. ${BY_HAND}`)
  const [time = '', ...lines] = said.split('\n')
  if (code !== 0 || firstMs === undefined || !/^\d{1,12}$/.test(time))
    throw new Error(`${where} does not answer as a machine with svcd does (status ${code}); ${BY_HAND}`)
  const files = new Map(
    lines.flatMap(line => {
      const [name = '', base64 = ''] = line.split(' ')
      return line === '' ? [] : [[name, Buffer.from(base64, 'base64')] as const]
    })
  )
  return checked({ where, files, aheadMs: Number(time) * 1000 - firstMs })
}

const AS_ROOT = 'name root, or the user that has them: svcd join root@HOST:/STATE-DIRECTORY'
const BY_HAND = `Or carry ${[...KEYS, PASSWORD].join(', ')} here by hand, and type: svcd join /DIRECTORY`

/** Throws Error for keys that are missing, and for what is none. */
function checked(given: Given): Given {
  const { where, files } = given
  for (const name of KEYS) {
    const key = files.get(name)
    if (!key)
      throw new Error(
        `${where}: there is no ${name}: that is no state directory of a controller that has been started`
      )
    if (key.length !== KEY_BYTES || key.every(byte => byte === key[0]))
      throw new Error(`${where}: ${name} is damaged; name another controller`)
  }
  const password = files.get(PASSWORD)
  if (password && (password.length > MOST_PASSWORD || !/^[\x21-\x7e]+\r?\n?$/.test(password.toString())))
    throw new Error(`${where}: ${PASSWORD} holds no password; name another controller`)
  return given
}
