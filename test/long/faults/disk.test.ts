import { execFileSync, spawn } from 'node:child_process'
import { chownSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { start } from '../../support/child.js'
import { Daemon } from '../../support/daemon.js'
import { requirePrograms } from '../../support/programs.js'
import { type ProofName, proof } from '../../support/proof.js'
import { fillDisk, smallDisk } from '../../support/small-disk.js'
import { Traffic } from './traffic.js'

const rounds = Number(process.env.SVCD_FAULT_ROUNDS ?? 20)
const longMs = 12_000
const set = ['boot.new_nodes=1000000', 'monitor.disk_free=1k']
const run = (program: string, ...args: string[]) => execFileSync(program, args, { stdio: 'pipe' })

/** A daemon whose state is on a disk of its own, of 8 MiB, and that disk. */
async function onDisk(t: Test): Promise<{ daemon: Daemon; disk: string }> {
  const disk = smallDisk(t, '8m')
  mkdirSync(join(disk, 'state'), { mode: 0o700 })
  const daemon = new Daemon({ directory: t.testdir(), set })
  symlinkSync(join(disk, 'state'), daemon.path('state'))
  t.teardown(() => daemon.kill())
  await daemon.start()
  return { daemon, disk }
}

async function plain(t: Test): Promise<Daemon> {
  const daemon = new Daemon({ directory: t.testdir(), set })
  t.teardown(() => daemon.kill())
  await daemon.start()
  return daemon
}

/** Adds the row of a fault, after a kill and a start: what was acknowledged is on disk too. */
async function close(t: Test, name: ProofName, traffic: Traffic, note?: string): Promise<void> {
  const { daemon } = traffic
  const log = daemon.log()
  await daemon.kill()
  await daemon.start()
  await traffic.check()
  const { figures, wrong, acknowledged, refused } = traffic.found
  proof(name, { ...figures, ...(note === undefined ? {} : { note }) })
  t.comment(`${name}: ${JSON.stringify(figures)}, ${acknowledged} acknowledged, ${refused} refused`)
  t.same(wrong, [])
  t.ok(acknowledged > 0 && refused > 0, 'there were writes of both kinds')
  t.ok((figures.backMs ?? 0) <= 10_000, `back after ${figures.backMs} ms`)
  const told = log.split('\n').filter(line => /the store cannot be changed/.test(line)).length
  t.ok(told >= 1 && told <= 3 * figures.tried + 3, `said once for each failure: ${told}`)
  await daemon.kill()
}

/** Makes calls of the daemon fail, as the kernel would; returns how to end that. */
async function failing(
  daemon: Daemon,
  calls: string,
  how: string,
  ...more: string[]
): Promise<() => Promise<void>> {
  requirePrograms('strace')
  const inject = `inject=${calls}:error=${how}`
  const args = [
    '-f',
    '-q',
    '-o',
    '/dev/null',
    ...more,
    '-e',
    `trace=${calls}`,
    '-e',
    inject,
    '-p',
    String(daemon.child?.pid)
  ]
  const tracer = spawn('strace', args, { stdio: 'ignore' })
  const ended = new Promise<void>((resolve, reject) => {
    tracer.on('exit', () => resolve())
    tracer.on('error', reject)
  })
  await delay(500)
  return async () => {
    tracer.kill('SIGINT')
    await ended
  }
}

t.test('disk full and flapping', { timeout: 600_000 }, async t => {
  const { daemon, disk } = await onDisk(t)
  const traffic = await Traffic.on(daemon)
  for (let round = 0; round < rounds; round++)
    await traffic.round(async () => {
      for (let turn = 0; turn < 3; turn++) {
        await delay(Math.random() * 300)
        const free = fillDisk(disk)
        await delay(Math.random() * 500)
        free()
      }
    })
  await close(t, 'disk full and flapping', traffic)
})

t.test('read-only disk', { timeout: 600_000 }, async t => {
  const { daemon, disk } = await onDisk(t)
  const traffic = await Traffic.on(daemon)
  for (const ms of [longMs, ...Array.from({ length: 4 }, () => Math.random() * 2000)])
    await traffic.round(async () => {
      await delay(200)
      // The journal is open, so the disk itself cannot be: its path is.
      run('mount', '-o', 'bind,ro', join(disk, 'state'), join(disk, 'state'))
      await delay(ms)
      run('umount', join(disk, 'state'))
    })
  await close(t, 'read-only disk', traffic, `the longest time ${longMs / 1000} s`)
})

t.test('EIO', { timeout: 600_000 }, async t => {
  const daemon = await plain(t)
  const traffic = await Traffic.on(daemon)
  for (const [calls, ms] of [
    ['fsync,fdatasync', longMs],
    ['rename', 1500],
    ['unlink,unlinkat,rmdir', 1500],
    ['ftruncate', 1500],
    ['fchmod', 1500],
    ['fsync,fdatasync,rename,unlink,ftruncate,fchmod', 3000]
  ] as const)
    await traffic.round(async () => {
      const end = await failing(daemon, calls, 'EIO')
      await delay(ms)
      await end()
    })
  await close(t, 'EIO', traffic, 'fsync, rename, unlink, ftruncate, fchmod, and all of them')
})

t.test('EIO at the lock', { timeout: 600_000 }, async t => {
  const daemon = await plain(t)
  const traffic = await Traffic.on(daemon)
  for (const ms of [longMs, 1000])
    await traffic.round(async () => {
      const end = await failing(daemon, 'statx', 'EIO', '-P', daemon.path('state'))
      await delay(ms)
      await end()
    })
  await close(t, 'EIO at the lock', traffic, `${longMs / 1000} s`)
})

t.test('fsync that fails once', { timeout: 600_000 }, async t => {
  const daemon = await plain(t)
  const traffic = await Traffic.on(daemon)
  for (let round = 0; round < rounds; round++)
    await traffic.round(async () => {
      const end = await failing(daemon, 'fsync,fdatasync', `EIO:when=${1 + Math.floor(Math.random() * 20)}`)
      await delay(500)
      await end()
    })
  await close(t, 'fsync that fails once', traffic)
})

t.test('no descriptors left', { timeout: 600_000 }, async t => {
  const daemon = await plain(t)
  const traffic = await Traffic.on(daemon)
  const pid = String(daemon.child?.pid)
  for (let round = 0; round < rounds; round++)
    await traffic.round(async () => {
      await delay(200)
      // Those that are open stay open; no further one can be.
      run('prlimit', '--pid', pid, '--nofile=8:')
      await delay(Math.random() * 1000)
      run('prlimit', '--pid', pid, '--nofile=1024:')
    })
  await close(t, 'no descriptors left', traffic)
})

t.test('state directory of another owner', { timeout: 120_000 }, async t => {
  requirePrograms('setpriv')
  const daemon = await plain(t)
  await daemon.request('POST', '/config/switch/leaf', { read: 'word' })
  await daemon.stop()
  const state = daemon.path('state')
  let tried = 0
  let crashes = 0
  run('chmod', '-R', 'a+rX', daemon.path('svcd'))
  const nobody = ['--reuid=65534', '--regid=65534', '--clear-groups', '--inh-caps=-all']
  const svcd = [join(daemon.tree, 'bin', 'svcd'), 'serve', '--config', join(daemon.tree, 'etc', 'svcd.ini')]
  const settings = ['http.listen=127.0.0.1:0', 'http.url=http://10.1.255.254:7050', `paths.state=${state}`]
  const refused = async () => {
    tried++
    const begun = performance.now()
    const words = [...nobody, ...svcd, ...settings.flatMap(value => ['--set', value])]
    const { code, stderr } = await start('setpriv', words, { input: '' }).ended
    const isPlain = code === 1 && stderr.includes(state) && !/\n\s+at |unhandled/i.test(stderr)
    if (!isPlain || performance.now() - begun > 30_000) crashes++
    t.ok(isPlain, `${code}: ${stderr}`)
  }
  await refused()
  // A directory that it may read, and files that it may not.
  chownSync(state, 65_534, 65_534)
  await refused()
  for (const name of readdirSync(state, { withFileTypes: true })) {
    if (!name.isFile()) continue
    chownSync(join(state, name.name), 65_534, 65_534)
  }
  await refused()
  chownSync(state, 0, 0)
  run('chown', '-R', 'root:root', state)
  const begun = performance.now()
  await daemon.start()
  proof('state directory of another owner', { tried, crashes, backMs: Math.round(performance.now() - begun) })
  const { status } = await daemon.request('GET', '/config/switch/leaf')
  t.equal(status, 200, 'as it was, once it is its own again')
  await daemon.kill()
})
