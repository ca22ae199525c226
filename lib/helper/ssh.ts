import { randomBytes } from 'node:crypto'
import { chmod, type FileHandle, mkdtemp, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fillBuffer, fillNew, unlessMissing, withOpen } from '../disk/file.js'
import { FILE, inDirectory, inTrusted, trustedPath } from '../disk/open-directory.js'
import { run } from '../program/program.js'
import { type HelperSettings, type Owner, ownerOf, wordsAs } from './directories.js'
import { KEY, KNOWN, Remote } from './transfer/remote.js'

/** Bytes of a key or of a node's host keys. */
const LONGEST = 64 * 1024
const limits = { timeLimitMs: 30_000 }

/**
 * Runs a grab or push with an ssh that svcd cannot influence: as another user, with copies of the keys in a
 * temporary directory of root. A new host key is stored in svcd's state. If root gives the orders, ssh runs
 * as root. Throws Error if that user is missing, root or svcd, or a key is unreadable.
 */
export async function withRemote<T>(
  places: HelperSettings,
  node: string,
  work: (by: Remote) => Promise<T>
): Promise<T> {
  const { state, sshKey, sshPort, byRoot, sshUnit } = places
  if (byRoot) return work(new Remote({ state, sshKey, sshPort }))
  const svcd = await ownerOf(places)
  const { uid, gid } = await userOf(places, svcd)
  const directory = await mkdtemp(join(process.env.RUNTIME_DIRECTORY ?? tmpdir(), 'svcd-ssh-'))
  const unit = `${sshUnit}-${randomBytes(8).toString('hex')}`
  let last = 0
  const asService = () => [
    ...['systemd-run', '--quiet', '--collect', '--wait', '--pipe', `--uid=${uid}`, `--gid=${gid}`],
    ...['-p', `WorkingDirectory=${directory}`, `--unit=${unit}-${++last}.service`, '--']
  ]
  // Links in the state are not followed: svcd could lead root anywhere.
  const trusted = await trustedPath(state)
  const inState = (path: string, name: string) => inDirectory(trusted, path, ({ at }) => open(at(name), FILE))
  const copy = (bytes: Buffer, name: string) =>
    fillNew(join(directory, name), file => file.writeFile(bytes), { uid, gid })
  try {
    const as = { directory, words: sshUnit ? asService : () => wordsAs({ uid, gid }) }
    const remote = new Remote({ state, sshKey, sshPort, as })
    const named = async () => {
      const file = await trustedPath(sshKey)
      return inTrusted(dirname(file), ({ at }) => open(at(basename(file)), FILE))
    }
    const key = (sshKey === '' ? inState('ssh', KEY) : named()).catch(error => {
      throw new Error(`the ssh key ${remote.key} cannot be read: ${error.code ?? error.message}`)
    })
    await copy(await small(key, `[ssh] key ${remote.key}`, svcd.uid), KEY)
    const known = join(remote.knownHosts, node)
    const before = await unlessMissing(small(inState('ssh/known_hosts', node), known, svcd.uid), undefined)
    await copy(before ?? Buffer.alloc(0), KNOWN)
    // The directory belongs to root, so that ssh cannot replace names in it.
    await chmod(directory, 0o711)
    // A new host key is stored even if the work fails, so that the next try accepts no other key.
    const keep = async () => {
      const after = await small(open(join(directory, KNOWN), FILE), known, uid)
      if (before || after.length === 0) return
      const fill = (file: FileHandle) => file.writeFile(after)
      await inDirectory(trusted, 'ssh/known_hosts', ({ at }) => fillNew(at(node), fill, svcd)).catch(
        error => {
          // Another ssh of svcd has stored one meanwhile.
          if (error.code !== 'EEXIST') throw error
        }
      )
    }
    const result = await work(remote).catch(async error => {
      await keep().catch(() => {})
      throw error
    })
    await keep()
    return result
  } finally {
    if (sshUnit) await run('systemctl', ['stop', `${unit}-*.service`], limits).catch(() => {})
    await rm(directory, { recursive: true, force: true })
  }
}

async function userOf({ sshUser = 'svcd-ssh', files }: HelperSettings, svcd: Owner): Promise<Owner> {
  const { stdout } = await run('getent', ['passwd', '--', sshUser], limits).catch(() => {
    throw new Error(`there is no user ${sshUser}, as whom ssh runs; type: systemd-sysusers`)
  })
  const [, , uid = 0, gid = 0] = stdout.split(':').map(Number)
  if (uid !== 0 && uid !== svcd.uid) return { uid, gid }
  throw new Error(
    `ssh must not run as user ${sshUser}, who is ` +
      `${uid === 0 ? 'root' : `the owner of [paths] files ${files}`}: give ` +
      'svcd-helper.service another one: Environment=SVCD_SSH_USER=svcd-ssh'
  )
}

/** Reads and closes a file. Throws Error naming `name` if it is large or has another owner. */
const small = (opened: Promise<FileHandle>, name: string, owner: number): Promise<Buffer> =>
  withOpen(opened, async file => {
    const bytes = Buffer.alloc(LONGEST + 1)
    const stat = await file.stat()
    const size = stat.isFile() && stat.uid === owner ? await fillBuffer(file, bytes) : bytes.length
    if (size > LONGEST)
      throw new Error(
        `${name} must be a regular file of 64 KiB at most that belongs to user ${owner}: type chown ` +
          `${owner} FILE, or remove it`
      )
    return bytes.subarray(0, size)
  })
