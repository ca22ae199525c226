import { createHash } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import type { ApiRoute, Parts } from '../../lib/api/context.js'
import { routes } from '../../lib/api/routes.js'
import { loadConfig } from '../../lib/config/load.js'
import { shippedLayouts } from '../../lib/model/shipped-layouts.js'
import { Controller } from './controller.js'
import { installLibrary } from './install-script.js'
import { ended, plantRequest } from './planted-request.js'

const config = loadConfig(fileURLToPath(new URL('../../etc/svcd.ini', import.meta.url)), [])

/** Every route there is, without what is behind it. */
export const table: readonly ApiRoute[] = routes({ config } as Parts)

/**
 * Routes that answer otherwise each time: what asks a BMC, what tells of requests, machines that a restart
 * forgets, and the state as a file.
 */
export const neverTheSame =
  /^\/(control\/|(metrics|monitor\/(audit|events|overview|unknown)|.+\/snapshot)$)|\/_(boots|why)$/

/** A value for each path parameter, of an object that `populated` makes. */
export const existing: Readonly<Record<string, string>> = {
  group: 'compute',
  groupname: 'compute',
  node: 'n1',
  hostname: 'n1',
  osimage: 'compute',
  bmcsetup: 'boards',
  switch: 'sw1',
  otherdev: 'pdu',
  filename: 'motd',
  disklayout: 'disk',
  controller: 'c9',
  tagname: 'v1',
  secret: 'key',
  token: 'none',
  network: 'cluster',
  interface: 'BOOTIF',
  host: 'www',
  role: 'web',
  script: 'setup',
  service: 'svcd',
  ipaddress: '10.141.0.1',
  macaddress: '52:54:00:00:00:01',
  file: 'vmlinuz',
  tarball: 'compute.tar.gz',
  sha256: createHash('sha256').update(installLibrary()).digest('hex'),
  request_id: ended.id,
  pagefile: 'app.js',
  format: 'genders'
}

/**
 * A controller with one object of every type, a role and a script; it has no users but admin unless
 * overridden.
 */
export async function populated(
  test: Parameters<typeof Controller.start>[0],
  ...overrides: string[]
): Promise<Controller> {
  const files = test.testdir({ roles: { web: 'echo web\n' }, scripts: { setup: 'echo setup\n' } })
  const c = await Controller.start(
    test,
    `paths.roles=${files}/roles`,
    `paths.scripts=${files}/scripts`,
    ...overrides
  )
  await c.cluster()
  await c.post('/config/bmcsetup/boards', { username: 'root', password: 'calvin' })
  await c.post('/config/switch/sw1', { read: 'community' })
  await c.post('/config/otherdev/pdu', {})
  await c.post('/config/dns/cluster', [{ host: 'www', alias: 'elsewhere.example.org' }])
  await c.post('/config/file/motd', { path: '/etc/motd', template: 'this is {{ node }}\n' })
  await c.post('/config/disklayout/disk', { ...shippedLayouts.raid1 })
  await c.post('/config/osimage/compute/tag', { tag: 'v1' })
  await c.post('/config/secrets/group/compute', [secret])
  await c.post('/config/node/n1', {
    group: 'compute',
    bmcsetupname: 'boards',
    roles: 'web',
    macaddr: existing.macaddress,
    files: ['motd']
  })
  await c.post('/config/secrets/node/n1', [secret])
  plantRequest(c)
  await c.restart()
  return c
}

const secret = { name: 'key', path: '/etc/key', content: 'aGVsbG8=' }

/** Names of the parameters in a route's path. */
export const parameters = (route: ApiRoute) =>
  [...route.path.matchAll(/\{(\w+)\}/g)].map(match => match[1] ?? '')

/** The path of a route with existing objects in it, but for those given (as they are, already encoded). */
export function pathOf(route: ApiRoute, given: Readonly<Record<string, string>> = {}): string {
  // An answer without an end.
  if (route.path === '/monitor/events') return `${route.path}?follow=no`
  return route.path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = given[name] ?? existing[name]
    if (value === undefined) throw new Error(`route ${route.path}: say in table.ts what {${name}} may be`)
    return value
  })
}

/** A body that a route with `body: 'json'` takes, for existing objects; it changes nothing, where it can. */
export function bodyOf(route: ApiRoute): unknown {
  if (route.path === '/token') return { username: 'admin', password: 'wrong' }
  if (route.path === '/auth/oidc/finish') return { query: 'state=none', secret: 'none' }
  if (route.path === '/auth/device/finish') return { device: 'none' }
  if (route.path.endsWith('/interfaces')) return { interfaces: [] }
  if (route.path.startsWith('/monitor/node')) return { state: 'x' }
  if (route.path.endsWith('/tag')) return { tag: 'v1' }
  if (route.path.startsWith('/config/secrets')) {
    if (route.path.endsWith('_clone')) return { newsecretname: 'copy' }
    return route.path.endsWith('{secret}') ? {} : []
  }
  if (route.path.endsWith('/_trust')) return { ek: '0'.repeat(64), ak: '00', seen: '0'.repeat(64) }
  if (route.path.startsWith('/control/console/')) return { session: 'none' }
  if (route.path.startsWith('/monitor/inventory/')) return { kernel: '6.1' }
  if (route.path.startsWith('/control/')) return { hostlist: 'none' }
  if (/_os(grab|push)$/.test(route.path)) return { osimage: 'none' }
  if (/_rehearse$/.test(route.path)) return { osimage: 'none' }
  if (/_import$/.test(route.path)) return { source: 'docker://127.0.0.1:1/none' }
  if (/\/_push$/.test(route.path)) return { target: 'docker://127.0.0.1:1/none:1' }
  const clone = /^\/config\/(\w+)\/.*\/_clone$/.exec(route.path)?.[1] ?? ''
  const newName = {
    group: 'newgroupname',
    node: 'newhostname',
    network: 'newnetname',
    bmcsetup: 'newbmcname',
    osimage: 'newosimage',
    switch: 'newswitchname',
    otherdev: 'newotherdevname',
    file: 'newfilename',
    disklayout: 'newlayoutname'
  }
  return clone === '' ? {} : { [newName[clone as keyof typeof newName]]: 'copy' }
}

/** Lines of the log that say something went wrong inside. */
export const complaints = (c: Controller) => c.log.filter(line => /^<[34]>|^\S+ (error|warn) /.test(line))
