import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { identity, keptByPush } from '../../../lib/helper/transfer/selection.js'
import { checkout } from '../../support/programs.js'

/** Whether an rsync pattern without further wildcards than `*` is for a path, or for a directory above it. */
const isFor = (pattern: string, path: string) =>
  new RegExp(`^${pattern.replace(/[.$+]/g, '\\$&').replaceAll('*', '[^/]*')}(/.*)?$`).test(path)

// rules 9.7, 9.8
t.test('a push leaves each file as it is that the install script writes into an image', async t => {
  const directory = join(checkout, 'templates/install/lib')
  const text = readdirSync(directory)
    .map(name => readFileSync(join(directory, name), 'utf8'))
    .join('\n')
  const written = [
    ...text.matchAll(/\bimage_(?:place|block|link)\b.*?[ "](\/(?:boot|etc|usr|var)\/[^"\s]*)/g)
  ].map(([, path = '']) => path.replace(/\$\{[^}]*\}|\$\w+/g, 'x'))
  t.ok(written.length > 10)
  // Links that enable units are named by what they enable.
  for (const path of written)
    if (path !== '/etc/systemd/system/x.wants/x')
      t.ok(
        [...identity, ...keptByPush].some(pattern => isFor(pattern, path)),
        path
      )
  for (const [, unit = ''] of text.matchAll(/networkd_enable \S+ (\S+)/g))
    t.ok(
      keptByPush.some(pattern => isFor(pattern, `/etc/systemd/system/x.wants/${unit}`)),
      unit
    )
})
