import { constants } from 'node:fs'
import { lstat, open, realpath, unlink } from 'node:fs/promises'
import type { Config } from '../config/types.js'
import { holdDirectory } from '../disk/lock.js'
import { inDirectory, resolveInside } from '../disk/open-directory.js'
import { shellInImage } from '../image/packer/sandbox.js'
import { inTree, placesOf } from './places.js'

/** On these something is mounted in a shell: where the image has no such file, it gets one for as long as the shell is open. */
const MOUNTED = [
  ['usr/sbin', 'policy-rc.d'],
  ['etc', 'resolv.conf']
] as const

const NEW = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY

/**
 * A shell for root in the directory of an image (rules 9.13); gives its exit status. No pack of the image begins meanwhile.
 * Throws Error where the directory is none of an image, is packed just now, or has a shell already.
 */
export async function imageShell(
  config: Config,
  image: string,
  path: string,
  line: (text: string) => unknown
): Promise<number> {
  return inTree(placesOf(config, false), await realpath(path), async ({ at }) => {
    const release = await holdDirectory(at())
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
      // One that is empty and may be read by nobody is such a file, of a shell that was killed too.
      for (const [directory, name] of MOUNTED)
        await inside(at(), directory, async at => {
          const { mode, size } = await lstat(at(name))
          if (size === 0 && (mode & 0o177777) === 0o100000) await unlink(at(name))
        })
      await release()
    }
  })
}

/** Does something in a directory of an image, if it is there and what it is done to is. */
async function inside(tree: string, path: string, work: (at: (name: string) => string) => Promise<void>) {
  const found = await resolveInside(tree, path)
  if (found === undefined) return
  await inDirectory(tree, found, ({ at }) => work(at)).catch(error => {
    if (!['EEXIST', 'ENOENT', 'ENOTDIR'].includes(error.code)) throw error
  })
}
