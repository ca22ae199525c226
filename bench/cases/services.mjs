// DHCP and DNS files of 10,000 hosts, from the objects to the files, with a checker and a reload that cost
// nothing; and how long the event loop stands still meanwhile. Done in this process, with the daemon's own
// parts.
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { checkout } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { inTurn, temporary } from '../harness.mjs'

const HOSTS = 10_000
const controller = { name: 'controller', address: '10.255.255.254' }
const cluster = { provision_method: 'http', provision_fallback: 'http', ntp_server: '', controller }
const options = {
  url: 'http://10.255.255.254:7050',
  next_server: '10.255.255.254',
  bios: 'a',
  efi_x64: 'b',
  efi_arm64: 'c',
  lease_seconds: 3600,
  interfaces: [],
  dns_too: false
}
const quiet = { level: 'info', error: console.error, warn() {}, info() {}, debug() {} }
const octets = n => [n >> 16, n >> 8, n].map(part => part & 255)

async function parts() {
  const from = async path => import(join(checkout, 'dist', path))
  const [types, backends, capture, dhcp, dns, service, state] = await Promise.all(
    ['model/types', 'services/backends', 'services/capture', 'services/dhcp/data', 'services/dns/data']
      .concat('services/service', 'store/state')
      .map(path => from(`${path}.js`))
  )
  return { ...types, ...backends, ...capture, ...dhcp, ...dns, ...service, ...state }
}

function hosts({ State, kinds, createIndex }) {
  const state = new State(Object.keys(kinds), createIndex())
  const put = (type, name, doc) => state.set(type, name, kinds[type].decode(name, { name, ...doc }))
  const range = { dhcp: true, dhcp_range_begin: '10.200.0.1', dhcp_range_end: '10.200.9.255' }
  put('network', 'cluster', { network: '10.0.0.0/8', ...range })
  put('group', 'compute', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
  const node = (n, more = {}) => {
    const hex = octets(n).map(part => part.toString(16).padStart(2, '0'))
    const [ipaddress, macaddress] = [`10.${octets(n).join('.')}`, `52:54:00:${hex.join(':')}`]
    const interfaces = [{ interface: 'BOOTIF', network: 'cluster', ipaddress, macaddress }]
    put('node', `node${n}`, { group: 'compute', interfaces, ...more })
  }
  for (let n = 1; n <= HOSTS; n++) node(n)
  return { state, node }
}

/** Milliseconds of `work`, and of the longest stall of this event loop meanwhile. */
async function measured(work) {
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const from = performance.now()
  await work()
  const ms = performance.now() - from
  delay.disable()
  return { ms, stall: delay.max / 1e6 }
}

const files = (name, server) => ({
  name: `${name}-${server}`,
  title: `${name} files of 10,000 hosts, ${server}`,
  async run({ rounds }) {
    const { backendOf, capture, dhcpData, dnsData, Service, ...model } = await parts()
    const { state, node } = hosts(model)
    const yes = join(temporary, 'yes')
    writeFileSync(yes, '#!/bin/sh\n')
    chmodSync(yes, 0o755)
    /** A service with a directory of its own, where all files are new. */
    const serviceOf = own => {
      mkdirSync(own)
      const command = [yes]
      const paths = { config: join(own, 'main.conf'), directory: join(own, 'files'), controlSocket: '' }
      return new Service({
        service: name,
        settings: {
          ...backendOf(name, server).defaults,
          ...paths,
          ...{ server, check: command, reload: command, control: command, service: 'x', gather: 0 }
        },
        templates: join(checkout, 'templates'),
        state: own,
        data: () => {
          const captured = capture(state, cluster)
          return name === 'dhcp' ? dhcpData(captured, options) : dnsData(captured)
        },
        log: quiet,
        now: Date.now,
        settle: 0
      })
    }
    let service
    const settled = work =>
      measured(async () => {
        work()
        await service.settled()
        if (!service.condition.ok) throw new Error(service.condition.reason)
      })
    const [all, one] = await inTurn(rounds, [
      async round => {
        await service?.close()
        service = serviceOf(join(temporary, `round-${round}`))
        return settled(() => service.start())
      },
      round => {
        node(7, { netboot: round % 2 === 0, domain: `${round}.example` })
        return settled(() => service.changed())
      }
    ])
    await service.close()
    const rows = [
      ['all new', all],
      ['one changed', one]
    ].map(([what, found]) => [
      figure(
        what,
        'ms',
        found.map(({ ms }) => ms),
        { less: true }
      ),
      figure(
        `${what}: longest stall`,
        'ms',
        found.map(({ stall }) => stall),
        { less: true, target: { atMost: 50, always: true } }
      )
    ])
    return rows.flat()
  }
})

const servers = [
  ['dhcp', 'isc'],
  ['dhcp', 'kea'],
  ['dhcp', 'dnsmasq'],
  ['dns', 'bind'],
  ['dns', 'dnsmasq']
]
export default servers.map(pair => files(...pair))
