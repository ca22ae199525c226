import type { Config } from '../config/types.js'
import { imageShell } from '../helper/image-shell.js'
import { askDaemon } from './transfer.js'
import { UsageError } from './usage.js'

/**
 * Opens a shell in an image's directory, as the running daemon names it; returns its exit status. Only root
 * on the controller may do so: a token must not give a shell there. Throws Error if it cannot.
 */
export async function osimageShell(config: Config, [what, name = '']: readonly string[]): Promise<number> {
  if (what !== 'shell') throw new UsageError(`osimage has no ${what}: type svcd osimage shell NAME`)
  if (process.getuid?.() !== 0)
    throw new Error(
      `a shell in OS image ${name} takes root on the controller: type sudo svcd osimage shell ${name}`
    )
  const answer = await askDaemon(config, 'GET', `/config/osimage/${encodeURIComponent(name)}`)
  const { config: told } = JSON.parse(String(answer)) as Told
  const path = told.osimage[name]?.path ?? `${config.image.directory}/${name}`
  return imageShell(config, name, path, text => process.stderr.write(`${text}\n`))
}

interface Told {
  readonly config: { readonly osimage: Readonly<Record<string, { readonly path: string | null }>> }
}
