import { open, stat } from 'node:fs/promises'

/** Throws Error where a backup is to be written to a directory, or read from one. */
export async function refuseDirectory(file: string): Promise<void> {
  // What else is wrong with the file, its use tells.
  const found = await stat(file).catch(() => undefined)
  if (found?.isDirectory()) throw new Error(`${file} is a directory: name a file in it`)
}

/** Throws Error for what cannot be read as a backup because it is not there, is a directory, or is compressed. */
export async function refuseUnreadable(file: string): Promise<void> {
  await refuseDirectory(file)
  const handle = await open(file).catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'ENOENT' ? new Error(`${file}: there is no such file`) : error
  })
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(2), 0, 2)
    if (bytesRead === 2 && buffer.readUInt16BE() === 0x1f8b)
      throw new Error(`${file} is compressed by gzip: unpack it first (gunzip ${file})`)
  } finally {
    await handle.close()
  }
}
