import { chmod, chown, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { type Child, startChild } from '../support/child.js'
import { freePort } from '../support/free-port.js'
import { checkout, output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

/** Put before a program, it dies with the test. */
const bound = ['setpriv', '--pdeathsig', 'KILL']
/** The same, and as the units have it: a user of its own, who writes nowhere. */
const nobody = [...bound, '--reuid=nobody', '--regid=nogroup', '--clear-groups']
const nogroup = 65534
const giveUpMs = 60_000

/** Lets the seeder's group read a directory and what is in it, as docs/torrent.md has it. */
export async function forSeeders(path: string): Promise<void> {
  await chown(path, 0, nogroup)
  await chmod(path, 0o2750)
  for (const name of await readdir(path)) {
    await chown(join(path, name), 0, nogroup)
    await chmod(join(path, name), 0o640)
  }
}

/** Waits until `holds`; fails with what `state` tells when that does not come. */
export async function until(holds: () => boolean | Promise<boolean>, state: () => unknown): Promise<void> {
  const giveUp = Date.now() + giveUpMs
  while (!(await holds())) {
    if (Date.now() > giveUp) throw new Error(`it did not come about: ${JSON.stringify(state())}`)
    await sleep(50)
  }
}

/** Where servers run: on loopback, or, with a command that enters it, in a network namespace. */
export interface Place {
  readonly enter: readonly string[]
  readonly address: string
}

const loopback: Place = { enter: [], address: '127.0.0.1' }

const answers = ({ enter, address }: Place, port: number) => {
  const [program = '', ...args] = [...enter, 'bash', '-c', `: 2>&- </dev/tcp/${address}/${port}`]
  return output(program, args).then(
    () => true,
    () => false
  )
}

/** opentracker in whitelist mode. */
export interface OpenTracker {
  readonly port: number
  readonly whitelist: string
  /** Makes it read the whitelist. */
  readonly reload: readonly string[]
  start(): Promise<void>
  stop(): Promise<void>
}

/** Debian's opentracker on a free port, its whitelist in a directory of its own. */
export async function openTracker(t: Test, place: Place = loopback): Promise<OpenTracker> {
  const root = scratch(t)
  const port = await freePort()
  const whitelist = join(root, 'whitelist')
  await writeFile(whitelist, '')
  const pid = join(root, 'pid')
  let child: Child | undefined
  const stop = async () => child?.stop()
  t.teardown(stop)
  return {
    port,
    whitelist,
    reload: ['sh', join(root, 'reload')],
    async start() {
      await writeFile(join(root, 'reload'), `kill -HUP "$(cat ${pid})"\n`)
      const shipped = await readFile(join(checkout, 'etc/opentracker.conf'), 'utf8')
      const conf = shipped
        .replace('listen.tcp 0.0.0.0:6969', `listen.tcp_udp ${place.address}:${port}`)
        .replaceAll('/var/lib/svcd/tracker', root)
        .replace('tracker.user _opentracker', 'tracker.user nobody')
      await writeFile(join(root, 'opentracker.conf'), conf)
      for (const file of [root, whitelist, join(root, 'opentracker.conf')]) await chmod(file, 0o755)
      const command = [...nobody, 'opentracker', '-f', join(root, 'opentracker.conf')]
      const program = `echo $$ > ${pid}; exec ${command.join(' ')}`
      child = await startChild([...place.enter, 'sh', '-c', program], () => answers(place, port))
    },
    stop
  }
}

/** A seeder that a test may start and stop at will; a start forgets all torrents. */
export interface SeedingServer {
  readonly url: string
  readonly directory: string
  start(): Promise<void>
  stop(): Promise<void>
}

/** transmission-daemon on free ports; its RPC is on loopback. */
export async function transmission(
  t: Test,
  settings: Readonly<Record<string, unknown>> = {},
  place: Place = loopback
): Promise<SeedingServer> {
  const root = scratch(t)
  const [rpc, peers] = [await freePort(), await freePort()]
  let child: Child | undefined
  const stop = async () => child?.stop()
  t.teardown(stop)
  return {
    url: `http://127.0.0.1:${rpc}/transmission/rpc`,
    directory: root,
    async start() {
      const home = join(root, 'home')
      await rm(home, { recursive: true, force: true })
      await mkdir(home)
      const all = {
        'rpc-bind-address': '127.0.0.1',
        'rpc-port': rpc,
        'rpc-authentication-required': false,
        'bind-address-ipv4': place.address,
        'bind-address-ipv6': '::1',
        'peer-port': peers,
        'dht-enabled': false,
        'lpd-enabled': false,
        'utp-enabled': false,
        'port-forwarding-enabled': false,
        'download-dir': root,
        ...settings
      }
      await writeFile(join(home, 'settings.json'), JSON.stringify(all))
      child = await startChild([...place.enter, ...bound, 'transmission-daemon', '-f', '-g', home], () =>
        answers({ ...place, address: '127.0.0.1' }, rpc)
      )
    },
    stop
  }
}

/** aria2c on free ports, its RPC on loopback; the secret is `swordfish`. */
export async function aria2(
  t: Test,
  place: Place = loopback,
  more: readonly string[] = []
): Promise<SeedingServer> {
  const root = scratch(t)
  const [rpc, peers] = [await freePort(), await freePort()]
  let child: Child | undefined
  const stop = async () => child?.stop()
  t.teardown(stop)
  return {
    url: `http://127.0.0.1:${rpc}/jsonrpc`,
    directory: root,
    async start() {
      const conf = join(root, 'aria2.conf')
      const shipped = await readFile(join(checkout, 'etc/aria2.conf'), 'utf8')
      await writeFile(conf, `${shipped}rpc-secret=swordfish\n`)
      await forSeeders(root)
      const options = [`--conf-path=${conf}`, `--rpc-listen-port=${rpc}`, `--listen-port=${peers}`]
      const here = [`--dir=${root}`, `--interface=${place.address}`, '--disable-ipv6']
      child = await startChild([...place.enter, ...nobody, 'aria2c', ...options, ...here, ...more], () =>
        answers({ ...place, address: '127.0.0.1' }, rpc)
      )
    },
    stop
  }
}
