import { chmodSync, chownSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { beginning } from './imaging.js'
import { makeTree } from './small-tree.js'

// rules 9.2
t.test('a directory whose root no node should have is refused with the command that mends it', async t => {
  const { c, tree, image, pack, clean } = await beginning(t)
  const before = await image()
  for (const [mode, uid, gid] of [
    [0o700, 0, 0],
    [0o750, 0, 0],
    [0o777, 0, 0],
    [0o1777, 0, 0],
    [0o2755, 0, 0],
    [0o711, 0, 0],
    [0o755, 1000, 0],
    [0o755, 0, 1000],
    [0o755, 65534, 65534]
  ] as const) {
    chownSync(tree, uid, gid)
    chmodSync(tree, mode)
    const { status, body } = await pack()
    t.equal(status, 503, `${mode.toString(8)} ${uid}`)
    t.match(body.message, `belongs to user ${uid} and group ${gid} with mode ${mode.toString(8)}`)
    t.match(body.message, `chown root:root ${tree} && chmod 00755 ${tree}`)
    t.match(await c.post('/config/osimage/compute/kernel', { kernelversion: '6.1.0-9' }), { status: 503 })
  }
  t.same(await image(), before)
  clean('refused')
  for (const mode of [0o755, 0o555]) {
    chownSync(tree, 0, 0)
    chmodSync(tree, mode)
    t.equal((await pack()).status, 204, mode.toString(8))
  }
})

// rules 9.2
t.test('an image without an init is refused', async t => {
  const { c, tree, image, pack } = await beginning(t, { 'etc/hostname': 'x', 'usr/bin/sleep': '' })
  const init = (target?: string) => {
    rmSync(join(tree, 'sbin/init'), { force: true })
    if (target !== undefined) symlinkSync(target, join(tree, 'sbin/init'))
  }
  // The last one is a file of the controller.
  for (const target of [undefined, '/lib/systemd/systemd', 'init', '../../../../../../../usr/bin/env']) {
    init(target)
    const { status, body } = await pack()
    t.equal(status, 503, `${target}`)
    t.match(body.message, /OS image compute: its directory .* has no \/sbin\/init.*install systemd-sysv/)
  }
  t.match(await image(), { imagefile: null })
  makeTree(tree, { 'lib/systemd/systemd': '' })
  init('/lib/systemd/systemd')
  t.equal((await pack()).status, 204)
  await c.post('/config/osimage/compute', { kerneloptions: 'quiet init=/opt/init' })
  t.match(await pack(), { status: 503, body: { message: /has no \/opt\/init/ } })
  makeTree(tree, { 'opt/init': '' })
  init()
  t.equal((await pack()).status, 204, 'the one that the kernel is told')
})

// rules 4.2
t.test('kernel options that name a disk are refused', async t => {
  const { c } = await beginning(t)
  await c.post('/config/group/g', {})
  await c.post('/config/node/n', { group: 'g' })
  for (const path of ['osimage/compute', 'group/g', 'node/n'])
    for (const options of [
      'root=/dev/sda1',
      'quiet root=UUID=1 ro',
      'root=svc',
      'ro  root=',
      'quiet resume=UUID=1'
    ]) {
      const before = c.state()
      const { status, body } = await c.post(`/config/${path}`, { kerneloptions: options })
      t.equal(status, 400, `${path} ${options}`)
      t.match(body.message, /"kerneloptions" holds r\w+=\S*: svcd tells the kernel root=svc/)
      t.same(c.state(), before)
    }
  for (const [options, says] of [
    ['nfsroot=10.0.0.1:/x', /holds nfsroot=\S*: svcd tells the kernel root=svc/],
    ['quiet netroot=iscsi:x', /holds netroot=/],
    ['quiet rd.lvm.lv=rl/root ro', /holds rd\.lvm\.lv=rl\/root: the initramfs waits for that disk/],
    ['rd.luks.uuid=luks-1f', /holds rd\.luks\.uuid=/],
    ['a  rd.md.uuid=f00', /holds rd\.md\.uuid=f00/],
    ['rd.luks.name=x=y', /holds rd\.luks\.name=/],
    ['init=', /holds init=/],
    ['rdinit=/bin/sh', /holds rdinit=/]
  ] as const)
    for (const path of ['osimage/compute', 'group/g', 'node/n']) {
      const { status, body } = await c.post(`/config/${path}`, { kerneloptions: options })
      t.equal(status, 400, `${path} ${options}`)
      t.match(body.message, says)
    }
  for (const path of ['group/g', 'node/n'])
    for (const options of ['init=/bin/bash', 'quiet init=/sbin/initx', 'init=/opt/init ro']) {
      const { status, body } = await c.post(`/config/${path}`, { kerneloptions: options })
      t.equal(status, 400, `${path} ${options}`)
      t.match(body.message, /holds init=\/\S+: set it in "kerneloptions" of the image/)
    }
  for (const options of [
    'init=/lib/systemd/systemd rd.lvm=0 rd.luks=0 rd.md=0',
    'init=/usr/lib/systemd/systemd rd.lvm.conf=0',
    'init=/sbin/init systemd.default_timeout=1 myinit=/x'
  ])
    t.ok((await c.post('/config/node/n', { kerneloptions: options })).status < 300, options)
  for (const options of ['rootdelay=5 rd.root=x noresume', 'systemd.volatile=overlay noroot=1', ''])
    t.ok((await c.post('/config/node/n', { kerneloptions: options })).status < 300, options)
})
