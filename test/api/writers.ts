import { brokenRules, type Objects, objects, type Shown } from '../support/broken-rules.js'
import type { Client, Read } from '../support/client.js'

/** What the lists show of a moment. */
export interface World {
  readonly node: Objects
  readonly group: Objects
  readonly network: Objects
  readonly bmcsetup: Objects
  readonly otherdev: Objects
}

async function worldOf(client: Client): Promise<World> {
  const types = ['node', 'group', 'network', 'bmcsetup', 'otherdev']
  const [node = {}, group = {}, network = {}, bmcsetup = {}, otherdev = {}] = await Promise.all(
    types.map(type => objects(client, type))
  )
  return { node, group, network, bmcsetup, otherdev }
}

/** Lists are compared in their order. */
export type State = string | readonly string[]

/**
 * A client that makes one change after the other to objects of its own. After a crash they must be as the
 * last acknowledged change left them, or as the one under way would have: nothing between.
 */
export interface Writer {
  readonly name: string
  readonly first: State
  /** What the world holds of this writer's objects. */
  read(world: World): State
  /** The next change: what is sent, and the state once it is done. */
  next(now: State, round: number): { after: State; send(client: Client): Promise<Read> }
}

const MEMBERS = Array.from({ length: 8 }, (_, i) => `member${i + 1}`)
const startingWith = (of: Objects, prefix: string) => Object.keys(of).filter(name => name.startsWith(prefix))
const nics = (shown: Shown | undefined) => (shown?.interfaces ?? []).map(entry => entry.interface)
const other = (now: State, a: string, b: string) => (now === a ? b : a)

/** The values of several objects as one: the value all have, or all of them where they differ. */
const common = (values: readonly (string | null | undefined)[]): State => {
  const different = [...new Set(values.length === 0 ? ['none'] : values.map(value => value ?? 'none'))]
  return different.length === 1 ? (different[0] as string) : different
}

/** The objects the writers start from. */
export async function prepare(client: Client): Promise<void> {
  const boot = (network: string) => ({ interfaces: [{ interface: 'BOOTIF', network }] })
  const posts: [string, object][] = [
    ['network/fixed', { network: '10.1.0.0/16' }],
    ['network/net-a', { network: '10.2.0.0/16' }],
    ['group/plain', boot('fixed')],
    ['group/wide', boot('fixed')],
    ['group/name-a', boot('net-a')],
    ['group/machines', boot('fixed')],
    ['node/known', { comment: '0' }],
    ['node/rename-a', { comment: 'it follows' }],
    ['node/moving', { group: 'plain' }],
    ['node/reporting', {}],
    ['bmcsetup/boards', { password: 'first' }],
    ...MEMBERS.map((name): [string, object] => [`node/${name}`, { group: 'wide' }]),
    ...MEMBERS.map((name): [string, object] => [`node/of-${name}`, { group: 'name-a' }])
  ]
  for (const [path, body] of posts) {
    const { status, text } = await client.post(`/config/${path}`, body)
    if (status !== 201) throw new Error(`${path}: ${text}`)
  }
  await client.post('/monitor/node/rename-a', { state: 'installer.follows' })
}

