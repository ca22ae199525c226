import { dirname, join } from 'node:path'
import { isShared, refuseHalfRestored } from '../backup/state-names.js'
import { topOf } from '../backup/stored-files.js'
import type { Config } from '../config/types.js'
import { makeDirectory, replaceDurably, withOpen } from '../disk/file.js'
import { kinds } from '../model/types.js'
import { LoadError, LockedError } from '../store/errors.js'
import { FileMedium } from '../store/files/medium.js'
import type { Medium, StoredState } from '../store/medium.js'
import { LAYOUT, VERSION } from '../store/start.js'
import { checkOwner, objectsAside } from './owner.js'
import { UsageError } from './usage.js'

const types: readonly string[] = [...Object.keys(kinds), LAYOUT]

interface MediumChoice {
  open(config: Config): Promise<Medium>
  /** Tells how to empty a medium that holds objects. */
  emptied(config: Config): Promise<string>
}

const places: Readonly<Record<string, MediumChoice>> = {
  files: {
    open: async ({ paths }) => new FileMedium({ directory: paths.state }),
    emptied: async ({ paths }) =>
      'to keep them aside, stop svcd on this machine and type, as root: ' +
      `${await objectsAside(paths.state, 'before-copy')}`
  },
  etcd: {
    open: async ({ store }) => (await import('../store/etcd/open.js')).openEtcd(store),
    emptied: async ({ store }) => {
      const { removalCommand: removalFrom } = await import('../store/etcd/open.js')
      return (
        'they may be those that were copied before: then nothing is to be done, start svcd. Only ' +
        'where those of the files are to ' +
        'replace them: svcd backup FILE first; then, to remove them for good, stop svcd on all ' +
        'controllers and type: ' +
        removalFrom(store)
      )
    }
  }
}

/**
 * Copies all stored objects into an empty medium, with the journals of nodes, and compares both. It holds
 * both leases. Returns what was done. Throws UsageError, or Error; the target then has all objects or none.
 */
export async function copyStore(config: Config, words: readonly string[]): Promise<string> {
  const [verb, from = '', to = ''] = words
  const [source, target] = [places[from], places[to]]
  if (verb !== 'copy' || !source || !target || from === to)
    throw new UsageError('store takes copy files etcd, or copy etcd files')
  await refuseHalfRestored(config.paths.state)
  // Root would follow that user's links, and own the new files.
  const foreign = await checkOwner(config)
  if (foreign)
    throw new Error(
      `${foreign.path} belongs to user ${foreign.user}: type runuser -u ${foreign.user} -- svcd ` +
        `store copy ${from} ${to}`
    )
  return withLease(source.open(config), async origin => {
    const stored = await origin.read()
    const problems = stored.problems(new Set(types))
    if (problems.length > 0) throw new LoadError(problems)
    const objects = types.flatMap(type => [...stored.names(type)].map(name => ({ type, name })))
    if (stored.text(LAYOUT, VERSION) === undefined)
      throw new Error(
        `${stored.place()} holds no objects, or those of a release before 1.0: start this svcd on it ` +
          'once; nothing is copied'
      )
    const writes = objects.map(object => ({ ...object, text: textOf(stored, object), textBefore: undefined }))
    await withLease(target.open(config), async place => {
      await refuseFull(await place.read(), () => target.emptied(config))
      await place.start(types)
      // Records come before the objects. A first start with etcd moves them there by itself.
      for (const [name, lines] of stored.journals ?? [])
        if (isShared(topOf(name))) {
          const file = join(config.paths.state, name)
          await makeDirectory(dirname(file))
          await replaceDurably(file, lines)
        }
      await place.commit(writes)
    })
    const again = await withOpen(target.open(config), async medium => medium.read())
    for (const { type, name, text } of writes)
      if (again.text(type, name) !== text)
        throw new Error(
          `${again.place(type, name)} is not what ${stored.place(type, name)} is: do not use it`
        )
    const copied = types.reduce((sum, type) => sum + [...again.names(type)].length, 0)
    if (copied !== writes.length)
      throw new Error(`${again.place()} holds ${copied} objects, not ${writes.length}: do not use it`)
    return (
      `copied and compared: ${copied} objects from ${stored.place()} to ${again.place()}\n` +
      `next: medium = ${to} in [store] of ${config.file}, svcd check, then start svcd; what was ` +
      'copied from is left as it is\n' +
      (to === 'etcd'
        ? 'once all is well: svcd backup FILE, then, as root: ' +
          `${await objectsAside(config.paths.state, 'before-etcd')}\n`
        : 'on all other controllers, before anything is removed from etcd: systemctl disable --now svcd\n')
    )
  })
}

/** Runs work while this process holds the lease. */
const withLease = <R>(opened: Promise<Medium>, work: (medium: Medium) => Promise<R>): Promise<R> =>
  withOpen(opened, async medium => {
    await medium.lock().catch((error: Error) => {
      throw error instanceof LockedError
        ? new Error(`${error.message}: stop svcd first (systemctl stop svcd); nothing is copied`)
        : error
    })
    return work(medium)
  })

function textOf(stored: StoredState, { type, name }: { type: string; name: string }): string | undefined {
  try {
    return stored.text(type, name)
  } catch (error) {
    throw new LoadError([{ file: stored.place(type, name), message: (error as Error).message }])
  }
}

async function refuseFull(stored: StoredState, wayOut: () => Promise<string>): Promise<void> {
  const full = types.filter(type => [...stored.names(type)].length > 0)
  const [problem] = stored.problems(new Set(types))
  if (full.length > 0 || problem)
    throw new Error(
      `${stored.place()} holds objects already (${full.join(', ') || problem?.message}): nothing is ` +
        `copied; ${await wayOut()}`
    )
}
