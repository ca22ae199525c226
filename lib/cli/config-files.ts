import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Config } from '../config/types.js'

/** The templates that came with this program. */
export const shippedTemplates = fileURLToPath(new URL('../../templates', import.meta.url))

/** Directories of the configuration: name in a backup → place. */
export const configDirectories = ({ paths }: Config): readonly (readonly [string, string])[] => [
  ['config/templates', paths.templates],
  ['config/roles', paths.roles],
  ['config/scripts', paths.scripts]
]

/** Files that the ini names, keys above all: name in a backup → place. Those in the state are kept with it. */
export const namedFiles = ({
  http,
  ssh,
  control,
  store,
  paths
}: Config): readonly (readonly [string, string])[] =>
  [
    ['config/named/http.tls_certificate', http.tls_certificate] as const,
    ['config/named/http.tls_key', http.tls_key] as const,
    ['config/named/ssh.key', ssh.key] as const,
    ['config/named/control.ca_file', control.ca_file] as const,
    ['config/named/store.ca', store.ca] as const,
    ['config/named/store.cert', store.cert] as const,
    ['config/named/store.key', store.key] as const,
    ['config/named/store.password_file', store.password_file] as const
  ].filter(([, place]) => place !== '' && relative(paths.state, place).startsWith('..'))

/** Name of the ini in a backup. */
export const iniName = 'config/svcd.ini'

/** Where an entry of a backup below `config/` belongs; undefined for one that no key of the ini names. */
export function placeOf(config: Config, entry: string): string | undefined {
  for (const [name, place] of namedFiles(config)) if (entry === name) return place
  for (const [name, place] of configDirectories(config))
    if (entry.startsWith(`${name}/`)) return join(place, entry.slice(name.length + 1))
  return undefined
}
