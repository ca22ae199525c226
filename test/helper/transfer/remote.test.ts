import { copyFile, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { checkReachable } from '../../../lib/helper/transfer/reach.js'
import { Remote } from '../../../lib/helper/transfer/remote.js'
import { makeHostKey, makeSystem, requireNode, startNode } from '../../image/node.js'
import { freePort } from '../../support/free-port.js'
import { output } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'

requireNode()

const never = new AbortController().signal

// rules 9.9
t.test('the key is made at the first use, once, and stays', async t => {
  const state = scratch(t)
  const remote = new Remote({ state, sshKey: '', sshPort: 22 })
  await Promise.all([remote.prepare(), remote.prepare()])
  t.equal((await stat(remote.key)).mode & 0o777, 0o600)
  t.equal((await stat(join(state, 'ssh'))).mode & 0o777, 0o700)
  const line = await readFile(remote.publicKey, 'utf8')
  t.match(line, /^ssh-ed25519 [^ ]+ svcd\n$/)
  await new Remote({ state, sshKey: '', sshPort: 22 }).prepare()
  t.equal(await readFile(remote.publicKey, 'utf8'), line, 'another start takes it as it is')
  t.strictSame((await readdir(join(state, 'ssh'))).sort(), ['id_ed25519', 'id_ed25519.pub', 'known_hosts'])

  const other = scratch(t)
  await new Remote({ state: other, sshKey: '', sshPort: 22 }).prepare()
  t.not(await readFile(join(other, 'ssh/id_ed25519.pub'), 'utf8'), line, 'no two controllers have the same')

  // A start that was killed between the two names.
  await rm(remote.key)
  const again = new Remote({ state, sshKey: '', sshPort: 22 })
  await again.prepare()
  t.equal(await output('ssh-keygen', ['-y', '-f', again.key]), await readFile(again.publicKey, 'utf8'))
})

t.test('a key of the ini that cannot serve is refused by name', async t => {
  const state = scratch(t)
  const key = join(state, 'own key')
  const prepare = () => new Remote({ state, sshKey: key, sshPort: 22 }).prepare()
  await t.rejects(prepare(), { message: `the ssh key ${key}, named by [ssh] key, cannot be read: ENOENT` })
  await mkdir(key)
  await t.rejects(prepare(), { message: `the ssh key ${key}, named by [ssh] key, is no file` })
  await rm(key, { recursive: true })
  await writeFile(key, 'x', { mode: 0o644 })
  await t.rejects(prepare(), { message: /own key.* can be read by others, which ssh refuses: chmod 600/ })
})

t.test('a node', async t => {
  const directory = scratch(t)
  // ssh and rsync read such names again: they have to arrive as they are.
  const state = join(directory, `st ate'"%h$(id)\${HOME}`)
  await mkdir(state)
  const remote = new Remote({ state, sshKey: '', sshPort: await freePort(), connectTimeout: 2 })
  await remote.prepare()
  const root = join(directory, 'node')
  await makeSystem(root, await readFile(remote.publicKey, 'utf8'))
  const reach = (by = remote, address: string | undefined = '127.0.0.1') =>
    checkReachable(by, 'node001', address, never)
  const known = join(state, 'ssh/known_hosts/node001')

  await t.rejects(checkReachable(remote, 'node001', undefined, never), {
    message: 'node node001 has no address to be reached at'
  })
  await t.rejects(reach(remote, '-oProxyCommand=id'), {
    message: 'node node001 has no address to be reached at'
  })
  await t.rejects(reach(), {
    message: `node node001 refuses connections at 127.0.0.1 port ${remote.port}: no ssh server runs there`
  })

  let node = await startNode(t, root, [], remote.port)
  await reach()
  const first = await readFile(known, 'utf8')
  t.match(first, /^node001 ssh-ed25519 /, 'its key is kept under its name, without the port')
  await reach()
  t.equal(await readFile(known, 'utf8'), first)

  await t.test('another key of the ini, in a place with a strange name', async t => {
    const sshKey = join(directory, "own 'key' %h${HOME}")
    const own = new Remote({ state, sshKey, sshPort: remote.port })
    await output('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', sshKey])
    const authorized = join(root, 'root/.ssh/authorized_keys')
    const before = await readFile(authorized)
    await t.rejects(reach(own), {
      message:
        `node node001 (127.0.0.1) does not accept svcd's ssh key: add the line in ${sshKey}.pub to its ` +
        '/root/.ssh/authorized_keys'
    })
    await copyFile(`${sshKey}.pub`, authorized)
    await reach(own)
    await t.rejects(reach(), { message: /does not accept svcd's ssh key/ })
    await writeFile(authorized, before)
  })

  await t.test('no rsync there', async t => {
    const rsync = join(root, 'usr/bin/rsync')
    await output('mv', [rsync, `${rsync}.away`])
    await t.rejects(reach(), { message: 'node node001 has no rsync: install it there' })
    await output('mv', [`${rsync}.away`, rsync])
  })

  await t.test('another host key is refused until the node is forgotten', async t => {
    const changed =
      `node node001 shows another host key at 127.0.0.1 than before: if it was installed anew, remove ${known}; ` +
      'otherwise another machine answers there'
    await node.stop()
    const hostKey = join(root, 'etc/ssh/ssh_host_ed25519_key')
    await rm(hostKey)
    await rm(`${hostKey}.pub`)
    // Only its keys of other types, which are not known.
    node = await startNode(t, root, [], remote.port)
    await t.rejects(reach(), { message: changed })
    await node.stop()
    await makeHostKey(root, 'ed25519')
    node = await startNode(t, root, [], remote.port)
    await t.rejects(reach(), { message: changed })
    t.equal(await readFile(known, 'utf8'), first, 'the refused key is not kept')
    await remote.forget('node001')
    await reach()
    await t.rejects(readFile(`${known}.old`))
    await remote.forget('node002')
  })

  await node.stop()
  await t.test('a machine that takes connections and says nothing', async t => {
    const silent = createServer(socket => socket.on('error', () => {})).listen(remote.port, '127.0.0.1')
    t.teardown(() => silent.close())
    await t.rejects(reach(), { message: `node node001 does not answer at 127.0.0.1 port ${remote.port}` })
  })
})
