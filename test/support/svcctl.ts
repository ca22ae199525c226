import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { builtTree } from './built-tree.js'
import type { Controller } from './controller.js'

/**
 * What a shell needs in its environment so that `svcctl` asks a controller, logged in with its token. The
 * program and the token are put below `directory`, which is empty.
 */
export function svcctlFor(directory: string, { daemon, token }: Controller): Record<string, string> {
  mkdirSync(join(directory, 'code'))
  const tree = builtTree(join(directory, 'code'))
  const url = `http://127.0.0.1:${daemon.port}`
  const cache = join(directory, 'cache')
  mkdirSync(join(cache, 'svcd'), { recursive: true, mode: 0o700 })
  writeFileSync(join(cache, 'svcd', `token-${encodeURIComponent(url)}`), `${token}\n`, { mode: 0o600 })
  return { PATH: `${join(tree, 'bin')}:${process.env.PATH}`, SVCD_URL: url, XDG_CACHE_HOME: cache }
}
