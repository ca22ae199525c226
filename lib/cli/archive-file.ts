import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'

/** Throws Error if the file of a backup is a directory. */
export async function refuseDirectory(file: string): Promise<void> {
  // The use of the file reports other problems.
  const found = await stat(file).catch(() => undefined)
  if (found?.isDirectory()) throw new Error(`${file} is a directory: name a file in it`)
}

/** Opens a backup for reading; a pipe does not block. Throws Error if it does not exist. */
export const openBackup = (file: string): Promise<FileHandle> =>
  open(file, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'ENOENT' ? new Error(`${file}: there is no such file`) : error
  })

/** Throws Error for a file that is not regular, or is compressed by gzip. */
export async function refuseUnreadable(handle: FileHandle, file: string): Promise<void> {
  await refuseDirectory(file)
  if (!(await handle.stat()).isFile()) throw new Error(`${file} is no regular file: copy the backup to one`)
  const { bytesRead, buffer } = await handle.read(Buffer.alloc(2), 0, 2, 0)
  if (bytesRead === 2 && buffer.readUInt16BE() === 0x1f8b)
    throw new Error(`${file} is compressed by gzip: unpack it first (gunzip ${file})`)
}
