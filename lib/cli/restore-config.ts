import { lchown, open, readdir, readFile } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import type { Config } from '../config/types.js'
import { exists, unlessMissing } from '../disk/missing.js'
import { FILE } from '../disk/open-directory.js'
import { replaceDurably } from '../disk/replace.js'
import { inTrusted, makeTrusted, trustedPath } from '../disk/trusted-path.js'
import { iniName, placeOf, shippedTemplates } from './config-files.js'

/** Whose the restored files are; undefined: they stay this user's. */
export interface Owner {
  readonly uid: number
  readonly gid: number
}

/** A file of a backup. */
export interface Entry {
  readonly bytes: Buffer
  readonly mode: number
}

/** Puts the files of the configuration in their places; gives where those that they replace are kept. */
export async function placeConfig(
  found: ReadonlyMap<string, Entry>,
  config: Config,
  ini: string,
  owner: Owner | undefined
): Promise<string[]> {
  const kept: string[] = []
  for (const [name, entry] of found) {
    const place = name === iniName ? ini : placeOf(config, name)
    if (place === undefined) continue
    // Like the package: root's, for svcd to read. Keys are svcd's own.
    const uid = name.startsWith('config/named/') ? owner?.uid : 0
    kept.push(...(await placeFile(place, entry, owner && { ...owner, uid: uid ?? 0 })))
  }
  if (found.has(iniName)) kept.push(...(await shippedAgain(found, config.paths.templates)))
  return kept
}

/** Templates that a backup does not hold were as they are shipped: those that were edited since are put aside. */
async function shippedAgain(found: ReadonlyMap<string, Entry>, directory: string): Promise<string[]> {
  const kept: string[] = []
  for (const entry of await readdir(shippedTemplates, { recursive: true, withFileTypes: true })) {
    const path = relative(shippedTemplates, join(entry.parentPath, entry.name))
    if (!entry.isFile() || found.has(`config/templates/${path}`)) continue
    const place = join(directory, path)
    if (await exists(place))
      kept.push(
        ...(await placeFile(place, { bytes: await readFile(join(shippedTemplates, path)), mode: 0o644 }))
      )
  }
  return kept
}

/** Puts a file in its place; gives where the one that it replaces is kept. An editor's copy: no template is named so. */
async function placeFile(place: string, { bytes, mode }: Entry, owner?: Owner): Promise<string[]> {
  await makeTrusted(dirname(place), 0o755)
  // Where the place is a link, as certbot makes them, the file that it leads to is replaced.
  const target = await unlessMissing(trustedPath(place), place)
  const name = basename(target)
  return inTrusted(dirname(target), async ({ at }) => {
    const held = await unlessMissing(open(at(name), FILE), undefined)
    const was = await held?.stat()
    const before = await held?.readFile().finally(() => held.close())
    if (before?.equals(bytes)) return []
    const aside = `${place}.before-restore~`
    if (before)
      await inTrusted(dirname(aside), beside =>
        replaceDurably(beside.at(basename(aside)), before, was && was.mode & 0o777)
      )
    await replaceDurably(at(name), bytes, (was?.mode ?? mode) & 0o777)
    const whose = was && process.getuid?.() === 0 ? was : was ? undefined : owner
    if (whose) await lchown(at(name), whose.uid, whose.gid)
    return before ? [aside] : []
  })
}
