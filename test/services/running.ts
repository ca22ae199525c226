import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { toAddress } from '../../lib/model/address.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { settings as cluster, mac, type Objects } from './cluster.js'
import { dhcpSettings } from './dhcp-servers.js'
import { type faces, type Lease, lease, type Wire, wire } from './namespaces.js'
import { rendered } from './rendered.js'

type Face = keyof typeof faces

interface Asks {
  readonly server: string
  readonly objects: Objects
  /** Further addresses of its card, with their prefix lengths. */
  readonly further?: readonly string[]
  /** Is told of the wire. */
  readonly wired?: (wire: Wire) => void
}

/** Runs a server with these objects, whose own address is 10.142.0.1/24 at first, and gives what asks it. */
export async function runs(
  t: Test,
  { server, objects, further = [], wired }: Asks
): Promise<(n: number, face?: Face, ...options: readonly string[]) => Promise<Lease | undefined>> {
  const between = await wire(t)
  wired?.(between)
  const directory = scratch(t)
  for (const address of further)
    await output('ip', ['-n', between.server, 'address', 'add', address, 'dev', 'v0'])
  const card = ['10.142.0.1', ...further].map(address => toAddress(address.replace(/\/.*/, '')))
  const place = { directory, namespace: between.server, device: 'v0' }
  const given = new Map(
    dhcpSettings(server, place).map(text => text.split(/^dhcp\.|=/).slice(-2) as [string, string])
  )
  const files = await rendered(
    'dhcp',
    server,
    objects,
    {
      ...{
        config: `${directory}/dhcp.conf`,
        directory: `${directory}/hosts`,
        leaseFile: `${directory}/leases`
      },
      ...{ controlSocket: '', interfaces: ['v0'], cards: [card] }
    },
    { ...cluster, controller: { name: 'controller', address: '10.142.0.1' } }
  )
  for (const { path, text } of files) {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }
  // kea looks for a link that is up when it starts, and then every five seconds.
  const link = () => output('ip', ['-n', between.server, 'link', 'show', 'v0'])
  await until(async () => (await link()).includes('state UP'))
  await output(given.get('control') ?? '', ['start', server])
  t.teardown(() => {
    if (!t.passing()) t.comment(readFileSync(join(directory, 'server.log'), 'utf8'))
  })
  return (n, face = 'ipxe', ...options) => lease(between, directory, mac(n), face, options)
}
