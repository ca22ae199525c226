import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createOnce } from './create-once.js'

const keyBytes = 32

/**
 * Reads a key of 32 random bytes, and makes its file (mode 0600) where there is none; `made` is called then. `loss` says
 * what is lost with the key. Throws Error when the file cannot be read or is not a key; it is never overwritten.
 */
export async function openKey(file: string, loss: string, made = () => {}): Promise<Buffer> {
  if (await createOnce(file, randomBytes(keyBytes))) made()
  const key = await readFile(file)
  if (key.length !== keyBytes)
    throw new Error(
      `${file} is damaged (${key.length} bytes, not ${keyBytes}): restore it, or remove it, which ${loss}`
    )
  return key
}
