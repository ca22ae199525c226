import { join } from 'node:path'
import { start } from './child.js'
import type { Daemon } from './daemon.js'

/** svcd as a command, on the same ini and directories as a daemon; its whole output. */
export async function svcd(daemon: Daemon, set: readonly string[], ...words: string[]) {
  const settings = [
    ...['state', 'files'].map(name => `paths.${name}=${daemon.path(name)}`),
    `image.directory=${daemon.path('images')}`,
    ...set
  ]
  const child = start(join(daemon.tree, 'bin', 'svcd'), [
    ...words,
    ...['--config', join(daemon.tree, 'etc', 'svcd.ini')],
    ...settings.flatMap(value => ['--set', value])
  ])
  const { code, stdout, stderr } = await child.ended
  return { code, text: stdout + stderr }
}
