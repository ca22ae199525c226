import { readFileSync, writeFileSync } from 'node:fs'
import { copyFile, cp, mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { fuzzSeed, Random } from '../fuzz/random.js'
import { kernelOptions, makeImage } from '../machine/image.js'
import { Daemon } from '../support/daemon.js'
import { signedLoaders } from '../support/kernel.js'
import { output, requirePrograms } from '../support/programs.js'
import { type ProvisionNetwork, startNetwork } from '../support/provision-network.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { type Machine, runMachine, tail } from '../support/virtual-machine.js'

// Machines with Secure Boot and a TPM of their own, and what they get (rules 15.1 to 15.9). The TFTP server hands
// out a copy of svcd's tree, so that a test changes what is on the wire behind svcd's back.

const host = (n: number) => ({
  mac: `52:54:00:16:00:${n.toString(16).padStart(2, '0')}`,
  ipaddress: `10.141.0.${10 + n}`
})
const machines = [1, 2, 3, 4].map(n => ({ ...host(n), bootfile: 'shimx64.efi' }))
const programs = ['tpm2', 'openssl', '/usr/lib/x86_64-linux-gnu/libtss2-tcti-device.so.0']

interface Trusted {
  readonly verdict: string | null
  readonly reason: string | null
  readonly ek: string | null
  readonly ak: string | null
  readonly seen: string | null
  readonly secureboot: boolean | null
  readonly bound: boolean
}

/** A svcd that boots by GRUB, its network, and the tree on the wire. */
class Site {
  readonly wire: string

  private constructor(
    readonly directory: string,
    readonly network: ProvisionNetwork,
    readonly controller: Daemon
  ) {
    this.wire = join(directory, 'wire')
  }

  static async open(t: Test, ...set: string[]): Promise<Site> {
    requirePrograms('tpm2', 'openssl', 'grub-script-check')
    const directory = scratch(t)
    await makeImage(join(directory, 'files'), join(directory, 'source'), programs)
    await writeFile(join(directory, 'files', 'tiny.img'), 'a tiny initramfs')
    await mkdir(join(directory, 'wire'))
    const network = await startNetwork(machines, { tftp: join(directory, 'wire') })
    t.teardown(() => network.close())
    const loaders = await signedLoaders()
    const controller = await Daemon.start({
      ...{ directory, listen: '10.141.0.1:7050', enter: network.enter },
      set: [
        ...[
          'boot.loader=grub',
          'dhcp.tftp_server=10.141.0.1',
          'tftp.server=dnsmasq',
          'tftp.reload=/bin/true'
        ],
        ...[`tftp.directory=${join(directory, 'tree')}`, `tftp.config=${join(directory, 'tftp.conf')}`],
        `tftp.shim_x64=${loaders['shimx64.efi']}`,
        `tftp.grub_x64=${loaders['grubx64.efi']}`,
        `tftp.mok_x64=${loaders['mmx64.efi']}`,
        ...set
      ]
    })
    t.teardown(() => controller.stop())
    const site = new Site(directory, network, controller)
    await controller.create('network', 'cluster', { network: '10.141.0.0/24', dhcp: false })
    const image = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'image.tar.gz' }
    await controller.create('osimage', 'test', { ...image, kerneloptions: kernelOptions })
    await controller.create('osimage', 'tiny', { ...image, initrdfile: 'tiny.img' })
    return site
  }

  node(name: string, n: number, fields: object = {}) {
    const { mac: macaddr, ipaddress } = host(n)
    const interfaces = [{ interface: 'BOOTIF', network: 'cluster', ipaddress }]
    return this.controller.create('node', name, { osimage: 'test', macaddr, interfaces, ...fields })
  }

  /** The path of a node's configuration in the tree. */
  configOf = (n: number) => `grub/grub.cfg-01-${host(n).mac.replaceAll(':', '-')}`

  /** Puts svcd's tree on the wire as soon as it has these nodes' configurations and kernels. */
  async publish(...nodes: number[]): Promise<void> {
    const tree = join(this.directory, 'tree')
    const text = (n: number) => readFileSync(join(tree, this.configOf(n)), 'utf8')
    const isThere = (n: number) => {
      try {
        return /^linux /m.test(text(n))
      } catch {
        return false
      }
    }
    await until(
      () => nodes.every(isThere),
      () => [nodes.filter(n => !isThere(n)), this.controller.log().slice(-2000)]
    )
    for (const name of await readdir(this.wire).catch(() => []))
      await rm(join(this.wire, name), { recursive: true })
    await cp(tree, this.wire, { recursive: true })
  }

  /** Replaces a file on the wire. */
  async change(path: string, to: (content: Buffer) => Buffer | string): Promise<void> {
    const file = join(this.wire, path)
    const content = to(readFileSync(file))
    await rm(file)
    writeFileSync(file, content)
  }

  run(n: number, tpm: string | undefined, rest: Partial<Machine> = {}) {
    const { mac } = host(n)
    return runMachine({
      ...{ name: `machine ${n}`, mac, network: { tap: this.network.tap(mac) }, enter: this.network.enter },
      ...{ firmware: 'secure', memoryMiB: 1024, timeLimitMs: 1_200_000 },
      ...(tpm === undefined ? {} : { tpm: join(this.directory, tpm) }),
      ...rest
    })
  }

  async trusted(name: string): Promise<Trusted> {
    const { body } = await this.controller.request('GET', `/config/node/${name}/_trust`)
    return (body as { config: { node: Record<string, Trusted> } }).config.node[name] as Trusted
  }

  async accept(name: string): Promise<void> {
    const { ek, ak, seen } = await this.trusted(name)
    const { status, body } = await this.controller.request('POST', `/config/node/${name}/_trust`, {
      config: { node: { [name]: { ek, ak, seen } } }
    })
    if (status >= 300) throw new Error(JSON.stringify(body))
  }

  async why(name: string): Promise<string> {
    const { body } = await this.controller.request('GET', `/monitor/node/${name}/_why`)
    return JSON.stringify((body as { monitor: { why: Record<string, unknown> } }).monitor.why[name])
  }

  /** Asks from the address of a machine that is off. */
  async asMachine(n: number, path: string): Promise<string> {
    const { ipaddress } = host(n)
    const { namespace } = this.network
    await output('ip', ['-n', namespace, 'address', 'add', `${ipaddress}/32`, 'dev', 'br0'])
    const curl = ['curl', '-s', '--interface', ipaddress, `http://10.141.0.1:7050${path}`]
    try {
      return await output('ip', ['netns', 'exec', namespace, ...curl])
    } finally {
      await output('ip', ['-n', namespace, 'address', 'del', `${ipaddress}/32`, 'dev', 'br0'])
    }
  }
}

