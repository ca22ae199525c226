import { lchown, open, readdir, readFile } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Config } from '../config/types.js'
import { exists, replaceAmongOthers, syncDirectory, unlessMissing } from '../disk/file.js'
import { FILE, inTrusted, makeTrusted, type OpenDirectory, trustedPath } from '../disk/open-directory.js'

export interface Owner {
  readonly uid: number
  readonly gid: number
}

export interface Entry {
  readonly bytes: Buffer
  readonly mode: number
}

/** Restores the configuration files; returns the copies of the files that it replaced. */
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
    // As in the package, files belong to root and svcd may read them. Keys belong to svcd.
    const uid = name.startsWith('config/named/') ? owner?.uid : 0
    kept.push(...(await placeFile(place, entry, owner && { ...owner, uid: uid ?? 0 })))
  }
  if (found.has(iniName)) kept.push(...(await restoreShippedTemplates(found, config.paths.templates)))
  return kept
}

/** Restores shipped templates that are not in the backup; returns the copies of edited ones. */
async function restoreShippedTemplates(found: ReadonlyMap<string, Entry>, directory: string) {
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

/** Restores a file; returns the copy of the replaced one, whose name (`~`) no template has. */
async function placeFile(place: string, { bytes, mode }: Entry, owner?: Owner): Promise<string[]> {
  await makeTrusted(dirname(place), 0o755)
  // A link, such as certbot creates, is followed.
  const target = await unlessMissing(trustedPath(place), place)
  const name = basename(target)
  return inTrusted(dirname(target), async directory => {
    const { at } = directory
    const held = await unlessMissing(open(at(name), FILE), undefined)
    const was = await held?.stat()
    const before = await held?.readFile().finally(() => held.close())
    if (before?.equals(bytes)) return []
    const aside = `${place}.before-restore~`
    if (before)
      await inTrusted(dirname(aside), beside => replaceIn(beside, basename(aside), before, was?.mode ?? mode))
    await replaceIn(directory, name, bytes, was?.mode ?? mode)
    const whose = was && process.getuid?.() === 0 ? was : was ? undefined : owner
    if (whose) await lchown(at(name), whose.uid, whose.gid)
    return before ? [aside] : []
  })
}

async function replaceIn({ at }: OpenDirectory, name: string, bytes: Buffer, mode: number): Promise<void> {
  await replaceAmongOthers(at(name), bytes, mode & 0o777)
  await syncDirectory(at())
}

/** The directory of the shipped templates. */
export const shippedTemplates = fileURLToPath(new URL('../../templates', import.meta.url))

/** Configuration directories: name in a backup → path. */
export const configDirectories = ({ paths }: Config): readonly (readonly [string, string])[] => [
  ['config/templates', paths.templates],
  ['config/roles', paths.roles],
  ['config/scripts', paths.scripts]
]

const named = <K extends string>(
  section: string,
  values: Readonly<Record<K, string>>,
  ...keys: readonly K[]
) => keys.map(key => [`config/named/${section}.${key}`, values[key]] as const)

/** Files that the ini names, such as keys: name in a backup → path. Files in the state are part of it. */
export const namedFiles = ({ http, ssh, control, store, auth, paths }: Config) =>
  [
    ...named('http', http, 'tls_certificate', 'tls_key'),
    ...named('ssh', ssh, 'key'),
    ...named('control', control, 'ca_file'),
    ...named('store', store, 'ca', 'cert', 'key', 'password_file'),
    ...named('auth', auth, 'ldap_ca_certificate', 'ldap_bind_password_file'),
    ...named('auth', auth, 'oidc_ca_certificate', 'oidc_client_secret_file')
  ].filter(([, place]) => place !== '' && relative(paths.state, place).startsWith('..'))

/** Name of the ini in a backup. */
export const iniName = 'config/svcd.ini'

/** Returns the path of an entry below `config/`; undefined if no key of the ini names it. */
function placeOf(config: Config, entry: string): string | undefined {
  for (const [name, place] of namedFiles(config)) if (entry === name) return place
  for (const [name, place] of configDirectories(config))
    if (entry.startsWith(`${name}/`)) return join(place, entry.slice(name.length + 1))
  return undefined
}
