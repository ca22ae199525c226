import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Remote } from '../../lib/helper/transfer/remote.js'
import { makeSystem, requireNode, startNode } from '../image/node.js'
import { makeTree } from '../image/small-tree.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { notesIn } from '../support/notes.js'
import { until } from '../support/until.js'

requireNode()

/**
 * A controller and a node of its with an ssh server, both on this machine; `ask` posts and waits for the
 * record.
 */
async function beginning(t: Test) {
  const port = await freePort()
  const c = await Controller.start(t, `ssh.port=${port}`, 'ssh.time_limit=2m')
  const remote = new Remote({ state: join(c.directory, 'state'), sshKey: '', sshPort: port })
  await remote.prepare()
  const root = join(c.directory, 'node')
  await makeSystem(root, readFileSync(remote.publicKey, 'utf8'))
  await startNode(t, root, [], port)
  await c.post('/config/network/loop', { network: '127.0.0.0/8' })
  await c.post('/config/group/loop', { interfaces: [{ interface: 'BOOTIF', network: 'loop' }] })
  for (const name of ['l1', 'l2']) await c.post(`/config/node/${name}`, { group: 'loop' })
  await c.post('/config/osimage/taken', { grab_exclude: ['/etc/ssh'] })
  const ask = async (path: string, body: object) => {
    const answer = await c.post(path, body)
    t.equal(answer.status, 200, answer.text)
    t.match(answer.body, { message: 'queued', request_id: /^[0-9a-f]{32}$/ })
    const id: string = answer.body.request_id
    for (;;) {
      const record = (await c.get(`/monitor/request/${id}`)).body.monitor.request[id]
      if (record.ended !== null) return record
      await sleep(20)
    }
  }
  const images = join(c.directory, 'images')
  return { c, root, images, ask, path: (name: string) => join(images, 'taken', name) }
}

// rules 9.7, 1.6
t.test('grab: a dry run, the first, and one that replaces it', async t => {
  const { c, root, images, ask, path } = await beginning(t)
  const image = async () => (await c.get('/config/osimage/taken')).body.config.osimage.taken
  const dry = await ask('/config/node/l1/_osgrab', { osimage: 'taken', dryrun: true })
  t.match(dry, { kind: 'grab', object: 'OS image taken', state: 'done' })
  t.ok(dry.results['l1.changes'].includes('new etc/motd'), 'the list of changes is in the record')
  t.ok(dry.lines.includes('l1: new etc/motd'))
  t.strictSame(existsSync(images) ? readdirSync(images) : [], [], 'nothing is made')
  t.equal((await image()).path, null)

  t.match(await ask('/config/node/l1/_osgrab', { osimage: 'taken' }), { state: 'done' })
  t.equal((await image()).path, join(images, 'taken'))
  t.equal(readFileSync(path('etc/motd'), 'utf8'), 'first\n')
  t.notOk(existsSync(path('etc/ssh')), 'what is excluded is not taken')
  t.ok(c.state()['tree/taken.json'], 'svcd made the directory')

  writeFileSync(join(root, 'etc/motd'), 'second\n')
  mkdirSync(path('etc/ssh'))
  writeFileSync(path('etc/ssh/kept'), 'of the image')
  const again = await ask('/config/node/l1/_osgrab', {
    config: { node: { l1: { osimage: 'taken', nodry: true } } }
  })
  t.match(again, { state: 'done', results: { l1: { state: 'done' } } })
  t.ok(again.results['l1.changes'].includes('changed etc/motd'))
  t.equal(readFileSync(path('etc/motd'), 'utf8'), 'second\n')
  t.equal(
    readFileSync(path('etc/ssh/kept'), 'utf8'),
    'of the image',
    'what is left out stays as the image has it'
  )
  t.strictSame(readdirSync(images), ['taken'])
  t.strictSame(notesIn(join(c.directory, 'state')), [])

  // Deleted, the directory goes with it, since svcd made it.
  t.equal((await c.get('/config/osimage/taken/_delete')).status, 204)
  await until(() => readdirSync(images).length === 0)
})

t.test(
  'grab: a tree that stands elsewhere below the image directory, and one that cannot be replaced',
  async t => {
    const { c, images, ask } = await beginning(t)
    makeTree(join(images, 'debian', 'twelve'))
    await c.post('/config/osimage/taken', { path: join(images, 'debian', 'twelve') })
    t.match(await ask('/config/node/l1/_osgrab', { osimage: 'taken' }), { state: 'done' })
    t.equal(readFileSync(join(images, 'debian', 'twelve', 'etc/motd'), 'utf8'), 'first\n')
    t.notOk(c.state()['tree/twelve.json'], 'the directory is the admin’s')
    await c.post('/config/osimage/taken', { path: '/etc' })
    const outside = await c.post('/config/node/l1/_osgrab', { osimage: 'taken' })
    t.equal(outside.status, 503)
    t.match(outside.body.message, /\[image\] directory/)
    const path = join(images, 'no', 'such', 'place')
    await c.post('/config/osimage/taken', { path })
    const nowhere = await c.post('/config/node/l1/_osgrab', { osimage: 'taken' })
    t.equal(nowhere.status, 503)
    t.equal(
      nowhere.body.message,
      `OS image taken: path ${path} cannot be made below [image] directory ${images}: ${join(images, 'no', 'such')} does not exist`
    )
  }
)

// rules 9.8
t.test('push: to a node, to a group of which one node is away', async t => {
  const { root, ask, path } = await beginning(t)
  await ask('/config/node/l1/_osgrab', { osimage: 'taken' })
  writeFileSync(path('etc/motd'), 'from the image\n')
  const dry = await ask('/config/node/l1/_ospush', { osimage: 'taken', dryrun: true })
  t.ok(dry.results['l1.changes'].includes('changed etc/motd'))
  t.equal(readFileSync(join(root, 'etc/motd'), 'utf8'), 'first\n')
  t.match(await ask('/config/node/l1/_ospush', { osimage: 'taken' }), { kind: 'push', state: 'done' })
  t.equal(readFileSync(join(root, 'etc/motd'), 'utf8'), 'from the image\n')

  writeFileSync(path('etc/motd'), 'to the group\n')
  rmSync(path('var'), { recursive: true })
  const group = await ask('/config/group/loop/_ospush', { osimage: 'taken' })
  t.match(group, {
    state: 'failed',
    message: 'failed: 1 of 2 nodes failed: l2',
    results: { l1: { state: 'done' }, l2: { state: 'failed', message: /node l2 .*no ssh server runs there/ } }
  })
  t.equal(
    readFileSync(join(root, 'etc/motd'), 'utf8'),
    'to the group\n',
    'the others are pushed to all the same'
  )
})
