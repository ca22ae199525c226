import { lstat } from 'node:fs/promises'

const MISSING = ['ENOENT', 'ENOTDIR']

/** Whether an error says that a file, or a directory above it, is not there. */
export const isMissing = (error: unknown): boolean =>
  MISSING.includes((error as NodeJS.ErrnoException | undefined)?.code ?? '')

/** What an operation on a file gives; `otherwise` where that file is not there. Throws what else goes wrong. */
export async function unlessMissing<T, O>(operation: Promise<T>, otherwise: O): Promise<T | O> {
  try {
    return await operation
  } catch (error) {
    if (isMissing(error)) return otherwise
    throw error
  }
}

/** Whether something, be it a link to nothing, has this name. */
export const exists = (path: string): Promise<boolean> =>
  unlessMissing(
    lstat(path).then(() => true),
    false
  )

/** Whether a regular file, no link to one, has this name. */
export const isFile = async (path: string): Promise<boolean> =>
  (await lstat(path).catch(() => undefined))?.isFile() ?? false
