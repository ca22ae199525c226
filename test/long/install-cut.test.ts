import { readFileSync, statSync } from 'node:fs'
import { truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { CutDisk } from '../support/cut-disk.js'
import { Daemon } from '../support/daemon.js'
import { blocksOf } from '../support/page.js'
import { requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { runMachine, tail } from '../support/virtual-machine.js'
import { debianImage, reported, systemOptions } from './debian-image.js'
import { documented } from './documented-packages.js'

// The power of a node goes while it is installed onto its disk, which loses a part of what it was not told to
// flush: in the middle of the download, of the unpacking and of the boot loader. Each time it installs again.
// It goes once more when the node has reported that it is done: then the disk boots.

const mac = '52:54:00:14:08:01'
const name = 'node001'
const diskBytes = 3 * 2 ** 30
const partscript =
  blocksOf('docs/howto.md').find(
    ({ heading, language }) => heading === 'Install onto a disk' && language === 'sh'
  )?.text ?? 'exit 1'

/** What has come over the node's wire, in bytes, since the machine that runs the test has it. */
const sentTo = (tap: string, pid: number) => {
  const line = readFileSync(`/proc/${pid}/net/dev`, 'utf8').match(new RegExp(`^ *${tap}:(.*)$`, 'm'))?.[1]
  return Number(line?.trim().split(/ +/)[8] ?? 0)
}

t.setTimeout(2 * 3_600_000)

// rules 4.16
t.test('the power of a node goes while it is installed', async t => {
  requirePrograms('debootstrap', 'zstd', 'tar')
  const directory = scratch(t)
  const image = await debianImage({
    ...{ tool: 'initramfs-tools', name, files: join(directory, 'files'), tree: join(directory, name) },
    packages: documented('disks', 'localinstall')
  })
  const medium = join(directory, 'medium')
  await writeFile(medium, '')
  await truncate(medium, diskBytes)
  const socket = join(directory, 'disk')
  const disk = await CutDisk.serve(medium, diskBytes, socket)
  t.teardown(() => disk.close())
  const network = await startNetwork([{ mac, ipaddress: '10.141.0.11' }])
  t.teardown(() => network.close())
  const controller = await Daemon.start({ directory, listen: '10.141.0.1:7050', enter: network.enter })
  t.teardown(() => controller.stop())
  await controller.create('network', 'cluster', { network: '10.141.0.0/24', gateway: '10.141.0.1' })
  await controller.create('osimage', name, { ...image, distribution: 'debian', kerneloptions: systemOptions })
  await controller.create('node', name, {
    ...{ osimage: name, macaddr: mac, localinstall: true },
    partscript: Buffer.from(partscript).toString('base64'),
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.11' }]
  })
  const pid = controller.child?.process.pid ?? 0
  const tap = network.tap(mac)
  const machine = {
    ...{ name, mac, network: { tap }, enter: network.enter, disk: `nbd+unix:///?socket=${socket}` },
    ...{ memoryMiB: 2048, timeLimitMs: 1_800_000 }
  }
  const { size } = statSync(join(directory, 'files', image.imagefile))
  const cut = (t: Test) => {
    const { cached, lost } = disk.cut(Math.random)
    t.comment(`${lost} of ${cached} sectors lost, ${disk.written >> 20} MiB written so far`)
  }

  /**
   * So much of a step is done, from 0 to 1, by what it has moved since it began: over the wire, or to the
   * disk.
   */
  const steps: Record<string, (since: { sent: number; written: number }) => boolean> = {
    download: ({ sent }) => sentTo(tap, pid) - sent > size / 3,
    unpack: ({ written }) => disk.written - written > size / 2,
    bootloader: ({ written }) => disk.written - written > 2 ** 24
  }
  for (const [step, isHalfDone] of Object.entries(steps))
    await t.test(`in the middle of the step ${step}`, async t => {
      const power = new AbortController()
      const seen: string[] = []
      let timer: NodeJS.Timeout | undefined
      const run = runMachine({
        ...machine,
        signal: power.signal,
        onLine: line => {
          const [, begun] = /svc: step (\w+)/.exec(line) ?? []
          if (begun) seen.push(begun)
          if (begun !== step) return
          const since = { sent: sentTo(tap, pid), written: disk.written }
          timer = setInterval(() => isHalfDone(since) && power.abort(), 5)
        }
      })
      await t.rejects(run, /was interrupted/)
      clearInterval(timer)
      cut(t)
      t.equal(seen.at(-1), step, 'it was not done', { seen })
      t.match((await controller.monitor(name)).state, new RegExp(`^installer\\.${step}`))
    })

  await t.test('it installs, and the power goes as soon as it has said so', async t => {
    const run = await runMachine({ ...machine, until: /svc: node001 is ready|svc: FAILED/ })
    cut(t)
    t.notMatch(run.console, /svc: FAILED/, 'nothing of the earlier ones is in its way', {
      console: tail(run.console)
    })
    t.equal((await controller.monitor(name)).state, 'installer.completed')
  })

  await t.test('the disk boots', async t => {
    const { status } = await controller.request('POST', `/config/node/${name}`, {
      config: { node: { [name]: { netboot: false } } }
    })
    t.equal(status, 204)
    const run = await runMachine({ ...machine, until: /REPORT done .*\n/ })
    const about = { console: tail(run.console) }
    t.notMatch(run.console, /svc: step/, 'nothing was installed')
    t.match(reported(run.console, 'root'), /^ext4 +\/dev\/vda2/, 'its root file system is on the disk', about)
    t.equal(reported(run.console, 'state'), 'running', 'no unit failed', about)
  })
})
