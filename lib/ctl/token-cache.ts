import { constants } from 'node:fs'
import { chmod, lstat, mkdir, open, rm } from 'node:fs/promises'
import { homedir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { unlessMissing } from '../disk/missing.js'
import { replaceFile } from '../disk/replace.js'
import { refused } from './terminal.js'

/** A token is shorter; a longer file is none of ours. */
const longest = 8192

/** The tokens of one person, one file for each controller, which nobody else can read (rules 14.1). */
export class TokenCache {
  readonly #directory: string

  constructor(env: Readonly<Record<string, string | undefined>>) {
    const given = env.XDG_CACHE_HOME ?? ''
    // The XDG standard: a relative path is ignored.
    const home = env.HOME === undefined || env.HOME === '' ? homedir() : env.HOME
    this.#directory = join(isAbsolute(given) ? given : join(home, '.cache'), 'svcd')
  }

  /** The token for a controller; undefined where there is none. Throws Failure 1 where others could have read it. */
  async read(controller: string): Promise<string | undefined> {
    const file = this.#file(controller)
    // Neither a link nor a pipe: what is there was not put there by us.
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK
    const unreadable = (error: Error) => refused(`the token cannot be read: ${error.message}`)
    const handle = await unlessMissing(open(file, flags), undefined).catch(error => {
      throw unreadable(error)
    })
    if (!handle) return undefined
    try {
      const { mode, uid, size } = await handle.stat()
      const isOurs = (mode & constants.S_IFMT) === constants.S_IFREG && uid === process.getuid?.()
      if (!isOurs || (mode & 0o077) !== 0 || size > longest)
        throw refused(
          `${file}: others may have read or written this token, it is not used; type: svcctl login USER`
        )
      return (await handle.readFile('utf8')).trim()
    } finally {
      await handle.close()
    }
  }

  /** Keeps a token. Throws Failure 1 where it cannot be kept to oneself. */
  async write(controller: string, token: string): Promise<void> {
    const directory = this.#directory
    try {
      await mkdir(directory, { recursive: true, mode: 0o700 })
      const found = await lstat(directory)
      if (!found.isDirectory() || found.uid !== process.getuid?.())
        throw new Error(`${directory} is no directory of yours; remove it, or set XDG_CACHE_HOME`)
      if ((found.mode & 0o077) !== 0) await chmod(directory, 0o700)
      await replaceFile(this.#file(controller), `${token}\n`)
    } catch (error) {
      throw refused(`the token cannot be kept: ${(error as Error).message}`)
    }
  }

  /** Forgets the token for a controller. */
  async remove(controller: string): Promise<void> {
    await rm(this.#file(controller), { force: true })
  }

  #file(controller: string): string {
    return join(this.#directory, `token-${encodeURIComponent(controller)}`)
  }
}
