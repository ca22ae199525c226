import { randomBytes } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { withOpen } from './copy.js'
import { syncDirectory } from './directory.js'
import { refuseForeignLinkTo } from './trusted-path.js'

/** What a file gets: whole, or in pieces, each of which is made when the one before it is written. */
type Content = string | Buffer | Iterable<string>

/**
 * Gives a file its whole new content: it holds the old one or the new one, never a part. The content is durable when
 * this resolves, the name is not yet (see replaceDurably). The temporary file beside it is hidden. A link of that
 * name is replaced, not followed: some of these directories belong to others. Throws the error of the operating system,
 * and Error where the directory is a link of another user than root and this one.
 * Its message names the file and not the temporary one, so that a second failure has the same message as the first.
 */
export async function replaceFile(file: string, content: Content, mode = 0o600): Promise<void> {
  const temporary = temporaryOf(file)
  await refuseForeignLinkTo(dirname(file))
  try {
    await writeNew(temporary, content, mode)
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {})
    throw namedAs(file, temporary, error as Error)
  }
}

/** A name beside a file for its new content, until that is complete. */
export const temporaryOf = (file: string) =>
  join(dirname(file), `.${basename(file)}.${randomBytes(6).toString('hex')}`)

/** The error of a system call on the temporary file, as one of the file itself. */
export function namedAs(file: string, temporary: string, error: Error): Error {
  error.message = error.message.replace(`${temporary}' -> '`, '').replaceAll(temporary, file)
  return error
}

const writeNew = (file: string, content: Content, mode: number): Promise<void> =>
  withOpen(open(file, 'wx', mode), async handle => {
    if (typeof content === 'string' || Buffer.isBuffer(content)) await handle.writeFile(content)
    else for (const piece of content) await handle.writeFile(piece)
    await handle.chmod(mode)
    await handle.sync()
  })

/** Whether a name is that of a temporary file that a killed replaceFile, or the library used before it, left. */
export const isLeftover = (name: string) => /^\..+\.[0-9a-f]{12}$|\.json\.\d+$/.test(name)

/** The same, its name durable too. */
export async function replaceDurably(file: string, content: Content, mode = 0o600): Promise<void> {
  await replaceFile(file, content, mode)
  await syncDirectory(dirname(file))
}
