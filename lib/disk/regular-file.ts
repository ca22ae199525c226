import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { open } from 'node:fs/promises'

// Without it, to open a pipe waits until somebody writes to it.
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY

const refused = () =>
  new Error('it is not a regular file; move it away, or put the file of a backup in its place')

/** The bytes of a regular file. Throws the error of the operating system, and an Error for a pipe or a device. */
export async function readRegularFile(file: string): Promise<Buffer> {
  const handle = await open(file, FLAGS)
  try {
    if (!(await handle.stat()).isFile()) throw refused()
    return await handle.readFile()
  } finally {
    await handle.close()
  }
}

/** The same, synchronously. */
export function readRegularFileSync(file: string): Buffer {
  const descriptor = openSync(file, FLAGS)
  try {
    if (!fstatSync(descriptor).isFile()) throw refused()
    return readFileSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
