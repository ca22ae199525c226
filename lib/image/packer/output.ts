import { type FileHandle, open, rm } from 'node:fs/promises'

/**
 * Makes a file (0600) that must not be there yet, and has it filled. When that fails, it is removed and what failed
 * is thrown.
 */
export async function toOutput<T>(path: string, fill: (file: FileHandle) => Promise<T>): Promise<T> {
  const file = await open(path, 'wx', 0o600)
  try {
    return await fill(file)
  } catch (error) {
    await rm(path, { force: true })
    throw error
  } finally {
    await file.close()
  }
}
