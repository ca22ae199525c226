import { readFileSync } from 'node:fs'

const read = (file: string) => readFileSync(new URL(file, import.meta.url), 'utf8')

/** The build writes the commit beside this file; it is `unknown` outside git or unbuilt. */
function bakedCommit(): string {
  try {
    return read('commit').trim()
  } catch {
    return 'unknown'
  }
}

/** The answer of `GET /version` and `svcd version` (rules 6.4). */
export const version: { readonly service: string; readonly api: number; readonly commit: string } =
  Object.freeze({ service: JSON.parse(read('../package.json')).version, api: 1, commit: bakedCommit() })

/** The output of `svcd --version` and `svcctl --version`. */
export const versionLine = `svcd ${version.service}, api ${version.api}, commit ${version.commit}\n`
