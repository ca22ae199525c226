import { mkdir, mkdtemp, rename, rm, stat, symlink, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { syncDirectory, syncFile, unlessMissing } from '../../disk/file.js'
import { type Limits, ProgramError, run } from '../../program/program.js'

interface RemoteOptions {
  /** The state directory: the key and the host keys lie in `<state>/ssh`. */
  readonly state: string
  /** `[ssh] key`: absolute path of a private key; '' for `<state>/ssh/id_ed25519`, made if missing. */
  readonly sshKey: string
  /** `[ssh] port` of the nodes. */
  readonly sshPort: number
  /** Seconds until a node that does not answer counts as unreachable; default 10. */
  readonly connectTimeout?: number
  /** Words that run ssh as another user; `directory` has copies of the key and the host keys. */
  readonly as?: { readonly directory: string; words(): readonly string[] }
}

/** A node to reach: its name, under which its host keys are kept, and its IP address. */
export interface Target {
  readonly node: string
  readonly address: string
}

/** Name of svcd's own key, and of the copy of any key. */
export const KEY = 'id_ed25519'
/** Name of the copy of one node's host keys. */
export const KNOWN = 'known'
/** A link to the key that the ini names. */
const LINK = 'key'

/**
 * Logs in to nodes as root with svcd's ssh key and a file of host keys per node (rules 9.9). A host key is
 * trusted at the first contact and required from then on, until `forget`. Root's own ssh configuration,
 * agent, keys and known hosts are not used.
 */
export class Remote {
  /** Directory of the host keys: a file for each node, by its name. */
  readonly knownHosts: string
  readonly key: string
  readonly port: number
  readonly #directory: string
  readonly #ownKey: boolean
  #ready: Promise<void> | undefined

  constructor(private readonly o: RemoteOptions) {
    this.port = o.sshPort
    this.#directory = join(o.state, 'ssh')
    this.knownHosts = join(this.#directory, 'known_hosts')
    this.#ownKey = o.sshKey === ''
    this.key = this.#ownKey ? join(this.#directory, KEY) : o.sshKey
  }

  /** The file with the line for /root/.ssh/authorized_keys of the nodes. */
  get publicKey(): string {
    return `${this.key}.pub`
  }

  /** Makes the directories and, the first time, the key. Throws Error when there is no usable key. */
  async prepare(): Promise<void> {
    if (this.o.as) return
    this.#ready ??= this.#prepare().catch(error => {
      this.#ready = undefined
      throw error
    })
    await this.#ready
  }

  /** Forgets a node's host key after it was installed again, renamed or deleted. */
  async forget(node: string): Promise<void> {
    await unlessMissing(unlink(join(this.knownHosts, node)), undefined)
  }

  /**
   * Returns the ssh command to a node up to its address, and its working directory. Its paths are relative,
   * so that ssh needs no quoting, whatever the state directory is called; no word holds a blank or a quote.
   */
  async command(node: string): Promise<{ readonly words: readonly string[]; readonly cwd: string }> {
    await this.prepare()
    const { as, connectTimeout = 10 } = this.o
    const options = {
      BatchMode: 'yes',
      CheckHostIP: 'no',
      ClearAllForwardings: 'yes',
      ConnectTimeout: connectTimeout,
      ForwardAgent: 'no',
      GlobalKnownHostsFile: '/dev/null',
      HashKnownHosts: 'no',
      HostKeyAlias: node,
      IdentitiesOnly: 'yes',
      IdentityAgent: 'none',
      LogLevel: 'ERROR',
      PreferredAuthentications: 'publickey',
      ServerAliveInterval: 15,
      ServerAliveCountMax: 4,
      StrictHostKeyChecking: 'accept-new',
      UpdateHostKeys: 'no',
      User: 'root',
      UserKnownHostsFile: as ? KNOWN : `known_hosts/${node}`
    }
    return {
      words: [
        ...(as?.words() ?? []),
        ...['ssh', '-T', '-F', 'none', '-p', `${this.port}`, '-i', as || this.#ownKey ? KEY : LINK],
        ...Object.entries(options).flatMap(([name, value]) => ['-o', `${name}=${value}`])
      ],
      cwd: as?.directory ?? this.#directory
    }
  }

  /** Returns the output of a command, which the node's shell reads. Throws as `remoteFailure`. */
  async run(target: Target, command: readonly string[], limits: Limits): Promise<string> {
    const { words, cwd } = await this.command(target.node)
    const [program = '', ...options] = [...words, '--', target.address, ...command]
    const { stdout } = await run(program, options, { ...limits, cwd }).catch(error => {
      throw remoteFailure(error, this, target)
    })
    return stdout
  }

  async #prepare(): Promise<void> {
    await mkdir(this.knownHosts, { recursive: true, mode: 0o700 })
    if (this.#ownKey && !(await unlessMissing(stat(this.key), undefined))) await this.#makeKey()
    const where = `${this.key}${this.#ownKey ? '' : ', named by [ssh] key,'}`
    const status = await stat(this.key).catch((error: NodeJS.ErrnoException) => {
      throw new Error(`the ssh key ${where} cannot be read: ${error.code}`)
    })
    if (!status.isFile()) throw new Error(`the ssh key ${where} is no file`)
    if ((status.mode & 0o077) !== 0)
      throw new Error(`the ssh key ${where} can be read by others, which ssh refuses: chmod 600`)
    if (this.#ownKey) return
    // A link names the ini's key, as ssh would expand `%h`, `${HOME}` and the like in its path.
    const link = join(this.#directory, LINK)
    await rm(`${link}.new`, { force: true })
    await symlink(this.key, `${link}.new`)
    await rename(`${link}.new`, link)
  }

  /** Makes the key, whole or not at all: the private key gets its name last. */
  async #makeKey(): Promise<void> {
    const directory = await mkdtemp(join(this.#directory, 'new-'))
    try {
      const made = join(directory, KEY)
      await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', 'svcd', '-f', made], {
        timeLimitMs: 30_000
      })
      for (const file of [made, `${made}.pub`]) await syncFile(file, file === made ? 0o600 : 0o644)
      await rename(`${made}.pub`, this.publicKey)
      await rename(made, this.key)
      await syncDirectory(this.#directory)
    } finally {
      await rm(directory, { recursive: true, force: true })
    }
  }
}

const LOST = 'the connection was lost'

/** Patterns of ssh's messages, and the sentence for the admin. */
const sshFailures: readonly (readonly [RegExp, (remote: Remote, target: Target) => string])[] = [
  [
    /REMOTE HOST IDENTIFICATION HAS CHANGED|^Host key verification failed|^No .* host key is known/m,
    ({ knownHosts }, { node, address }) =>
      `node ${node} shows another host key at ${address} than before: if it was installed anew, remove ` +
      `${knownHosts}/${node}; otherwise another machine answers there`
  ],
  [
    /^[^ ]+: Permission denied \(/m,
    ({ publicKey }, { node, address }) =>
      `node ${node} (${address}) does not accept svcd's ssh key: add the line in ${publicKey} to its ` +
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

/** Meaning of rsync's exit statuses (its manual, EXIT VALUES; 255 is ssh's). */
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

/** Exit statuses of ssh, and of rsync after ssh ended: ssh's output has the reason then. */
const SSH_FAILED = 255
const STREAM_BROKE = 12
const NOT_FOUND = 127

/**
 * Turns a failure of ssh or rsync into one sentence with the node's name, the cause and the way out. `first`
 * is the first complaint, which is the cause where several follow. Aborts and errors of no program are
 * returned as they are.
 */
export function remoteFailure(error: unknown, remote: Remote, target: Target, first?: string): unknown {
  if (!(error instanceof ProgramError) || error.kind === 'aborted') return error
  const { node } = target
  const sentence = (text: string) => new Error(text, { cause: error })
  if (error.kind === 'missing') return sentence(`${error.program} is not installed on the controller`)
  if (error.kind === 'time limit') return sentence(`node ${node}: ${error.message}`)
  const { status, stderr } = error
  if (status === NOT_FOUND || /^[^\n]*rsync: (command )?not found$/m.test(stderr))
    return sentence(`node ${node} has no rsync: install it there`)
  if (status === SSH_FAILED || status === STREAM_BROKE)
    for (const [words, say] of sshFailures) if (words.test(stderr)) return sentence(say(remote, target))
  const what = (error.program === 'rsync' && status !== undefined && rsyncFailures[status]) || undefined
  if (what === undefined && first === undefined) return sentence(`node ${node}: ${error.message}`)
  return sentence(`node ${node}: ${[what, first].filter(Boolean).join(': ')}`)
}
