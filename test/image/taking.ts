import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { loadConfig } from '../../lib/config/load.js'
import { copyFromNode, type FromNodeRequest } from '../../lib/helper/transfer/node-transfer.js'
import { Remote } from '../../lib/helper/transfer/remote.js'
import { freePort } from '../support/free-port.js'
import { checkout, output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { listener, makeSystem } from './node.js'

/** `[image] identity` as it is shipped. */
export const { identity } = loadConfig(join(checkout, 'etc/svcd.ini'), []).image

/** The system in `root`, which lets the controller `remote` in, and grabs from it. */
export async function beginning(t: Test) {
  const directory = scratch(t)
  const remote = new Remote({ state: join(directory, 'my state'), sshKey: '', sshPort: await freePort() })
  await remote.prepare()
  const root = join(directory, 'node')
  await makeSystem(root, await readFile(remote.publicKey, 'utf8'))
  const take = async (options: Partial<FromNodeRequest> = {}) => {
    const heard = listener()
    const { changes } = await copyFromNode({
      ...{ remote, node: 'node001', address: '127.0.0.1', tree: undefined, work: join(directory, 'work') },
      ...{ filesystems: [], dryrun: false, signal: new AbortController().signal },
      ...{ timeLimitMs: 60_000, ...heard, ...options },
      exclude: [...identity, ...(options.exclude ?? [])],
      change: text => {
        heard.change(text)
        options.change?.(text)
      }
    })
    t.equal(changes, heard.changes.length, 'each change is heard')
    return heard
  }
  const shell = (script: string) => output('sh', ['-c', `cd "$1" && ${script}`, '', root])
  return { directory, remote, root, take, shell, path: (name: string) => join(directory, name) }
}
