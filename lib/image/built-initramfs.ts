import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { readRegularFile } from '../disk/regular-file.js'
import { replaceDurably } from '../disk/replace.js'
import type { ImageContext } from './context.js'

/*
 * What the last build of an image's initramfs has seen of it (packer/renew.ts): one file for each image, in the state
 * directory, where nobody who makes images writes.
 */

const directoryOf = ({ config }: ImageContext) => join(config.paths.state, 'initramfs')

/** The record of an image; undefined where there is none, or it cannot be read. */
export const recordOf = (context: ImageContext, image: string): Promise<string | undefined> =>
  readRegularFile(join(directoryOf(context), image)).then(String, () => undefined)

/** Keeps the record of an image for its next pack, none where it is undefined, and no record of images that are gone. */
export async function keepRecord(context: ImageContext, image: string, record?: string): Promise<void> {
  const directory = directoryOf(context)
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const view = context.model.view
  for (const name of await readdir(directory)) {
    // A hidden one is being written, for another image.
    const isOld = name === image ? record === undefined : !name.startsWith('.') && !view.get('osimage', name)
    if (isOld) await rm(join(directory, name), { force: true })
  }
  if (record !== undefined) await replaceDurably(join(directory, image), record)
}
