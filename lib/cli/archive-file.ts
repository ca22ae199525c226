import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'

/** Throws Error where a backup is to be written to a directory, or read from one. */
export async function refuseDirectory(file: string): Promise<void> {
  // What else is wrong with the file, its use tells.
  const found = await stat(file).catch(() => undefined)
  if (found?.isDirectory()) throw new Error(`${file} is a directory: name a file in it`)
}

/** Opens a backup to read it. Throws Error for what is not there; O_NONBLOCK: a pipe does not wait for its writer. */
export const openBackup = (file: string): Promise<FileHandle> =>
  open(file, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'ENOENT' ? new Error(`${file}: there is no such file`) : error
  })

/** Throws Error for an open file that cannot be read as a backup because it is no regular file, or is compressed. */
export async function refuseUnreadable(handle: FileHandle, file: string): Promise<void> {
  await refuseDirectory(file)
  if (!(await handle.stat()).isFile()) throw new Error(`${file} is no regular file: copy the backup to one`)
  const { bytesRead, buffer } = await handle.read(Buffer.alloc(2), 0, 2, 0)
  if (bytesRead === 2 && buffer.readUInt16BE() === 0x1f8b)
    throw new Error(`${file} is compressed by gzip: unpack it first (gunzip ${file})`)
}
