import { lstat, readdir } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Config } from '../config/types.js'
import { unlessMissing } from '../disk/missing.js'

const handOver = fileURLToPath(new URL('../../libexec/hand-over.sh', import.meta.url))

/**
 * Throws Error with the command to type when the state is another user's, as that of a svcd that ran as root: the daemon
 * that is not root could read it in parts, and write less. Root may use any.
 */
export async function checkOwner({ paths, image }: Pick<Config, 'paths' | 'image'>): Promise<void> {
  const uid = process.getuid?.() ?? 0
  if (uid === 0) return
  // Images are root's, also those in the usual place while the ini names another.
  const apart = [
    paths.files,
    image.directory,
    ...['images', 'lost+found'].map(name => join(paths.state, name))
  ]
  const ownerOf = async (path: string) => (await unlessMissing(lstat(path), undefined))?.uid ?? uid
  const refused = (path: string, owner: number) => {
    const words = ['sh', handOver, paths.state, paths.files, image.directory, nameOf(uid)]
    return new Error(
      `${path} belongs to user ${owner}, and svcd runs as user ${uid}: type, as root: ${words.join(' ')}`
    )
  }
  const names = await unlessMissing(readdir(paths.state), []).catch(async () => {
    throw refused(paths.state, await ownerOf(paths.state))
  })
  for (const path of names.map(name => join(paths.state, name)).filter(path => !apart.includes(path))) {
    const owner = await ownerOf(path)
    if (owner !== uid) throw refused(path, owner)
  }
}

function nameOf(uid: number): string {
  try {
    return userInfo().username
  } catch {
    // It has no name.
    return `${uid}`
  }
}
