import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { workDirectory } from './rich-tree.js'

/** An `[image] directory` with two images in it, and a secret beside it. */
export function place(t: Test) {
  const directory = workDirectory(t)
  const images = join(directory, 'images')
  for (const name of ['compute/boot', 'login', 'imposter']) mkdirSync(join(images, name), { recursive: true })
  mkdirSync(join(directory, 'images-of-others/x'), { recursive: true })
  writeFileSync(join(directory, 'secret'), 'secret')
  writeFileSync(join(images, 'file'), '')
  return { directory, images, tree: join(images, 'compute') }
}
