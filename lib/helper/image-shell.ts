import { constants } from 'node:fs'
import { lstat, open, realpath, unlink } from 'node:fs/promises'
import type { Config } from '../config/types.js'
import { inDirectory, resolveInside } from '../disk/open-directory.js'
import { shellInImage } from '../image/packer/sandbox.js'
import { tryLockDirectory } from '../program/system.js'
import { helperSettingsOf, inTree } from './directories.js'

/** Mount points of the shell. If the image lacks such a file, it gets one while the shell is open. */
const MOUNTED = [
  ['usr/sbin', 'policy-rc.d'],
  ['etc', 'resolv.conf']
] as const

const NEW = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY

/**
 * Opens a root shell in the directory of an image (rules 9.13) and locks it against packs; returns the exit
 * status. Throws Error if it is no image directory, is being packed, or has a shell already.
 */
export async function imageShell(
  config: Config,
  image: string,
  path: string,
  line: (text: string) => unknown
): Promise<number> {
  return inTree(helperSettingsOf(config, false), await realpath(path), async ({ at }) => {
    const release = await tryLockDirectory(at())
    if (release === undefined)
      throw new Error(`OS image ${image} is being packed, or has a shell open: wait until that has ended`)
    try {
      for (const [directory, name] of MOUNTED)
        await inside(at(), directory, at => open(at(name), NEW, 0).then(file => file.close()))
      const request = {
        tree: at(),
        byRoot: false,
        signal: new AbortController().signal,
        timeLimitMs: 60_000,
        line
      }
      const about = 'what is installed here stays, and starts no service; exit ends it'
      return await shellInImage(request, image, `OS image ${image}, ${path}: ${about}`)
    } finally {
      // An empty file without permissions is such a mount point, maybe of a killed shell.
      for (const [directory, name] of MOUNTED)
        await inside(at(), directory, async at => {
          const { mode, size } = await lstat(at(name))
          if (size === 0 && (mode & 0o177777) === 0o100000) await unlink(at(name))
        })
      await release()
    }
  })
}

/** Runs work in a directory of an image; ignores missing and existing files. */
async function inside(tree: string, path: string, work: (at: (name: string) => string) => Promise<void>) {
  const found = await resolveInside(tree, path)
  if (found === undefined) return
  await inDirectory(tree, found, ({ at }) => work(at)).catch(error => {
    if (!['EEXIST', 'ENOENT', 'ENOTDIR'].includes(error.code)) throw error
  })
}
