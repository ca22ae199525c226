import { once } from 'node:events'
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync
} from 'node:fs'
import { basename, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { hashPassword } from '../../lib/auth/passwords.js'
import { damage, Known, prepare, WRITERS } from '../api/writers.js'
import { kernelOptions } from '../machine/image.js'
import { addModules, busybox, packInitramfs } from '../machine/initramfs.js'
import { builtTree } from '../support/built-tree.js'
import { type Child, start } from '../support/child.js'
import { Client } from '../support/client.js'
import { CutDisk } from '../support/cut-disk.js'
import { freePort } from '../support/free-port.js'
import { debianKernel } from '../support/kernel.js'
import { checkout, locate, output, requirePrograms } from '../support/programs.js'
import { proof } from '../support/proof.js'
import { scratch } from '../support/scratch.js'
import { emulated } from '../support/virtual-machine.js'

// A controller in a virtual machine, whose power is cut while its objects are changed: what it had not
// flushed to its disk is lost in part. Then it starts again, the disk is checked, and all that was
// acknowledged must be there.

const rounds = Number(process.env.SVCD_POWER_ROUNDS ?? 50)
const diskBytes = 256 * 1024 * 1024
const password = 'power'

t.setTimeout(120_000 + rounds * 180_000)

/** An initramfs with node, this checkout's svcd, and what checks the disk. */
async function controllerInitramfs(directory: string, kernel: Awaited<ReturnType<typeof debianKernel>>) {
  const root = join(directory, 'root')
  for (const path of ['bin', 'dev', 'lib', 'lib64']) mkdirSync(join(root, path), { recursive: true })
  copyFileSync(busybox, join(root, 'bin/busybox'))
  copyFileSync(join(import.meta.dirname, 'power-cut.sh'), join(root, 'init'))
  chmodSync(join(root, 'init'), 0o755)
  for (const program of [process.execPath, locate('flock'), locate('e2fsck')]) {
    copyFileSync(program as string, join(root, 'bin', basename(program as string)))
    const libraries = await output('ldd', [program as string])
    for (const [, path = ''] of libraries.matchAll(/(?:=> |^\s*)(\/\S+) \(/gm))
      copyFileSync(path, join(root, path.startsWith('/lib64') ? 'lib64' : 'lib', basename(path)))
  }
  await addModules(kernel, root)
  const tree = builtTree(join(root, 'svcd'))
  rmSync(join(tree, 'node_modules'))
  const packages = await output('npm', ['ls', '--omit=dev', '--all', '--parseable'], { cwd: checkout })
  for (const path of packages.trim().split('\n').slice(1))
    cpSync(path, join(tree, path.slice(checkout.length)), { recursive: true })
  const ini = join(tree, 'etc/svcd.ini')
  const users = `[users]\nadmin = admin ${await hashPassword(password)}\n`
  writeFileSync(ini, readFileSync(ini, 'utf8').replace('[users]\n', users))
  const file = join(directory, 'initramfs')
  await packInitramfs(root, file)
  rmSync(root, { recursive: true })
  return file
}

// rules 11.1
t.test(`the power is cut ${rounds} times`, async t => {
  requirePrograms('qemu-system-x86_64', 'mke2fs', 'e2fsck', 'flock', 'ldd', busybox)
  const directory = scratch(t)
  const kernel = await debianKernel()
  const initramfs = await controllerInitramfs(directory, kernel)
  const medium = join(directory, 'medium')
  writeFileSync(medium, '')
  truncateSync(medium, diskBytes)
  await output('mke2fs', ['-q', '-F', '-t', 'ext4', medium])
  const socket = join(directory, 'disk')
  const disk = await CutDisk.serve(medium, diskBytes, socket)
  t.teardown(() => disk.close())
  let machine: Child | undefined
  t.teardown(() => machine?.kill())

  const port = await freePort()
  const clientOf = (token: string) => new Client('127.0.0.1', port, token)
  /** Switches the machine on; resolves with what its console said when svcd answers. */
  const powerOn = async () => {
    const qemu = start('qemu-system-x86_64', [
      ...[...emulated, '-m', '1024', '-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio'],
      ...['-kernel', kernel.image, '-initrd', initramfs, '-append', kernelOptions],
      ...['-netdev', `user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:${port}-10.0.2.15:7050`],
      ...['-device', 'virtio-net-pci,netdev=net0,romfile='],
      ...['-drive', `id=disk0,if=none,format=raw,cache=writeback,file=nbd+unix:///?socket=${socket}`],
      ...['-device', 'virtio-blk-pci,drive=disk0']
    ])
    machine = qemu
    let isOff = false
    once(qemu.process, 'exit').then(() => {
      isOff = true
    })
    for (;;) {
      if (isOff) throw new Error(`the machine went off:\n${qemu.output()}`)
      const client = clientOf('')
      const answer = await client.get('/version').catch(() => undefined)
      client.close()
      if (answer?.status === 200) return qemu
      await delay(200)
    }
  }

  let qemu = await powerOn()
  const anonymous = clientOf('')
  const login = await anonymous.post('/token', { username: 'admin', password })
  anonymous.close()
  t.equal(login.status, 201)
  const { token } = JSON.parse(login.text)
  const first = clientOf(token)
  await prepare(first)
  first.close()
  const all = WRITERS.map(writer => new Known(writer))
  const figures = { lost: 0, halfDone: 0, unmeant5xx: 0, backMs: 0 }
  let [dropped, dirty] = [0, 0]
  for (let round = 1; round <= rounds; round++) {
    const clients = all.map(() => clientOf(token))
    const writing = Promise.all(all.map((known, i) => known.write(clients[i] as Client)))
    await delay(500 + Math.random() * 3000)
    const killed = qemu.kill()
    const { cached, lost } = disk.cut(Math.random)
    await killed
    dropped += lost
    if (cached > 0) dirty++
    const refused = (await writing).filter(Boolean)
    figures.unmeant5xx += refused.length
    t.strictSame(refused, [], `round ${round}: nothing was refused`)
    for (const client of clients) client.close()
    const began = performance.now()
    qemu = await powerOn()
    figures.backMs = Math.max(figures.backMs, performance.now() - began)
    const said = qemu.output()
    // 1: the file system's own journal was read, and what was open was closed.
    t.match(said, /^FSCK [01]\r?$/m, `round ${round}: the file system is whole`)
    const reader = clientOf(token)
    const { gone, halves } = await damage(reader, all)
    reader.close()
    figures.lost += gone.length
    figures.halfDone += halves.length
    t.strictSame(
      [...gone, ...halves],
      [],
      `round ${round}: what was acknowledged is there, and nothing by half`
    )
  }
  const acknowledged = all.reduce((sum, known) => sum + known.acknowledged, 0)
  const note = `${acknowledged} acknowledged changes, ${dropped} sectors lost in ${dirty} rounds, ${disk.flushes} flushes`
  t.comment(note)
  proof('power cut', { tried: rounds, crashes: 0, ...figures, backMs: Math.round(figures.backMs), note })
  t.ok(dropped > 0, 'the cuts lost something')
  t.ok(acknowledged > 0, 'changes were acknowledged')
})