const rounds = Number(process.env.SVCD_TRUST_ROUNDS ?? 3)
const words = [
  ...['quiet', 'ro', 'loglevel=3', 'a.b-c_d=1', 'dyndbg="file drivers/usb/* +p"', 'x="a b  c"', 'y=a"b c"d'],
  ...['$HOME', '$?', 'a;b', 'a&b', 'a|b', '{x}', '<x>', 'a#b', '!x', '[a]', '(hd0)', '~', '`id`'],
  ...['%s', '=', '==', 'a=', '^a', '@MAC@', '*', '?', ',', ':', '--', '-', 'if', 'then', 'menuentry', 'set'],
  ...['x'.repeat(200), '"open', '""', 'mod.opt=1,2,3', 'no_such=http://host/path?a=b&c=d']
]
// rules 4.45
t.test(`what svcd computes is what the TPM has, for ${rounds} random configurations`, async t => {
  const site = await Site.open(t, 'trust.secureboot=any')
  const random = new Random(fuzzSeed())
  t.comment(`FUZZ_SEED=${random.seed}`)
  await site.node('node001', 1, { trust: 'report', comment: 'the first' })
  let accepted = false
  for (let round = 0; round <= rounds; round++) {
    const some = Array.from({ length: random.below(9) }, () => random.pick(words))
    const options = [...some, `round=${round}`].join(random.is(0.2) ? '  ' : ' ')
    const body = { config: { node: { node001: { kerneloptions: options } } } }
    const { status } = await site.controller.request('POST', '/config/node/node001', body)
    t.equal(status, 204, options)
    const path = join(site.directory, 'tree', site.configOf(1))
    if (!accepted) await site.publish(1)
    await until(() => readFileSync(path, 'utf8').includes(`round=${round}`))
    await site.publish(1)
    const { console } = await site.run(1, 'tpm', { until: /svc: trust: (?:good|bad|unknown)/ })
    const { verdict, reason } = await site.trusted('node001')
    if (accepted) t.match({ verdict, reason }, { verdict: 'good' }, options, { console: tail(console) })
    if (!accepted) await until(async () => (await site.trusted('node001')).bound)
    if (!accepted) await site.accept('node001')
    accepted = true
  }
})

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`
/** The lines that no refused machine shows. */
const gotScript = /running the install script/
/** The node's side, or the loader, has given up once. */
const refused = /trying again in 4 s|bad shim signature|Kernel panic|you need to load the kernel first/

t.test('the right machine with the right boot gets its script, and nothing else does', async t => {
  const site = await Site.open(t)
  const { controller } = site
  await site.node('node001', 1, { trust: 'require' })
  await site.publish(1)

  await t.test('an unknown TPM waits for an admin, and then gets token and secrets', async t => {
    const seen = new Map<RegExp, number>()
    const marks = [/interface eth0 is up/, /svc: trust: good/, gotScript, /svc: node001 is ready/]
    let accepted: Promise<void> | undefined
    const run = await site.run(1, 'tpm', {
      onLine: line => {
        for (const mark of marks) if (mark.test(line)) seen.set(mark, Date.now())
        if (/FAILED in step trust/.test(line)) accepted ??= site.accept('node001')
      },
      until: /STAGE \S+ tree/
    })
    await accepted
    const about = { console: tail(run.console) }
    t.match(run.console, /svc: trust: unknown: .*svcctl node trust node001/, about)
    t.match(run.console, /svc: trust: good: /, about)
    t.ok(run.console.search(/trust: unknown/) < run.console.search(gotScript), 'not before the admin')
    t.equal((await controller.monitor('node001')).state, 'installer.completed', about)
    t.match(await site.trusted('node001'), { verdict: 'good', secureboot: true })
    t.notMatch(await site.why('node001'), /not trusted/)
  })

  await t.test('its next boot is good at once; the time that attestation takes', async t => {
    const times: number[] = []
    const run = await site.run(1, 'tpm', {
      onLine: line => /interface eth0 is up|svc: trust: good/.test(line) && times.push(Date.now()),
      until: gotScript
    })
    t.notMatch(run.console, /FAILED/, { console: tail(run.console) })
    t.comment(
      `attestation took ${seconds((times[1] ?? Number.NaN) - (times[0] ?? 0))} of a machine in software`
    )
  })

  const linux = (change: (line: string) => string) => (text: Buffer) =>
    String(text).replace(/^linux .*$/m, change)
  const flip = (at: number) => (content: Buffer) => {
    const changed = Buffer.from(content)
    changed[at] = (changed[at] ?? 0) ^ 1
    return changed
  }
  const bootFile = (kind: 'linux' | 'initrd') => {
    const config = readFileSync(join(site.wire, site.configOf(1)), 'utf8')
    return new RegExp(`^${kind} /(\\S+)`, 'm').exec(config)?.[1] ?? ''
  }
  const changes: Record<
    string,
    [path: () => string, change: (content: Buffer) => Buffer | string, says: RegExp]
  > = {
    // The time in gzip's head: the kernel unpacks it all the same.
    'the initramfs': [() => bootFile('initrd'), flip(4), /PCR 9 differs: the initramfs/],
    'the kernel': [() => bootFile('linux'), flip(4_000_000), /bad shim signature/],
    "the kernel's command line": [
      () => site.configOf(1),
      linux(line => `${line} x`),
      /PCR 8 differs: the command \\*"linux/
    ],
    'the grub.cfg of the node': [
      () => site.configOf(1),
      text => `echo hello\n${text}`,
      /PCR 8 differs: .*echo/
    ],
    'a comment in the common grub.cfg': [
      () => 'grub/grub.cfg',
      text => `${text}# x\n`,
      /PCR 9 differs: .*grub\.cfg/
    ]
  }
  for (const [what, [path, change, says]] of Object.entries(changes))
    await t.test(`one change on the wire: ${what}`, async t => {
      await site.publish(1)
      await site.change(path(), change)
      const { console } = await site.run(1, 'tpm', { until: refused })
      t.notMatch(console, gotScript, 'nothing secret', { console: tail(console) })
      t.match(console, says, { console: tail(console) })
      if (!/shim/.test(says.source)) t.match(await site.why('node001'), says, 'svcd tells PCR and file')
    })

  await site.publish(1)
  await t.test("another machine with the node's MAC and address, with a TPM of its own", async t => {
    const { console } = await site.run(1, 'other', { until: refused })
    t.notMatch(console, gotScript, { console: tail(console) })
    t.match(console, /another TPM than that of node node001 asks/)
    t.match(await site.why('node001'), /another TPM/)
  })
  await t.test('the same without a TPM', async t => {
    const { console } = await site.run(1, undefined, { until: refused })
    t.notMatch(console, gotScript, { console: tail(console) })
    t.match(console, /this machine has no TPM 2\.0 that the kernel knows/)
    const answer = await site.asMachine(1, '/boot/install/node001')
    t.match(JSON.parse(answer), { code: 'trust-required' }, 'and nothing by asking itself')
    t.notMatch(answer, 'SVC_TOKEN')
  })
  await t.test('Secure Boot off', async t => {
    // Settings without keys.
    const settings = join(site.directory, 'settings')
    await mkdir(settings)
    await copyFile('/usr/share/OVMF/OVMF_VARS_4M.fd', join(settings, 'vars.fd'))
    const { console } = await site.run(1, 'tpm', { until: refused, settings })
    t.notMatch(console, gotScript, { console: tail(console) })
    t.match(console, /Secure Boot is off|the firmware left no event log of its TPM/)
  })
  await t.test('and the right machine is as good as before', async t => {
    const { console } = await site.run(1, 'tpm', { until: /STAGE \S+ tree|trying again/ })
    t.match(console, gotScript, { console: tail(console) })
    t.match(await site.trusted('node001'), { verdict: 'good' })
  })
})
