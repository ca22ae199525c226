import { resolve } from 'node:path'
import type { Config } from '../config/types.js'
import { describeSiteKey, exportSiteKey, makeSiteKey, signWithSiteKey } from '../image/site-key.js'
import { UsageError } from './usage.js'

/** Makes, shows, exports or uses the key of a site for Secure Boot (rules 15.14); returns what to print. */
export async function siteKeys(
  { paths, controller }: Pick<Config, 'paths' | 'controller'>,
  [about, verb, file, ...rest]: readonly string[]
): Promise<string> {
  const isOf = (name: string, operands: number) =>
    about === 'secureboot' && verb === name && (file === undefined ? 0 : 1) === operands && rest.length === 0
  const { state } = paths
  if (isOf('make', 0)) await makeSiteKey(state, controller.name)
  if (isOf('make', 0) || isOf('show', 0)) return describeSiteKey(state)
  const path = resolve(file ?? '')
  if (isOf('export', 1))
    return `${(await exportSiteKey(state, path)).map(name => `${path}/${name}`).join('\n')}\n`
  if (!isOf('sign', 1))
    throw new UsageError('keys takes secureboot make, show, export DIRECTORY or sign FILE')
  await signWithSiteKey(state, path, `${path}.signed`)
  return `${path}.signed\n`
}
