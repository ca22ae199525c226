import { addNamespace, removeNamespace } from '../support/namespaces.js'
import { output } from '../support/programs.js'
import type { Place } from './servers.js'

/**
 * Machines on a switch, each in a network namespace of its own, with a link of its own in both directions.
 */
export interface SwarmNetwork {
  readonly controller: Place
  readonly nodes: readonly Place[]
  /** Bytes that have left the controller, headers and all. */
  sent(): Promise<number>
  /** Ends what runs in it, then removes it. */
  close(): Promise<void>
}

const ip = (...args: string[]) => output('ip', args)

/** A controller, 10.143.0.1, and `count` nodes from 10.143.0.2 on; `rate` as tc writes it. Needs root. */
export async function swarmNetwork(count: number, rate: string): Promise<SwarmNetwork> {
  const all: string[] = []
  const add = async (what: string) => {
    const name = await addNamespace(what)
    all.push(name)
    return name
  }
  const close = async () => {
    for (const name of all) await removeNamespace(name)
  }
  const limit = (namespace: string, device: string) =>
    output(
      'tc',
      `-n ${namespace} qdisc add dev ${device} root tbf rate ${rate} burst 256k latency 50ms`.split(' ')
    )
  try {
    const at = await add('switch')
    await ip('-n', at, 'link', 'add', 'br0', 'type', 'bridge', 'forward_delay', '0')
    await ip('-n', at, 'link', 'set', 'br0', 'up')
    const machine = async (number: number): Promise<Place & { readonly namespace: string }> => {
      const own = await add(`machine${number}`)
      const [port, address] = [`port${number}`, `10.143.0.${number + 1}`]
      await ip(...`link add eth0 netns ${own} type veth peer name ${port} netns ${at}`.split(' '))
      await ip('-n', at, 'link', 'set', port, 'master', 'br0', 'up')
      await ip('-n', own, 'address', 'add', `${address}/24`, 'dev', 'eth0')
      await ip('-n', own, 'link', 'set', 'eth0', 'up')
      await limit(own, 'eth0')
      await limit(at, port)
      return { enter: ['ip', 'netns', 'exec', own], address, namespace: own }
    }
    const controller = await machine(0)
    const nodes: Place[] = []
    for (let number = 1; number <= count; number++) nodes.push(await machine(number))
    const sent = async () => {
      const [link] = JSON.parse(await ip('-n', controller.namespace, '-j', '-s', 'link', 'show', 'eth0'))
      return link.stats64.tx.bytes as number
    }
    return { controller, nodes, sent, close }
  } catch (error) {
    await close()
    throw error
  }
}
