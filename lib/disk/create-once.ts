import { randomBytes } from 'node:crypto'
import { link, open, unlink } from 'node:fs/promises'
import { dirname } from 'node:path'
import { makeDirectory, syncDirectory } from './directory.js'
import { exists } from './missing.js'

/**
 * Makes a file (0600, its directory 0700) with these bytes, whole and durable, unless it exists: true
 * when this call made it. An existing file is never touched, also when two processes ask at once.
 */
export async function createOnce(file: string, bytes: string | Uint8Array): Promise<boolean> {
  // A start needs no writable state for what is there already.
  if (await exists(file)) return false
  await makeDirectory(dirname(file))
  const temporary = `${file}.${randomBytes(6).toString('hex')}.new`
  const handle = await open(temporary, 'wx', 0o600)
  try {
    await handle.writeFile(bytes)
    await handle.sync()
    // Unlike rename, link fails when the name is taken.
    await link(temporary, file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  } finally {
    await handle.close()
    await unlink(temporary)
  }
  await syncDirectory(dirname(file))
  return true
}
