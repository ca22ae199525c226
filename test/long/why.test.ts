import { truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createTorrent } from '../../lib/image/torrent/torrent.js'
import { kernelOptions, makeImage } from '../machine/image.js'
import { buildInitramfs } from '../machine/initramfs.js'
import { Daemon } from '../support/daemon.js'
import { debianKernel } from '../support/kernel.js'
import { requirePrograms } from '../support/programs.js'
import { startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { type Machine, type Run, runMachine, tail } from '../support/virtual-machine.js'

// A machine for each verdict of docs/troubleshooting.md that can be brought about in one. What svcd says of
// it is asked over http. Some five minutes.

const mac = (n: number) => `52:54:00:14:02:0${n}`
const address = (n: number) => `10.141.0.1${n}`
const base64 = (text: string) => Buffer.from(text).toString('base64')

interface Case {
  readonly rule: string
  /** All that the verdict must say. */
  readonly says: readonly RegExp[]
  /** Fields of its node. */
  readonly node: object
  /** Whether the DHCP server knows its address. */
  readonly known?: false
  readonly machine: Pick<Machine, 'until' | 'memoryMiB'>
  readonly diskBytes?: number
}

/** Node k has the MAC and the address k, where its case says nothing else. */
const cases: readonly Case[] = [
  {
    rule: 'wrong-mac',
    says: [/52:54:00:14:0f:01/, /unknown MAC 52:54:00:14:02:01/, /from 10\.141\.0\.2\d\d/],
    node: { macaddr: '52:54:00:14:0f:01' },
    known: false,
    machine: { until: /MAC 52:54:00:14:02:01 is unknown/ }
  },
  {
    rule: 'no-boot-file',
    says: [/the kernel \(kernelfile\) of OS image nokernel, gone, is missing/, /pack the image/],
    node: { osimage: 'nokernel' },
    machine: { until: /gone, is missing/ }
  },
  {
    rule: 'refused-address',
    says: [/refused to 10\.141\.0\.2\d\d/, /dynamic_nodes/],
    node: { interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: null }] },
    known: false,
    machine: { until: /FAILED in step script/ }
  },
  {
    rule: 'no-memory',
    says: [/failed in step init at/, /too little memory: \d+ MB are available/, /more memory/],
    node: {},
    machine: { memoryMiB: 160, until: /trying again in/ }
  },
  {
    rule: 'tracker-dead',
    says: [/failed in step download/, /nothing came by torrent for 60 s/, /monitor\/service\/tracker/],
    node: { osimage: 'swarm', provision_method: 'torrent', provision_fallback: 'torrent' },
    machine: { memoryMiB: 1536, until: /trying again in/ }
  },
  {
    rule: 'disk-full',
    says: [/failed in step unpack/, /no space (is )?left/i, /partscript/],
    node: {
      partscript: base64(
        'mke2fs /dev/vda 6144 >/dev/null\nmkdir -p /sysroot\nmount -t ext2 /dev/vda /sysroot\n'
      )
    },
    machine: { until: /trying again in/ },
    diskBytes: 64 << 20
  },
  {
    rule: 'bmc-only',
    says: [/only the BMC of node7 asked .* with the MAC 52:54:00:14:02:07/],
    node: { macaddr: '52:54:00:14:0f:07', interfaces: [{ interface: 'BMC', macaddress: mac(7) }] },
    known: false,
    machine: { until: /MAC 52:54:00:14:02:07 is unknown/ }
  },
  {
    rule: 'no-interface',
    says: [/was sent at .* and nothing came after it/, /no interface with MAC 52:54:00:14:02:08/],
    node: { osimage: 'dumb' },
    machine: {}
  },
  {
    rule: 'all-well',
    says: [/all is well: node9 was installed/],
    node: { provision_method: 'http' },
    machine: { until: /svc: node9 is ready/ }
  }
]

interface Verdict {
  readonly rule: string
  readonly verdict: string
  readonly see: string
}

async function verdictOf(controller: Daemon, node: string): Promise<Verdict> {
  const { body } = await controller.request('GET', `/monitor/node/${node}/_why`)
  return (body as { monitor: { why: Record<string, Verdict> } }).monitor.why[node] as Verdict
}

