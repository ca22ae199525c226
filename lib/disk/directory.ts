import { mkdir, open } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { withOpen } from './copy.js'

/** Makes the names in a directory durable. */
export const syncDirectory = (directory: string): Promise<void> =>
  withOpen(open(directory), handle => handle.sync())

/** Makes a directory (0700), and those above it, where there is none; it outlives a power cut. */
export async function makeDirectory(directory: string, sync = syncDirectory): Promise<void> {
  const first = await mkdir(directory, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let made = resolve(directory); made.length >= first.length; made = dirname(made))
    await sync(dirname(made))
}
