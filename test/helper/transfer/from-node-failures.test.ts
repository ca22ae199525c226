import { existsSync, rmSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import type { FromNodeRequest } from '../../../lib/helper/transfer/node-transfer.js'
import { remember, requireNode, startNode } from '../../image/node.js'
import { beginning } from '../../image/taking.js'
import { output } from '../../support/programs.js'

requireNode()

// rules 9.7
t.test('a grab that fails leaves the image as it was, and says why', async t => {
  const { remote, root, take, path, shell } = await beginning(t)
  await shell(`for i in 1 2 3; do echo $i > small$i; done; head -c 3000000 /dev/urandom > ubig
    mv usr/bin/rsync usr/bin/rsync.real; ln -s rsync.real usr/bin/rsync`)
  let node = await startNode(t, root, [], remote.port)
  await take({ work: path('image') })
  // Of another size: in the same second rsync would take it for the same file.
  await shell('for i in 1 2 3; do echo 22 > small$i; done; head -c 3000001 /dev/urandom > ubig')
  const changedInImage = await remember(path('image'))
  let works = 0
  const again = (options: Partial<FromNodeRequest> = {}) => {
    works += 1
    return take({ tree: path('image'), work: path(`work${works}`), ...options })
  }
  const fails = async (message: string | RegExp, options: Partial<FromNodeRequest> = {}) => {
    await t.rejects(again(options), { message })
    t.strictSame(await changedInImage(), [])
  }

  // A minute for the large file: its change is told when it begins.
  await shell(`rm usr/bin/rsync; cat > usr/bin/rsync <<'end'
#!/bin/sh
first=$1
shift
exec rsync.real "$first" --bwlimit="$(cat /rate)" "$@"
end
chmod 755 usr/bin/rsync; echo 50 > rate; echo v > vanishing`)
  const controller = new AbortController()
  const halfWay = (act: () => void) => (text: string) => text === 'changed ubig' && act()
  await t.rejects(again({ signal: controller.signal, change: halfWay(() => controller.abort()) }), {
    name: 'ProgramError',
    kind: 'aborted'
  })
  t.strictSame(await changedInImage(), [])
  t.equal(await readFile(path(`work${works}/small1`), 'utf8'), '22\n', 'it was half-way')
  await fails('node node001: rsync took longer than 1 s and was ended', {
    tree: undefined,
    timeLimitMs: 1000
  })
  await fails('node node001: the connection was lost', { change: halfWay(node.stop) })

  node = await startNode(t, root, [], remote.port)
  await shell('echo 1000 > rate')
  const left = await again({ change: halfWay(() => rmSync(join(root, 'vanishing'))) })
  t.ok(left.lines.includes('files vanished on node node001 while they were read: it is running'))
  t.notOk(existsSync(path(`work${works}/vanishing`)), 'what a running system removes meanwhile is no failure')
  await node.stop()
  await shell('rm usr/bin/rsync; ln -s rsync.real usr/bin/rsync')
  node = await startNode(t, root, [], remote.port)

  await t.test('no room here', async t => {
    await mkdir(path('small'))
    await output('mount', ['-t', 'tmpfs', '-o', 'size=12m', 'none', path('small')])
    t.teardown(() => output('umount', [path('small')]))
    await t.rejects(take({ work: path('small/work') }), {
      message: /^node node001: .*No space left on device/
    })
    await t.rejects(again({ work: path('small/copy') }), { message: /^cp failed .*No space left on device/ })
  })
  await fails(/is not empty$/, { work: path('image') })
  await fails('grab_exclude: "/" names no path below the root', { exclude: ['/'] })

  await writeFile(join(root, 'root/.ssh/authorized_keys'), '')
  await fails(/^node node001 \(127.0.0.1\) does not accept svcd's ssh key/)
  await node.stop()
  await fails(/^node node001 refuses connections at 127.0.0.1 port \d+: no ssh server runs there$/)
})
