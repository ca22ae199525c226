import { randomBytes } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

/**
 * Gives a file its whole new content, durable but for its name, by a hidden temporary file beside it. A link of that
 * name is replaced, not followed: some of these directories belong to others.
 */
export async function replaceFile(file: string, content: string | Buffer, mode: number): Promise<void> {
  const temporary = join(dirname(file), `.${basename(file)}.${randomBytes(6).toString('hex')}`)
  const handle = await open(temporary, 'wx', mode)
  try {
    try {
      await handle.writeFile(content)
      await handle.chmod(mode)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}