async function configure(controller: Daemon): Promise<void> {
  await controller.create('network', 'cluster', {
    network: '10.141.0.0/24',
    dhcp: true,
    dhcp_range_begin: '10.141.0.200',
    dhcp_range_end: '10.141.0.220'
  })
  const files = {
    kernelfile: 'vmlinuz',
    initrdfile: 'initrd.img',
    imagefile: 'image.tar.gz',
    kerneloptions: kernelOptions
  }
  await controller.create('osimage', 'test', files)
  await controller.create('osimage', 'other', { ...files, imagefile: 'other.tar.gz' })
  await controller.create('osimage', 'nokernel', { ...files, kernelfile: 'gone' })
  await controller.create('osimage', 'swarm', { ...files, initrdfile: 'aria2.img' })
  await controller.create('osimage', 'dumb', { ...files, initrdfile: 'dumb.img' })
  for (const [i, { node }] of cases.entries())
    await controller.create('node', `node${i + 1}`, {
      osimage: 'test',
      macaddr: mac(i + 1),
      provision_method: 'http',
      ...node,
      interfaces: [
        { interface: 'BOOTIF', network: 'cluster', ipaddress: address(i + 1) },
        ...((node as { interfaces?: { interface: string }[] }).interfaces ?? [])
      ].filter(({ interface: name }, at, all) => at === all.findLastIndex(other => other.interface === name))
    })
}

/** The image gets another pack than the one that node9 has installed. */
async function imageChanged(t: Test, controller: Daemon, files: string): Promise<void> {
  await writeFile(join(files, 'other.tar.gz'), 'other')
  await controller.request('POST', '/config/node/node9', {
    config: { node: { node9: { osimage: 'other' } } }
  })
  const said = await verdictOf(controller, 'node9')
  t.equal(said.rule, 'image-changed')
  t.match(
    said.verdict,
    /node9 runs image\.tar\.gz of OS image test since .* would get other\.tar\.gz of OS image other now; start it anew/
  )
  t.comment(said.verdict)
}

t.test('why a machine did not boot: one machine for each verdict', async t => {
  requirePrograms('aria2c', 'ldd')
  const directory = scratch(t)
  const files = join(directory, 'files')
  await makeImage(files, join(directory, 'source'))
  await buildInitramfs(await debianKernel(), join(files, 'aria2.img'), ['aria2c'])
  // No system is in it: the kernel panics.
  await writeFile(join(files, 'dumb.img'), '')
  await truncate(join(files, 'dumb.img'), 1 << 20)
  const tracker = 'http://10.141.0.1:6969/announce'
  await createTorrent({
    file: join(files, 'image.tar.gz'),
    name: 'image.tar.gz',
    announce: tracker,
    output: join(files, 'image.tar.gz.torrent'),
    signal: AbortSignal.timeout(60_000)
  })
  const network = await startNetwork(
    cases.map(({ known }, i) => ({
      mac: mac(i + 1),
      ...(known === false ? {} : { ipaddress: address(i + 1) })
    }))
  )
  t.teardown(() => network.close())
  const controller = await Daemon.start({
    directory,
    listen: '10.141.0.1:7050',
    enter: network.enter,
    set: [`torrent.tracker=${tracker}`]
  })
  t.teardown(() => controller.stop())
  await configure(controller)
  t.match(await verdictOf(controller, 'node9'), { rule: 'never-asked' }, 'before a machine was on')
  t.jobs = 2

  for (const [i, { rule, says, machine, diskBytes }] of cases.entries())
    t.test(rule, { buffered: true }, async (t: Test) => {
      const name = `node${i + 1}`
      const disk = join(directory, `${name}.disk`)
      if (diskBytes) {
        await writeFile(disk, '')
        await truncate(disk, diskBytes)
      }
      const run: Run = await runMachine({
        name,
        mac: mac(i + 1),
        network: { tap: network.tap(mac(i + 1)) },
        enter: network.enter,
        timeLimitMs: 600_000,
        ...(diskBytes ? { disk } : {}),
        ...machine
      })
      const about = { console: tail(run.console) }
      await until(
        async () => (await verdictOf(controller, name)).rule !== 'in-progress',
        () => about
      )
      const said = await verdictOf(controller, name)
      t.equal(said.rule, rule, said.verdict, about)
      for (const text of says) t.match(said.verdict, text, said.verdict)
      t.equal(said.see, `docs/troubleshooting.md#${rule}`)
      t.comment(said.verdict)
      if (rule === 'all-well') await imageChanged(t, controller, files)
    })
})
