import { mkdir, mkdtemp, open, rename, rm, stat, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { unlessMissing } from '../../disk/missing.js'
import { run } from '../../program/program.js'

export interface RemoteOptions {
  /** The state directory: the key and the host keys lie in `<state>/ssh`. */
  readonly state: string
  /** `[ssh] key`: absolute path of a private key; '' for `<state>/ssh/id_ed25519`, made at its first use. */
  readonly sshKey: string
  /** `[ssh] port` of the nodes. */
  readonly sshPort: number
  /** Seconds until a node that does not answer counts as unreachable; default 10. */
  readonly connectTimeout?: number
}

/** A node to reach: its name, which its host keys are kept under, and its IP address. */
export interface Target {
  readonly node: string
  readonly address: string
}

const OWN_KEY = 'id_ed25519'
/** A link to the key that the ini names. */
const LINK = 'key'

/**
 * How svcd logs in to nodes as root: its ssh key, and the host keys it has seen, one file per node. A host key is
 * taken at the first contact; from then on the node must show it, until `forget`. Nothing of root's own ssh set-up
 * is used: no configuration, agent, key or list of known hosts.
 */
export class Remote {
  /** Where the host keys lie: a file for each node, by its name. */
  readonly knownHosts: string
  /** The private key. */
  readonly key: string
  readonly port: number
  readonly #directory: string
  readonly #ownKey: boolean
  readonly #connectTimeout: number
  #ready: Promise<void> | undefined

  constructor({ state, sshKey, sshPort, connectTimeout = 10 }: RemoteOptions) {
    this.#directory = join(state, 'ssh')
    this.knownHosts = join(this.#directory, 'known_hosts')
    this.#ownKey = sshKey === ''
    this.key = this.#ownKey ? join(this.#directory, OWN_KEY) : sshKey
    this.port = sshPort
    this.#connectTimeout = connectTimeout
  }

  /** The file whose line belongs into /root/.ssh/authorized_keys of the nodes. */
  get publicKey(): string {
    return `${this.key}.pub`
  }

  /** Makes the directories and, the first time, the key. Throws Error when there is no usable key. */
  prepare(): Promise<void> {
    this.#ready ??= this.#prepare().catch(error => {
      this.#ready = undefined
      throw error
    })
    return this.#ready
  }

  /** The node was installed anew, renamed or deleted: its next host key is taken as at a first contact. */
  async forget(node: string): Promise<void> {
    await rm(join(this.knownHosts, node), { force: true })
  }

  /**
   * The ssh command to a node up to its address, and the directory it has to run in: relative names need none of
   * ssh's quoting, whatever the state directory is called. No word holds a blank or a quote.
   */
  async command(node: string): Promise<{ readonly words: readonly string[]; readonly cwd: string }> {
    await this.prepare()
    const options = {
      BatchMode: 'yes',
      CheckHostIP: 'no',
      ClearAllForwardings: 'yes',
      ConnectTimeout: this.#connectTimeout,
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
      UserKnownHostsFile: `known_hosts/${node}`
    }
    return {
      words: [
        ...['ssh', '-T', '-F', 'none', '-p', `${this.port}`, '-i', this.#ownKey ? OWN_KEY : LINK],
        ...Object.entries(options).flatMap(([name, value]) => ['-o', `${name}=${value}`])
      ],
      cwd: this.#directory
    }
  }

  /**
   * Runs a command on a node and gives its standard output. The node's shell reads the words: nothing that comes
   * from outside belongs into them. Throws a ProgramError of ssh.
   */
  async run(
    { node, address }: Target,
    command: readonly string[],
    limits: { readonly signal: AbortSignal; readonly timeLimitMs: number }
  ): Promise<string> {
    const { words, cwd } = await this.command(node)
    const [program = '', ...options] = words
    const { stdout } = await run(program, [...options, '--', address, ...command], { ...limits, cwd })
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
    if (!this.#ownKey) await this.#link()
  }

  /** The key of the ini under a name of ours: in a path ssh would read `%h`, `${HOME}` and the like. */
  async #link(): Promise<void> {
    const link = join(this.#directory, LINK)
    await rm(`${link}.new`, { force: true })
    await symlink(this.key, `${link}.new`)
    await rename(`${link}.new`, link)
  }

  /** Whole or not at all: the private key gets its name last. */
  async #makeKey(): Promise<void> {
    const directory = await mkdtemp(join(this.#directory, 'new-'))
    try {
      const made = join(directory, OWN_KEY)
      await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', 'svcd', '-f', made], {
        timeLimitMs: 30_000
      })
      for (const file of [made, `${made}.pub`]) await sync(file)
      await rename(`${made}.pub`, this.publicKey)
      await rename(made, this.key)
      await sync(this.#directory)
    } finally {
      await rm(directory, { recursive: true, force: true })
    }
  }
}

async function sync(path: string): Promise<void> {
  const handle = await open(path)
  await handle.sync().finally(() => handle.close())
}
