import { join } from 'node:path'
import type { Test } from 'tap'
import { makeCertificate } from './certificate.js'
import { type Child, startChild } from './child.js'
import { addNamespace, removeNamespace } from './namespaces.js'
import { output, requirePrograms } from './programs.js'
import { scratch } from './scratch.js'

/** A machine with a member of etcd, in a network namespace of its own. */
export interface Site {
  /** The words before a command that runs there. */
  readonly enter: readonly string[]
  readonly address: string
  /** Its member of etcd. */
  readonly member: Child
  /** Starts its member again. */
  startMember(): Promise<void>
  /** Saves a snapshot of what its member holds, with all that was acknowledged until now; gives its file. */
  save(): Promise<string>
  /** Has its member, which does not run, begin with a snapshot. */
  restore(file: string): Promise<void>
  /** What its member answers; undefined where it does not within two seconds. */
  ask(path: string, question: object): Promise<Record<string, never> | undefined>
  /** Cuts it off from the others, or joins it to them again. */
  cut(isCut: boolean): Promise<void>
}

/**
 * Machines with a member of etcd each, the certificate of all, and the words before a command on their
 * network.
 */
export interface Sites {
  readonly sites: readonly Site[]
  readonly certificate: string
  readonly enter: readonly string[]
}

const CLIENTS = 2379
const PEERS = 2380
const entering = (namespace: string) => ['ip', 'netns', 'exec', namespace]

/** Starts three. Each listens on its loopback in the clear, and for the others with TLS. */
export async function startSites(t: Test): Promise<Sites> {
  requirePrograms('etcd', 'curl')
  const directory = scratch(t)
  const ip = (...words: string[]) => output('ip', words)
  const hub = await addNamespace('hub')
  t.teardown(() => removeNamespace(hub))
  await ip('-n', hub, 'link', 'add', 'lan', 'type', 'bridge')
  await ip('-n', hub, 'address', 'add', '10.99.0.254/24', 'dev', 'lan')
  await ip('-n', hub, 'link', 'set', 'lan', 'up')
  const addresses = [1, 2, 3].map(i => `10.99.0.${i}`)
  const files = await makeCertificate(directory, 'etcd', 90, '/CN=etcd', addresses)
  const cluster = addresses.map((address, i) => `m${i + 1}=http://${address}:${PEERS}`).join()
  const sites = await Promise.all(
    addresses.map(async (address, i) => {
      const name = `m${i + 1}`
      const namespace = await addNamespace(name)
      t.teardown(() => removeNamespace(namespace))
      await ip('-n', hub, 'link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace)
      await ip('-n', hub, 'link', 'set', name, 'master', 'lan', 'up')
      await ip('-n', namespace, 'address', 'add', `${address}/24`, 'dev', 'eth0')
      await ip('-n', namespace, 'link', 'set', 'eth0', 'up')
      return new SiteOf(name, namespace, address, ip, hub, join(directory, name), cluster, [
        ...['etcd', '--name', name],
        // As docs/controllers.md has it for members in one room.
        ...['--heartbeat-interval', '50', '--election-timeout', '500', '--pre-vote'],
        ...['--quota-backend-bytes', String(8 * 1024 ** 3)],
        ...['--logger', 'zap', '--log-level', 'error'],
        ...['--listen-client-urls', `http://127.0.0.1:${CLIENTS},https://${address}:${CLIENTS}`],
        ...['--advertise-client-urls', `https://${address}:${CLIENTS}`],
        ...['--cert-file', files.certificate, '--key-file', files.key],
        ...['--listen-peer-urls', `http://${address}:${PEERS}`],
        ...['--initial-advertise-peer-urls', `http://${address}:${PEERS}`],
        ...['--initial-cluster', cluster, '--initial-cluster-state', 'new']
      ])
    })
  )
  await Promise.all(sites.map(site => site.startMember()))
  for (const site of sites) t.teardown(() => site.member.kill())
  return { sites, certificate: files.certificate, enter: entering(hub) }
}

class SiteOf implements Site {
  readonly enter: readonly string[]
  #member: Child | undefined
  #restored = 0

  constructor(
    readonly name: string,
    namespace: string,
    readonly address: string,
    readonly ip: (...words: string[]) => Promise<string>,
    readonly hub: string,
    readonly directory: string,
    readonly cluster: string,
    readonly command: readonly string[]
  ) {
    this.enter = entering(namespace)
  }

  get member(): Child {
    if (!this.#member) throw new Error(`${this.name} was not started`)
    return this.#member
  }

  async startMember(): Promise<void> {
    const command = [...this.enter, ...this.command, '--data-dir', `${this.directory}.${this.#restored}`]
    this.#member = await startChild(command, async () => {
      const answer = await this.ask('kv/range', { key: Buffer.from('x').toString('base64') })
      return answer?.header !== undefined
    })
  }

  async save(): Promise<string> {
    const [program = '', ...words] = this.enter
    const etcdctl = (...more: string[]) =>
      output(program, [...words, 'etcdctl', `--endpoints=http://127.0.0.1:${CLIENTS}`, ...more])
    // A member that has answered this has all that was acknowledged before.
    await etcdctl('get', 'x')
    const file = `${this.directory}.snapshot${Date.now()}`
    await etcdctl('snapshot', 'save', file)
    return file
  }

  async restore(file: string): Promise<void> {
    await output('etcdctl', [
      ...['snapshot', 'restore', file, '--name', this.name, '--initial-cluster', this.cluster],
      ...['--initial-advertise-peer-urls', `http://${this.address}:${PEERS}`],
      ...['--data-dir', `${this.directory}.${++this.#restored}`]
    ])
  }

  async ask(path: string, question: object): Promise<Record<string, never> | undefined> {
    const [program = '', ...words] = this.enter
    const url = `http://127.0.0.1:${CLIENTS}/v3/${path}`
    const text = await output(program, [
      ...words,
      ...['curl', '--silent', '--max-time', '2', '--data-binary', JSON.stringify(question), url]
    ]).catch(() => '')
    try {
      return JSON.parse(text)
    } catch {
      return undefined
    }
  }

  async cut(isCut: boolean): Promise<void> {
    await this.ip('-n', this.hub, 'link', 'set', this.name, isCut ? 'down' : 'up')
  }
}