/** The first three change one object at a time. */
export const WRITERS: readonly Writer[] = [
  {
    name: 'creates and deletes nodes',
    first: [],
    read: ({ node }) => startingWith(node, 'new'),
    next: (now, round) => {
      const [oldest] = now
      if (oldest !== undefined && now.length > 20)
        return { after: now.slice(1), send: client => client.get(`/config/node/${oldest}/_delete`) }
      // Numbered upwards, so that the list's order is the order they were made in.
      const name = `new${round}`
      return {
        after: [...now, name],
        send: client => client.post(`/config/node/${name}`, { group: 'plain' })
      }
    }
  },
  {
    name: 'updates a node',
    first: '0',
    read: ({ node }) => (node.known as { comment?: string } | undefined)?.comment ?? 'gone',
    next: (_, round) => ({
      after: String(round),
      send: client => client.post('/config/node/known', { comment: String(round) })
    })
  },
  {
    name: 'moves a node between groups',
    first: 'plain',
    read: ({ node }) => node.moving?.group ?? 'gone',
    next: now => {
      const to = other(now, 'plain', 'wide')
      return { after: to, send: client => client.post('/config/node/moving', { group: to }) }
    }
  },
  {
    name: 'renames a node that has a status',
    first: ['rename-a', 'it follows', 'installer.follows'],
    read: ({ node }) =>
      startingWith(node, 'rename-').flatMap(name => {
        const { comment, status } = node[name] as Shown & { comment?: string }
        return [name, comment ?? '', status ?? 'no status']
      }),
    next: ([name = '', ...rest]) => {
      const to = other(name, 'rename-a', 'rename-b')
      return {
        after: [to, ...rest],
        send: client => client.post(`/config/node/${name}`, { newhostname: to })
      }
    }
  },
  {
    name: 'changes a node set',
    first: 'none',
    read: ({ node }) => common(MEMBERS.map(name => (node[`of-${name}`] as { comment?: string }).comment)),
    next: (_, round) => ({
      after: String(round),
      send: client => client.post('/config/node/of-member[1-8]', { comment: String(round) })
    })
  },
  {
    name: 'adds and removes an interface of a group',
    first: 'BOOTIF',
    read: ({ node, group }) =>
      common([...MEMBERS.map(name => nics(node[name]).join('+')), nics(group.wide).join('+')]),
    next: now => ({
      after: other(now, 'BOOTIF', 'BOOTIF+eth1'),
      send: client =>
        now === 'BOOTIF'
          ? client.post('/config/group/wide/interfaces', {
              interfaces: [{ interface: 'eth1', network: 'fixed' }]
            })
          : client.get('/config/group/wide/interfaces/eth1/_delete')
    })
  },
  {
    name: 'renames a group',
    first: 'name-a',
    read: ({ node, group }) =>
      common([...startingWith(group, 'name-'), ...MEMBERS.map(name => node[`of-${name}`]?.group)]),
    next: now => {
      const to = other(now, 'name-a', 'name-b')
      return { after: to, send: client => client.post(`/config/group/${now}`, { newgroupname: to }) }
    }
  },
  {
    name: 'renames a network',
    first: 'net-a',
    read: ({ node, group, network }) =>
      common([
        ...startingWith(network, 'net-'),
        ...startingWith(group, 'name-').map(name => group[name]?.interfaces?.[0]?.network),
        ...MEMBERS.map(name => node[`of-${name}`]?.interfaces?.[0]?.network)
      ]),
    next: now => {
      const to = other(now, 'net-a', 'net-b')
      return { after: to, send: client => client.post(`/config/network/${now}`, { newnetname: to }) }
    }
  },
  {
    name: 'reports a status',
    first: 'none',
    read: ({ node }) => node.reporting?.status ?? 'none',
    next: (_, round) => ({
      after: `installer.${round}`,
      send: client => client.post('/monitor/node/reporting', { state: `installer.${round}` })
    })
  },
  {
    name: 'changes a password',
    first: 'first',
    read: ({ bmcsetup }) => (bmcsetup.boards as { password?: string } | undefined)?.password ?? 'gone',
    next: (_, round) => ({
      after: `calvin-${round}`,
      send: client => client.post('/config/bmcsetup/boards', { password: `calvin-${round}` })
    })
  },
  {
    name: 'imports a section',
    first: 'none',
    read: ({ otherdev }) =>
      common(Object.values(otherdev).map(shown => (shown as { comment?: string }).comment)),
    next: (_, round) => {
      const section = MEMBERS.map(name => [`of-${name}`, { comment: String(round) }])
      const config = { otherdev: Object.fromEntries(section) }
      return { after: String(round), send: client => client.post('/config/cluster/import', { config }) }
    }
  },
  {
    name: 'boots new machines',
    first: [],
    read: ({ node }) =>
      Object.values(node)
        .filter(({ group }) => group === 'machines')
        .map(({ interfaces }) => interfaces?.[0]?.macaddress ?? 'none'),
    next: (now, round) => {
      const digits = round.toString(16).padStart(6, '0')
      const mac = `52:54:00:${digits.replace(/(..)(?!$)/g, '$1:')}`
      return { after: [...now, mac], send: client => client.get(`/boot/manual/group/machines/${mac}`) }
    }
  }
]

/** What is known of a writer's objects. */
export class Known {
  now: State
  /** What the change under way would make of them. */
  pending: State
  acknowledged = 0
  static #round = 0

  constructor(readonly writer: Writer) {
    this.now = writer.first
    this.pending = writer.first
  }

  /** Makes one change after the other until the daemon is gone; returns what was refused, if anything. */
  async write(client: Client): Promise<string | undefined> {
    for (;;) {
      const answer = await this.step(client)
      if (answer === undefined) return undefined
      if (answer.status >= 300) return `${this.writer.name}: ${answer.status} ${answer.text}`
    }
  }

  /** Makes one change; undefined where the daemon is gone. What is refused has changed nothing. */
  async step(client: Client): Promise<Read | undefined> {
    const { after, send } = this.writer.next(this.now, ++Known.#round)
    this.pending = after
    const answer = await send(client).catch(() => undefined)
    if (answer === undefined) return undefined
    if (answer.status < 300) {
      this.now = after
      this.acknowledged++
    } else this.pending = this.now
    return answer
  }

  /** Returns the faults of the state after a restart. */
  check(world: World): string[] {
    const found = JSON.stringify(this.writer.read(world))
    const possible = [JSON.stringify(this.now), JSON.stringify(this.pending)]
    this.now = this.writer.read(world)
    this.pending = this.now
    if (possible.includes(found)) return []
    return [`${this.writer.name}: acknowledged ${possible[0]}, under way ${possible[1]}, found ${found}`]
  }
}

/**
 * Returns the faults of the state after a restart: acknowledged changes that are gone, and rules between objects that
 * are broken.
 */
export async function damage(
  reader: Client,
  all: readonly Known[]
): Promise<{ gone: string[]; halves: string[] }> {
  const world = await worldOf(reader)
  return { gone: all.flatMap(known => known.check(world)), halves: await brokenRules(reader) }
}
