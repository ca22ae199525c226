import { constants } from 'node:fs'
import { lstat, open, realpath, unlink } from 'node:fs/promises'
import { within } from '../base/json.js'
import type { Config } from '../config/types.js'
import { inDirectory, resolveInside } from '../disk/open-directory.js'
import { helperSettingsOf, inTree } from '../helper/directories.js'
import { shellInImage } from '../helper/packer/sandbox.js'
import { tryLockDirectory } from '../program/system.js'
import { askDaemon } from './transfer.js'
import { UsageError } from './usage.js'

/** Mount points of the shell. If the image lacks such a file, it gets one while the shell is open. */
const MOUNTED = [
  ['usr/sbin', 'policy-rc.d'],
  ['etc', 'resolv.conf']
] as const

const NEW = constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY

/**
 * Opens a root shell in an image's directory, as the running daemon names it, and locks it against packs
 * (rules 9.13); returns its exit status. Only root on the controller may do so: a token must not give a shell
 * there. Throws Error if it is no image directory, is being packed, or has a shell already.
 */
export async function osimageShell(config: Config, [what, name = '']: readonly string[]): Promise<number> {
  if (what !== 'shell') throw new UsageError(`osimage has no ${what}: type svcd osimage shell NAME`)
  if (process.getuid?.() !== 0)
    throw new Error(
      `a shell in OS image ${name} takes root on the controller: type sudo svcd osimage shell ${name}`
    )
  const answer = await askDaemon(config, 'GET', `/config/osimage/${encodeURIComponent(name)}`)
  const { path: own } = within(JSON.parse(String(answer)), 'config', 'osimage', name)
  const path = typeof own === 'string' ? own : `${config.image.directory}/${name}`
  return inTree(helperSettingsOf(config, false), await realpath(path), async ({ at }) => {
    const release = await tryLockDirectory(at())
    if (release === undefined)
      throw new Error(`OS image ${name} is being packed, or has a shell open: wait until that has ended`)
    try {
      for (const [directory, file] of MOUNTED)
        await inside(at(), directory, at => open(at(file), NEW, 0).then(handle => handle.close()))
      const request = {
        tree: at(),
        byRoot: false,
        signal: new AbortController().signal,
        timeLimitMs: 60_000,
        line: (text: string) => process.stderr.write(`${text}\n`)
      }
      const about = 'what is installed here stays, and starts no service; exit ends it'
      return await shellInImage(request, name, `OS image ${name}, ${path}: ${about}`)
    } finally {
      // An empty file without permissions is such a mount point, maybe of a killed shell.
      for (const [directory, file] of MOUNTED)
        await inside(at(), directory, async at => {
          const { mode, size } = await lstat(at(file))
          if (size === 0 && (mode & 0o177777) === 0o100000) await unlink(at(file))
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
