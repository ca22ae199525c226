import { join } from 'node:path'
import type { Test } from 'tap'
import { Tokens } from '../../../lib/auth/tokens.js'
import { daemonActor } from '../../../lib/model/model.js'
import { generationOf } from '../../../lib/model/types/node.js'
import type { StoredFiles } from '../../../lib/store/files/stored.js'
import { makeTree } from '../../image/small-tree.js'
import { cheapHash, passwords } from '../../support/callers.js'
import { type Ask, Controller } from '../../support/controller.js'
import { local } from '../../support/login.js'
import { plantRequest } from '../../support/planted-request.js'
import { pretended } from './services.js'

export const base64 = (text: string) => Buffer.from(text).toString('base64')
export const mac = '52:54:00:00:00:01'

/** What the files of two objects of the world hold. */
export const files = {
  compute: {
    name: 'compute',
    osimage: 'compute',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster' }]
  },
  n1: {
    name: 'n1',
    group: 'compute',
    switch: 'sw1',
    bmcsetupname: 'boards',
    roles: 'web',
    interfaces: [
      { interface: 'BOOTIF', network: 'cluster', ipaddress: '10.141.0.1', macaddress: mac },
      { interface: 'eth1', network: 'cluster', ipaddress: '10.141.0.2', own: true }
    ] as { interface: string; [key: string]: unknown }[]
  }
}

/** The state before every case: an object of each type that is in use, and one that is not. */
export const world = {
  config: {
    cluster: {},
    network: {
      cluster: { network: '10.141.0.0/16', gateway: '10.141.255.253' },
      // Every host address of it is taken.
      full: { network: '10.9.0.0/30', gateway: '10.9.0.1' },
      idle: { network: '10.8.0.0/24' }
    },
    osimage: {
      compute: { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'compute.tar.gz' },
      idle: {}
    },
    bmcsetup: { boards: { username: 'root', password: 'calvin' }, idle: { userid: 3 } },
    group: {
      compute: files.compute,
      idle: {},
      crowded: { interfaces: [{ interface: 'BOOTIF', network: 'full' }] }
    },
    node: {
      n1: files.n1,
      n2: {}
    },
    switch: {
      sw1: { network: 'cluster', ipaddress: '10.141.0.200', read: 'public' },
      idle: {}
    },
    otherdev: { pdu: { network: 'full', ipaddress: '10.9.0.2' } },
    osimagetag: {
      stable: { name: 'stable', osimage: 'compute', kernelfile: 'vmlinuz', initrdfile: 'initrd.img' }
    },
    secrets: {
      group: { compute: [{ name: 'munge', path: '/etc/munge/munge.key', content: base64('of the group') }] },
      node: { n1: [{ name: 'host', path: '/etc/ssh/host_key', content: base64('of n1') }] }
    }
  }
}

/** Who asks, by the token sent. */
export type Who = 'admin' | 'viewer' | 'nobody' | 'garbage' | 'n1' | 'n2'

/** A controller with `world` in it and users: a token for everybody. */
export class Stage {
  readonly #held = new Set<string>()
  /**
   * The files as the last case has left them: those before the next one, so that a change that comes late is
   * found too. Where it is absent, they have to be read.
   */
  left: Record<string, unknown> | undefined

  private constructor(
    readonly c: Controller,
    readonly tokens: Tokens
  ) {}

  /** `more`: what else the ini has. */
  static async open(test: Test, ...more: string[]): Promise<Stage> {
    const scripts = test.testdir({
      roles: { web: '# target: web.target\necho web\n' },
      scripts: { setup: 'echo setup\n' }
    })
    // Port 1: no node of the world has an ssh server.
    const overrides = [
      `paths.roles=${scripts}/roles`,
      `paths.scripts=${scripts}/scripts`,
      'ssh.port=1',
      ...more
    ]
    const c = await Controller.start(test, ...overrides)
    makeTree(join(c.directory, 'images', 'idle'))
    for (const name of ['vmlinuz', 'initrd.img', 'compute.tar.gz']) c.file(name)
    const users = [
      `users.root=admin ${cheapHash(passwords.root)}`,
      `users.alice=viewer ${cheapHash(passwords.alice)}`
    ]
    Object.assign(c, { overrides: [...c.overrides, ...users, ...pretended(c.directory)] })
    plantRequest(c)
    await c.restart()
    c.token = await c.login('root', passwords.root)
    const hour = 3_600_000
    const tokens = await Tokens.open(join(c.directory, 'state'), {
      now: Date.now,
      lifetimeMs: hour,
      nodeLifetimeMs: hour
    })
    const stage = new Stage(c, tokens)
    await stage.reset()
    return stage
  }

  /** The world as it was. */
  async reset(): Promise<void> {
    this.left = undefined
    const { status, text } = await this.c.post('/config/cluster/import', world)
    if (status !== 201) throw new Error(`the world cannot be put back: ${text}`)
    // An import leaves what happened to the nodes that stay.
    await this.c.daemon.model.change(daemonActor, tx => {
      for (const name of [...tx.names('handover')]) tx.remove('handover', name)
    })
    await this.c.asked?.caughtUp()
  }

  /** Resolves when nothing goes on behind the requests but those that `path` has made; gives the files. */
  idle(): Promise<StoredFiles> {
    return this.c.idle(this.#held)
  }

  /** A path with the id of a request in it that runs until it is cancelled, where it says `{running}`. */
  async path(path: string): Promise<string> {
    if (!path.includes('{running}')) return path
    const { id } = await this.c.daemon.jobs.submit({
      ...{ kind: 'pack', object: 'OS image compute', by: 'user root', lanes: [] },
      run: ({ signal }) =>
        new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    })
    this.#held.add(id)
    return path.replace('{running}', id)
  }

  /** How a request of somebody is sent. */
  as(who: Who, source?: string): Ask {
    const node = (name: string) => this.tokens.issueNode(name, generationOf(this.c.daemon.model.view, name))
    const tokens: Record<Who, () => string | null> = {
      admin: () => this.c.token,
      viewer: () => this.tokens.issueUser(local('alice', 'viewer')),
      nobody: () => null,
      garbage: () => 'garbage',
      n1: () => node('n1'),
      n2: () => node('n2')
    }
    return { token: tokens[who](), ...(source === undefined ? {} : { source }) }
  }
}
