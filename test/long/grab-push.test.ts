import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { copyFromNode, copyToNode } from '../../lib/helper/transfer/node-transfer.js'
import { Remote } from '../../lib/helper/transfer/remote.js'
import { compareTrees } from '../image/compare-trees.js'
import { age, listener, requireNode, startNode } from '../image/node.js'
import { identity } from '../image/taking.js'
import { freePort } from '../support/free-port.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { debianTree } from './debian-tree.js'

// A real Debian as the node: what a grab takes is what it has, and how long each way takes
// (docs/grab-and-push.md).

t.test('a Debian node, there and back', { timeout: 1_800_000 }, async t => {
  requireNode()
  const tree = await debianTree({ packages: ['linux-image-cloud-amd64', 'openssh-server', 'rsync'] })
  const directory = scratch(t)
  const [root, image, second] = ['node', 'image', 'second'].map(name => join(directory, name)) as [
    string,
    string,
    string
  ]
  await output('cp', ['-a', '-x', tree, root])
  const remote = new Remote({ state: join(directory, 'state'), sshKey: '', sshPort: await freePort() })
  await remote.prepare()
  await mkdir(join(root, 'root/.ssh'), { recursive: true, mode: 0o700 })
  await writeFile(join(root, 'root/.ssh/authorized_keys'), await readFile(remote.publicKey))
  await mkdir(join(root, 'run/sshd'), { recursive: true })
  await writeFile(join(root, 'etc/machine-id'), `${'0'.repeat(32)}\n`)
  await age(root)
  const node = await startNode(t, root, [], remote.port)

  const timed = async (what: string, work: (heard: ReturnType<typeof listener>) => Promise<unknown>) => {
    const heard = listener()
    const start = performance.now()
    await work(heard)
    t.comment(
      `${what}: ${((performance.now() - start) / 1000).toFixed(2)} s, ${heard.changes.length} changes`
    )
    return heard
  }
  const common = {
    ...{
      remote,
      node: 'node001',
      address: '127.0.0.1',
      filesystems: ['/'],
      exclude: [...identity, '/var/log/*']
    },
    ...{ dryrun: false, signal: new AbortController().signal, timeLimitMs: 600_000 }
  }
  const size = await output('du', ['-sm', root])
  t.comment(
    `the node: ${size.split('\t')[0]} MiB, ${(await output('find', [root, '-xdev', '-printf', '.'])).length} entries`
  )

  await timed('first grab', heard => copyFromNode({ ...common, ...heard, tree: undefined, work: image }))
  const without = ['proc', 'sys', 'dev', 'run', 'tmp', 'var/tmp', 'var/log', 'etc'].map(name => `./${name}`)
  t.strictSame(await compareTrees(root, image, { holes: false, without }), [])
  t.equal(await readFile(join(image, 'etc/machine-id'), 'utf8'), '', 'no identity in an image')
  t.strictSame(
    (await readdir(join(image, 'etc/ssh'))).filter(name => name.startsWith('ssh_host_')),
    []
  )

  const dry = await timed('dry run, nothing changed', heard =>
    copyFromNode({ ...common, ...heard, dryrun: true, tree: image, work: second })
  )
  t.strictSame(dry.changes, [])
  await timed('second grab, nothing changed', heard =>
    copyFromNode({ ...common, ...heard, tree: image, work: second })
  )
  t.strictSame(await compareTrees(image, second, { holes: false, without: ['./run'] }), [])

  t.strictSame(
    (await timed('push, nothing changed', heard => copyToNode({ ...common, ...heard, tree: image }))).changes,
    []
  )
  await writeFile(join(image, 'etc/motd'), 'a new day\n')
  const one = await timed('push of one file', heard => copyToNode({ ...common, ...heard, tree: image }))
  t.strictSame(one.changes, ['changed etc/motd'])
  await rm(join(root, 'usr/share'), { recursive: true })
  const part = await timed('push of a lost /usr/share', heard =>
    copyToNode({ ...common, ...heard, tree: image })
  )
  t.ok(part.changes.length > 1000)
  t.strictSame(await compareTrees(join(image, 'usr'), join(root, 'usr'), { holes: false }), [])
  t.equal(await readFile(join(root, 'etc/machine-id'), 'utf8'), `${'0'.repeat(32)}\n`)
  t.ok((await readdir(join(root, 'etc/ssh'))).includes('ssh_host_ed25519_key'))

  await t.test('a node that freezes is given up', async t => {
    const slow = `#!/bin/sh\nkill -STOP -1\nexec /usr/bin/rsync.real "$@"\n`
    await output('mv', [join(root, 'usr/bin/rsync'), join(root, 'usr/bin/rsync.real')])
    await writeFile(join(root, 'usr/bin/rsync'), slow, { mode: 0o755 })
    await timed('noticed', heard =>
      t.rejects(copyFromNode({ ...common, ...heard, tree: undefined, work: join(directory, 'third') }), {
        message: 'node node001: the connection was lost'
      })
    )
  })
  await node.stop()
})
