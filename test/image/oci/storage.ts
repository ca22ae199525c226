import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { output } from '../../support/programs.js'
import type { Content } from './registry.js'

/** A storage of podman and buildah, which buildah fills. */
export function startStorage(directory: string, driver: 'overlay' | 'vfs' = 'vfs') {
  const path = join(directory, 'storage')
  const own = ['--storage-driver', driver, '--root', path, '--runroot', join(directory, 'run')]
  // It leaves mounts behind.
  const buildah = async (...words: readonly string[]) =>
    (await output('unshare', ['--mount', 'buildah', ...own, ...words])).trim()
  let count = 0
  /** Builds an image of these files upon another one, and returns the digest of its manifest. */
  const build = async (name: string, files: Content, base = 'scratch') => {
    const tree = join(directory, `tree-${count++}`)
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(join(tree, file, '..'), { recursive: true })
      writeFileSync(join(tree, file), text)
    }
    const container = await buildah('from', '--pull-never', base)
    await buildah('add', '--quiet', container, tree, '/')
    await buildah('config', '--label', 'site=hall 4', container)
    await buildah('commit', '--quiet', '--rm', container, name)
    return digestOf(name)
  }
  const digestOf = async (name: string): Promise<string> =>
    JSON.parse(await buildah('inspect', '--type', 'image', name)).FromImageDigest
  return { path, driver, buildah, build }
}
