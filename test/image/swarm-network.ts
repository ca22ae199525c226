import { output } from '../support/programs.js'
import type { Place } from './servers.js'

/** Machines on a switch, each in a network namespace of its own, with a link of its own in both directions. */
export interface SwarmNetwork {
  readonly controller: Place
  readonly nodes: readonly Place[]
  /** Bytes that have left the controller, headers and all. */
  sent(): Promise<number>
  /** Ends what runs in it, then removes it. */
  close(): Promise<void>
}

const prefix = 'svcd-swarm-'
const ip = (...args: string[]) => output('ip', args)

const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

async function remove(name: string): Promise<void> {
  for (const pid of (await ip('netns', 'pids', name)).split('\n').filter(Boolean))
    try {
      process.kill(Number(pid), 'SIGKILL')
    } catch {
      // It ended by itself meanwhile.
    }
  await ip('netns', 'delete', name)
}

/** Removes the networks of this process, and those of runs that were killed. */
async function sweep(): Promise<void> {
  for (const line of (await ip('netns', 'list')).split('\n')) {
    const [name = ''] = line.split(' ')
    const owner = Number(name.match(/^svcd-swarm-(\d+)-\w+$/)?.[1])
    // Another run may be sweeping too.
    if (owner && (owner === process.pid || !isAlive(owner))) await remove(name).catch(() => {})
  }
}

/** A controller, 10.143.0.1, and `count` nodes from 10.143.0.2 on; `rate` as tc writes it. Needs root. */
export async function swarmNetwork(count: number, rate: string): Promise<SwarmNetwork> {
  await sweep()
  const name = (part: string | number) => `${prefix}${process.pid}-${part}`
  const at = name('switch')
  const limit = (namespace: string, device: string) =>
    output(
      'tc',
      `-n ${namespace} qdisc add dev ${device} root tbf rate ${rate} burst 256k latency 50ms`.split(' ')
    )
  await ip('netns', 'add', at)
  try {
    await ip('-n', at, 'link', 'add', 'br0', 'type', 'bridge', 'forward_delay', '0')
    await ip('-n', at, 'link', 'set', 'br0', 'up')
    const machine = async (number: number): Promise<Place> => {
      const [own, port, address] = [name(number), `port${number}`, `10.143.0.${number + 1}`]
      await ip('netns', 'add', own)
      await ip(...`link add eth0 netns ${own} type veth peer name ${port} netns ${at}`.split(' '))
      await ip('-n', at, 'link', 'set', port, 'master', 'br0', 'up')
      await ip('-n', own, 'address', 'add', `${address}/24`, 'dev', 'eth0')
      await ip('-n', own, 'link', 'set', 'eth0', 'up')
      await ip('-n', own, 'link', 'set', 'lo', 'up')
      await limit(own, 'eth0')
      await limit(at, port)
      return { enter: ['ip', 'netns', 'exec', own], address }
    }
    const controller = await machine(0)
    const nodes: Place[] = []
    for (let number = 1; number <= count; number++) nodes.push(await machine(number))
    const sent = async () => {
      const [link] = JSON.parse(await ip('-n', name(0), '-j', '-s', 'link', 'show', 'eth0'))
      return link.stats64.tx.bytes as number
    }
    return { controller, nodes, sent, close: sweep }
  } catch (error) {
    await sweep()
    throw error
  }
}
