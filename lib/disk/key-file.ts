import { randomBytes } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { createOnce } from './create-once.js'
import { readRegularFile } from './regular-file.js'

const keyBytes = 32

/**
 * Reads a key of 32 random bytes, and makes its file (mode 0600) where there is none; `made` is called then. `loss` says
 * what is lost with the key. Throws Error when the file cannot be read, is not a key, or others than its owner may read
 * or replace it; it is never overwritten.
 */
export async function openKey(file: string, loss: string, made = () => {}): Promise<Buffer> {
  if (await createOnce(file, randomBytes(keyBytes))) made()
  return readKey(file, loss)
}

/** The same for a key that must be there. */
export async function readKey(file: string, loss: string): Promise<Buffer> {
  const key = await readRegularFile(file)
  const restore = `restore it, or remove it, which ${loss}`
  if (key.length !== keyBytes)
    throw new Error(`${file} is damaged (${key.length} bytes, not ${keyBytes}): ${restore}`)
  if (key.every(byte => byte === key[0]))
    throw new Error(`${file} is damaged (all bytes are alike): ${restore}`)
  await refuseOthers(file, 0o077, '0600', 'others than its owner may read it')
  await refuseOthers(dirname(file), 0o022, '0700', 'others than its owner may replace the key in it')
  return key
}

/** A group that may write to a sticky directory replaces only what is its members' own. */
const STICKY = 0o1000
const GROUP = 0o070

/** Throws Error, which names path and mode, where the mode has one of these bits; `why` they are too many. */
export async function refuseOthers(path: string, bits: number, wanted: string, why: string): Promise<void> {
  const mode = (await stat(path)).mode & 0o7777
  if (mode & bits & ~(mode & STICKY ? GROUP : 0))
    throw new Error(
      `${path} has mode ${mode.toString(8).padStart(4, '0')}: ${why}; give it mode ${wanted} (chmod ${wanted} ${path})`
    )
}
