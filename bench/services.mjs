// How long 10,000 hosts take from the objects to the files, and how long the event loop stands still meanwhile.
// Type: make build && node bench/services.mjs [hosts]
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { createIndex, kinds } from '../dist/model/types.js'
import { backendOf } from '../dist/services/backends.js'
import { capture } from '../dist/services/capture.js'
import { dhcpData } from '../dist/services/dhcp/data.js'
import { dnsData } from '../dist/services/dns/data.js'
import { Service } from '../dist/services/service.js'
import { inSlices } from '../dist/services/slices.js'
import { State } from '../dist/store/state.js'

const hosts = Number(process.argv[2] ?? 10_000)
const controller = { name: 'controller', address: '10.255.255.254' }
const cluster = { provision_method: 'http', provision_fallback: 'http', ntp_server: '', controller }
const octets = n => [n >> 16, n >> 8, n].map(part => part & 255)

const state = new State(Object.keys(kinds), createIndex())
const put = (type, name, doc) => state.set(type, name, kinds[type].decode(name, { name, ...doc }))
put('network', 'cluster', {
  network: '10.0.0.0/8',
  dhcp: true,
  dhcp_range_begin: '10.200.0.1',
  dhcp_range_end: '10.200.9.255'
})
put('group', 'compute', { interfaces: [{ interface: 'BOOTIF', network: 'cluster' }] })
const node = (n, more = {}) => {
  const macaddress = `52:54:00:${octets(n)
    .map(part => part.toString(16).padStart(2, '0'))
    .join(':')}`
  const ipaddress = `10.${octets(n).join('.')}`
  put('node', `node${n}`, {
    group: 'compute',
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress, macaddress }],
    ...more
  })
}
for (let n = 1; n <= hosts; n++) node(n)

const directory = mkdtempSync(join(tmpdir(), 'svcd-bench-'))
const yes = join(directory, 'yes')
writeFileSync(yes, '#!/bin/sh\n')
chmodSync(yes, 0o755)
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
/** Runs work and measures, in milliseconds, how long it takes and how long the event loop stands still at most. */
async function measured(work) {
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const since = performance.now()
  await work()
  const ms = performance.now() - since
  delay.disable()
  return `${ms.toFixed(0).padStart(6)} ms, longest stall ${(delay.max / 1e6).toFixed(0).padStart(3)} ms`
}
const idle = ms => measured(() => new Promise(resolve => setTimeout(resolve, ms)))

const quiet = { level: 'info', error: console.error, warn() {}, info() {}, debug() {} }

console.log(`node ${process.version}, ${cpus().length} CPUs (${cpus()[0]?.model}); ${hosts} hosts\n`)
console.log(`nothing to do                 ${await idle(1000)}`)
for (const [name, server] of [
  ['dhcp', 'isc'],
  ['dhcp', 'kea'],
  ['dhcp', 'dnsmasq'],
  ['dns', 'bind'],
  ['dns', 'dnsmasq']
]) {
  const own = join(directory, `${name}-${server}`)
  mkdirSync(own)
  const service = new Service({
    service: name,
    settings: {
      ...backendOf(name, server).defaults,
      server,
      config: join(own, 'main.conf'),
      directory: join(own, 'files'),
      check: [yes],
      reload: [yes],
      control: [yes],
      service: 'x',
      gather: 0,
      controlSocket: ''
    },
    templates: fileURLToPath(new URL('../templates', import.meta.url)),
    state: own,
    data: () => {
      const captured = capture(state, cluster)
      return name === 'dhcp' ? dhcpData(captured, options) : dnsData(captured)
    },
    log: quiet,
    now: Date.now,
    settle: 0
  })
  const timed = async (what, work) => {
    const figures = await measured(async () => {
      work()
      await service.settled()
    })
    const { ok, reason } = service.condition
    console.log(`${`${name} ${server}`.padEnd(12)}  ${what.padEnd(16)}${figures}${ok ? '' : ` ${reason}`}`)
  }
  await timed('all new', () => service.start())
  node(7, { netboot: name !== 'dhcp', domain: `${server}.example` })
  await timed('one changed', () => service.changed())
  await timed('nothing changed', () => service.changed())
  node(7)
  await service.close()
}

// Every subnet has to do with all others: which of them overlap, and their domains. No thread: what stalls is here.
console.log('\n1,000 networks, gathered from the objects')
for (let n = 0; n < 1000; n++)
  put('network', `rack${n}`, { network: `172.${16 + (n >> 8)}.${n & 255}.0/24`, dhcp: n % 2 === 0 })
for (const [name, data] of [
  ['dhcp', captured => dhcpData(captured, options)],
  ['dns', captured => dnsData(captured)]
])
  console.log(
    `${name.padEnd(14)}                ${await measured(() => inSlices(data(capture(state, cluster))))}`
  )
rmSync(directory, { recursive: true })
