// A state directory with a network, an image, a group and its nodes, as the daemon writes them.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Address of node `i` (from 0): loopback, so that a client here can be that node. */
export const addressOf = i => `127.${1 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}`
export const macOf = i =>
  `52:54:00:${[16, 8, 0].map(bits => ((i >> bits) & 255).toString(16).padStart(2, '0')).join(':')}`
export const nameOf = i => `node${String(i + 1).padStart(5, '0')}`

/** Writes state and files of `count` nodes below `directory`. */
export function writeCluster(directory, count) {
  const put = (type, doc) => {
    const folder = join(directory, 'state', type)
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    writeFileSync(join(folder, `${doc.name}.json`), `${JSON.stringify(doc, null, 2)}\n`, { mode: 0o600 })
  }
  put('network', { name: 'cluster', network: '127.0.0.0/8' })
  const files = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'compute.tar.gz' }
  mkdirSync(join(directory, 'files'))
  for (const name of Object.values(files)) writeFileSync(join(directory, 'files', name), name)
  put('osimage', { name: 'compute', ...files, kerneloptions: 'console=ttyS0,115200n8 quiet' })
  const nic = { interface: 'BOOTIF', network: 'cluster' }
  put('group', { name: 'compute', domain: 'cluster.local', osimage: 'compute', interfaces: [nic] })
  for (let i = 0; i < count; i++)
    put('node', {
      name: nameOf(i),
      group: 'compute',
      interfaces: [{ ...nic, ipaddress: addressOf(i), macaddress: macOf(i) }]
    })
}
