import { cpSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { kernelOptions, makeImage } from '../../machine/image.js'
import { isPrimary } from '../../support/controllers.js'
import { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { giveKeys } from '../../support/keys.js'
import { output, requirePrograms } from '../../support/programs.js'
import { startNetwork } from '../../support/provision-network.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'
import { runMachine, tail } from '../../support/virtual-machine.js'

// Two controllers on one etcd, and a list of URLs (rules 4.28). A virtual machine boots and installs while
// the controller that it asks, which is the one that writes, dies: at each step once. Some five minutes.

const addresses = ['10.141.0.1', '10.141.0.2'] as const
const [first, second] = addresses.map(address => `http://${address}:7050`) as [string, string]
const mac = (n: number) => `52:54:00:14:02:0${n}`
const ip = (n: number) => `10.141.0.1${n}`

interface Loss {
  readonly at: string
  /**
   * The line of the console at which the controller is lost, and how long after it: files come slowly here.
   */
  readonly line: RegExp
  readonly afterMs?: number
  readonly signal?: 'SIGKILL' | 'SIGSTOP'
  /** What the console shows then. */
  readonly shows: RegExp
}

const trying = /svc: http:\/\/10\.141\.0\.1:7050: .*; trying http:\/\/10\.141\.0\.2:7050/
const losses: readonly Loss[] = [
  {
    at: 'script',
    line: /10\.141\.0\.1:7050\/boot\.{3}.* ok/,
    shows: /10\.141\.0\.2:7050\/boot\/search\/mac\/\S+\.{3}.* ok/
  },
  {
    at: 'kernel',
    line: /svcd: booting node/,
    afterMs: 1500,
    shows: /10\.141\.0\.1:7050\/boot\/vmlinuz\.{3}(?!.* ok)[\s\S]*10\.141\.0\.2:7050\/boot\/vmlinuz\.{3}.* ok/
  },
  {
    at: 'install script',
    line: /STAGE \S+ kernel/,
    shows: /svc: http:\/\/10\.141\.0\.1:7050\/boot\/install\/\S+: .*refused/
  },
  { at: 'image download', line: /svc: step download/, afterMs: 1000, shows: trying },
  // The last report is the next thing that it asks.
  { at: 'completed', line: /svc: step postscript/, shows: trying },
  {
    at: 'kernel, which stands still',
    line: /svcd: booting node/,
    afterMs: 1500,
    signal: 'SIGSTOP',
    shows: /10\.141\.0\.2:7050\/boot\/vmlinuz\.{3}.* ok/
  }
]
const steps = ['started', 'partscript', 'download', 'unpack', 'network', 'postscript', 'completed'].map(
  step => `installer.${step}`
)
const only = process.env.SVCD_LOSS

t.test('a machine installs while its controller dies', async t => {
  requirePrograms('tc')
  const directory = scratch(t)
  const network = await startNetwork(losses.map((_, i) => ({ mac: mac(i + 1), ipaddress: ip(i + 1) })))
  t.teardown(() => network.close())
  await output('ip', ['-n', network.namespace, 'address', 'add', `${addresses[1]}/24`, 'dev', 'br0'])
  const etcd = await startEtcd(t, undefined, network.enter)
  const [one, two] = addresses.map((address, i) => {
    const urls = i === 0 ? [first, second] : [second, first]
    const daemon = new Daemon({
      directory: scratch(t),
      listen: `${address}:7050`,
      enter: network.enter,
      set: [
        ...['store.medium=etcd', `store.endpoints=${etcd.url}`, 'store.ttl=2s'],
        ...[`http.url=${urls.join(', ')}`, `controller.name=c${i + 1}`]
      ]
    })
    t.teardown(() => daemon.kill())
    return daemon
  }) as [Daemon, Daemon]
  const source = await makeImage(one.path('files'), directory)
  cpSync(one.path('files'), two.path('files'), { recursive: true })
  await one.start()
  await until(() => isPrimary(one))
  giveKeys(one, two)
  await two.start()
  await one.create('network', 'cluster', { network: '10.141.0.0/24' })
  await one.create('osimage', 'test', {
    ...{ kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'image.tar.gz' },
    kerneloptions: kernelOptions
  })
  await one.create('group', 'compute', {
    osimage: 'test',
    bootmenu: true,
    provision_method: 'http',
    postscript: Buffer.from('sleep 3\n').toString('base64')
  })

  for (const [i, { at, line, afterMs = 0, signal = 'SIGKILL', shows }] of losses.entries()) {
    if (only !== undefined && only !== at) continue
    await t.test(at, async t => {
      const name = `node00${i + 1}`
      await one.create('node', name, {
        group: 'compute',
        macaddr: mac(i + 1),
        interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: ip(i + 1) }]
      })
      const tap = network.tap(mac(i + 1))
      await output('tc', [
        ...['-n', network.namespace, 'qdisc', 'add', 'dev', tap, 'root'],
        ...['tbf', 'rate', '24mbit', 'burst', '64kb', 'latency', '300ms']
      ])
      t.ok(await isPrimary(one), 'the one that writes is to be lost')
      const { child } = one
      let lost: Promise<unknown> | undefined
      const from = performance.now()
      const run = await runMachine({
        name,
        mac: mac(i + 1),
        network: { tap },
        enter: network.enter,
        memoryMiB: 512,
        timeLimitMs: 480_000,
        onLine: shown => {
          if (line.test(shown)) lost ??= sleep(afterMs).then(() => child?.process.kill(signal))
        }
      })
      t.comment(`${at}: ${((performance.now() - from) / 1000).toFixed(1)} s from power on to power off`)
      const about = { console: tail(run.console) }
      t.ok(lost, 'the controller was lost on the way', about)
      t.equal(run.exit, 0, 'the machine went off by itself', about)
      t.match(run.console, shows, 'it asked the other one', { console: run.console })
      t.match(run.console, new RegExp(`svc: ${name} is ready`), 'it is installed', about)
      t.equal(run.console.match(/STAGE \S+ tree (\S+)/)?.[1], source, 'with what was packed', about)
      t.notMatch(run.console, /could not be reported|FAILED in step/, 'and without a failure', about)
      await until(() => isPrimary(two))
      const { state, history } = await two.monitor(name)
      t.equal(state, 'installer.completed', 'the one that is left knows it')
      t.strictSame([...new Set(history.map(step => step.state))], steps, 'and each step')

      // All is as before: the first one writes.
      await one.kill()
      await one.start()
      await until(async () => (await one.request('GET', '/config/node')).status === 200)
      await two.kill()
      await until(() => isPrimary(one))
      await two.start()
    })
  }
})
