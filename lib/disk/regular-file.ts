import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { withOpen } from './copy.js'

// Without it, to open a pipe waits until somebody writes to it.
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY

const refused = (file = '') =>
  new Error(`${file}it is not a regular file; move it away, or put the file of a backup in its place`)

/**
 * The bytes of a regular file. Throws the error of the operating system, and an Error for a pipe or a device; both name
 * the file.
 */
export const readRegularFile = (file: string): Promise<Buffer> =>
  withOpen(open(file, FLAGS), async handle => {
    if (!(await handle.stat()).isFile()) throw refused(`${file}: `)
    return handle.readFile()
  })

/** The same, synchronously. The Error for a pipe or a device does not name the file: who asks does. */
export function readRegularFileSync(file: string): Buffer {
  const descriptor = openSync(file, FLAGS)
  try {
    const stat = fstatSync(descriptor)
    if (!stat.isFile()) throw refused()
    // readFileSync would ask for its size again: a start may read 100,000 files.
    const bytes = Buffer.allocUnsafe(stat.size)
    let size = 0
    for (let read = -1; size < bytes.length && read !== 0; size += read)
      read = readSync(descriptor, bytes, size, bytes.length - size, null)
    return bytes.subarray(0, size)
  } finally {
    closeSync(descriptor)
  }
}
