import { chmodSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { typedBelow } from '../support/page.js'
import { scratch } from '../support/scratch.js'
import { svcctlFor, svcctlServed } from '../support/svcctl.js'

// The commands of README and the pages are typed here as they stand there, on one controller, as by a reader. A request that is refused fails the test. test/shell-blocks.test.ts knows which blocks these are.

const c = await Controller.start(t, 'image.initramfs=no', 'boot.takeover=released')
const here = c.directory
const programs = join(here, 'programs')
const svcctl = svcctlFor(scratch(t), c)
const served = await svcctlServed(t, scratch(t))
const put = (path: string, text = 'text\n') => {
  mkdirSync(join(here, path, '..'), { recursive: true })
  writeFileSync(join(here, path), text)
}
// A checkout keeps its state in var, and its files below that.
symlinkSync(join(here, 'state'), join(here, 'var'))
symlinkSync(join(here, 'files'), join(here, 'state/files'))
for (const image of ['debian', 'compute']) {
  put(`images/${image}/etc/os-release`, 'ID=debian\n')
  put(`images/${image}/sbin/init`)
}
put('.ssh/id_ed25519.pub')
for (const file of ['postscript.sh', 'partscript.sh', 'vmlinuz', 'initrd.img']) put(file)
// They go to other machines.
for (const name of ['ssh', 'scontrol']) {
  put(`programs/${name}`, '#!/bin/sh\n')
  chmodSync(join(programs, name), 0o755)
}

/** What the commands below headings of a page print; `but` leaves blocks out, by a text that they hold. */
async function typed(page: string, headings: readonly string[], but = /^$/): Promise<string> {
  const commands = headings
    .map(heading => typedBelow(page, heading, but) || t.fail(`${page} has no commands: ${heading}`))
    .join('')
    .replaceAll('url=http://127.0.0.1:7050', `url=http://127.0.0.1:${c.daemon.port}`)
    .replaceAll('/var/lib/svcd/files', join(here, 'files'))
    .replaceAll('/var/lib/svcd', join(here, 'state'))
    .replaceAll(/curl (?!-f)/g, 'curl --fail-with-body ')
    // What goes into a file is as the controller sent it.
    .replace(/^ *curl (?!.* > ).*/gm, line => line.replace('curl ', "curl -w '\\n' "))
  const env = {
    ...svcctl,
    PATH: `${programs}:${served}:${svcctl.PATH}`,
    HOME: here,
    auth: `x-access-tokens: ${c.token}`,
    url: `http://127.0.0.1:${c.daemon.port}`
  }
  const shell = start('sh', ['-c', `set -eu\ncd ${here}\n${commands}`], { input: '', env })
  const { code, stdout, stderr } = await shell.ended
  if (code !== 0) throw new Error(`${page}, ${headings.join(', ')}: ${stdout.slice(-1000)} ${stderr}`)
  return stdout
}

t.test('README.md, from nothing to a boot script', async t => {
  const said = await typed('README.md', ['Try it'])
  t.match(said, /"node001":\{/)
  t.match(said, /imgargs kernel root=svc .*svc\.node=node001/)
  await typed('README.md', ['Install it'])
  // A request that is refused: this is no JSON.
  const file = join(here, 'state/admin-password')
  const password = readFileSync(file, 'utf8')
  put('state/admin-password', '"\n')
  await t.rejects(typed('README.md', ['Install it']), /there is no token/, 'no error text in $auth')
  put('state/admin-password', password)
})

// rules 3.14, 3.16, 4.25, 6.1, 6.7
t.test('the pages on nodes and groups', async t => {
  for (const [name, network] of Object.entries({ storage: '10.143.0.0/16', backup: '10.144.0.0/16' }))
    await c.post(`/config/network/${name}`, { network })
  t.match(await typed('docs/interfaces.md', ['The interfaces of nodes', 'Options']), /"options":"mtu=9000"/)
  t.match(await typed('docs/inventory.md', ['What nodes are made of']), /^name,cpu\.model,memory\.total/m)
  t.match(await typed('docs/files.md', ['A file']), /server ntp1\.example\.org iburst/)
  const cluster = await typed('docs/files.md', ['Files that see the whole cluster'])
  t.match(cluster, /\n\d[0-9.]+ node001[a-z.]* node001\n/)
  t.match(cluster, /\nNodeName=node001 NodeAddr=\d[0-9.]+ CPUs=64 RealMemory=256000\n/)
  t.match(cluster, /\nPartitionName=compute Nodes=node001\S* Default=YES State=UP\n/)
  t.match(await typed('docs/templates.md', ['Variables of your own']), /"ntp":"group"/)
  await typed('docs/switches-and-bmcs.md', [
    'Unknown machines: found by their switch port',
    'Setting up the BMC'
  ])
  t.match(
    await typed('docs/troubleshooting.md', ['Troubleshooting', 'bmc-only', 'wrong-mac']),
    /see "never-asked" in docs\/troubleshooting\.md \(a package has it in \/usr\/share\/doc\/svcd\)\s+node node001: no boot was seen/
  )
})

// rules 9.2
t.test('the pages on images', async t => {
  await c.post('/config/osimage/debian', { distribution: 'debian' })
  t.equal((await c.get('/config/osimage/debian/_pack')).status, 204)
  t.equal((await c.post('/config/group/compute', { osimage: 'debian' })).status, 204)
  const layout = await typed('docs/disk-layouts.md', ['Use one that comes with svcd', 'Make your own'])
  t.match(layout, /^ {2}volume 'system' 'swap' '2048' 'swap'/m)
  t.match(layout, '"size":"16G"')
  await c.post('/config/group/compute', { disklayout: null, localinstall: null, netboot_once: null })
  await typed('docs/howto.md', ['Go back to an earlier image'])
  t.match((await c.get('/config/osimage/debian')).body.config.osimage.debian.imagefile, /^debian-\w+\.tar/)
  t.match(await typed('docs/troubleshooting.md', ['A rolling update'], /reinstall/), /"pack"|"nodes"|\{/)
  await t.rejects(typed('docs/troubleshooting.md', ['A rolling update']), /names no node: nothing was done/)
})

t.test('docs/howto.md', async t => {
  await typed('docs/howto.md', ['How to', 'Run scripts of your own while a node is installed'])
  t.match(await typed('docs/howto.md', ['Ask svcd from cron']), /^node001,/m)
  await typed('docs/howto.md', ['Give it to nodes'])
  t.match((await c.get('/config/node/node001')).body.config.node.node001, { group: 'disk', netboot: false })
  await typed('docs/howto.md', ['Install a node again', 'Replace a broken machine'])
  t.match((await c.get('/config/node/node001')).body.config.node.node001, { netboot: true })
  t.match(await typed('docs/howto.md', ['Place a secret on nodes']), /rootkey/)
  await typed('docs/howto.md', ['A munge key'])
  await c.post('/config/osimage/rocky', {})
  const { osimage } = (await c.get('/config/group/compute')).body.config.group.compute
  const kickstart = await typed('docs/howto.md', ['Install with the Red Hat installer'])
  const back = { osimage, provision_method: null, netboot_once: null }
  t.equal((await c.post('/config/group/compute', back)).status, 204)
  t.match(kickstart, /^#!ipxe$[\s\S]*^rootpw --lock$/m)
  t.same(readdirSync(join(here, 'files')).filter(name => name.startsWith('rocky-')).length, 2)
  await c.post('/config/node/node001', { group: 'compute' })
})

// rules 12.1, 12.8
t.test('docs/day-two.md, in its order', async t => {
  await c.get('/config/osimage/debian/osimagetag/november/_delete')
  await c.post('/config/node/node002', { group: 'compute' })
  put('images/debian/etc/motd')
  await typed('docs/day-two.md', ['A new image for all nodes, bit by bit'])
  t.same((await c.get('/config/group/compute')).body.config.group.compute.osimagetag, 'default')
  await typed('docs/day-two.md', ['Back again'])
  t.match(await typed('docs/day-two.md', ['200 nodes more']), /200 nodes created, 0 changed/)
  await typed('docs/day-two.md', ['Another board in a node'])
  t.match((await c.get('/config/node/node001')).body.config.node.node001.macaddr, '52:54:00:00:09:01')
  const own = {
    ...{ netboot: false, kerneloptions: 'quiet', comment: 'é', variables: { rack: '7' }, roles: 'login' },
    ...{ osimage: 'rocky', prescript: 'ZWNobw==' },
    interfaces: [
      { interface: 'eth9', network: 'cluster', ipaddress: '10.141.9.9', macaddress: '52:54:00:00:99:09' }
    ]
  }
  const kept = await c.post('/config/node/node120', own)
  t.equal(kept.status, 204, kept.text)
  const stored = async () => (await c.get('/config/cluster/export')).body.config.node
  const before = await stored()
  t.match(before.node120, { variables: { rack: '7' }, osimage: 'rocky' })
  const said = await typed('docs/day-two.md', ['Nodes that go'])
  t.match(said, /^40\n[\s\S]*40 nodes deleted/)
  t.equal(said.match(/node node1\d\d created/g)?.length, 40)
  t.same(await stored(), before, 'all is as it was')
  t.match(await typed('docs/day-two.md', ['Backup', 'Who changed what', 'Is all well']), /node300/)
})
