// A cluster of any size: a network, an image, a group and its nodes, as state of a daemon or as a document to
// import.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Address of node `i` (from 0), so that a client here can be that node: of loopback, or, in a network
 * namespace of its own (own-network.mjs), of a network of nodes. Whoever asks from loopback is the controller
 * itself, which is never told to come back.
 */
const [first, second, network] = process.env.BENCH_OWN_NETWORK
  ? [100, 65, '100.64.0.0/10']
  : [127, 1, '127.0.0.0/8']
export const addressOf = i => `${first}.${second + (i >> 16)}.${(i >> 8) & 255}.${i & 255}`
export const macOf = i =>
  `52:54:00:${[16, 8, 0].map(bits => ((i >> bits) & 255).toString(16).padStart(2, '0')).join(':')}`
export const nameOf = i => `node${String(i + 1).padStart(6, '0')}`

const nic = { interface: 'BOOTIF', network: 'cluster' }
const files = { kernelfile: 'vmlinuz', initrdfile: 'initrd.img', imagefile: 'compute.tar.gz' }
const common = {
  // 10.0.0.0/8 is for more interfaces.
  network: [
    { name: 'cluster', network },
    { name: 'fabric', network: '10.0.0.0/8' }
  ],
  osimage: [{ name: 'compute', ...files, kerneloptions: 'console=ttyS0,115200n8 quiet' }],
  group: [{ name: 'compute', domain: 'cluster.local', osimage: 'compute', interfaces: [nic] }]
}

export const nodeOf = i => ({
  name: nameOf(i),
  group: 'compute',
  interfaces: [{ ...nic, ipaddress: addressOf(i), macaddress: macOf(i) }]
})

/** The files that an image names, in <directory>/files; `bytes`: of each, or by name (16 KiB where none is given). */
export function writeFiles(directory, bytes = 16_384) {
  mkdirSync(join(directory, 'files'), { recursive: true })
  for (const name of Object.values(files))
    writeFileSync(
      join(directory, 'files', name),
      Buffer.alloc(bytes[name] ?? (Number(bytes) || 16_384), name)
    )
}

/** Writes state and files of `count` nodes below `directory`, as the daemon does. */
export function writeCluster(directory, count, bytes) {
  const put = (folder, doc) =>
    writeFileSync(join(folder, `${doc.name}.json`), `${JSON.stringify(doc, null, 2)}\n`, { mode: 0o600 })
  const folderOf = type => {
    const folder = join(directory, 'state', type)
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    return folder
  }
  writeFiles(directory, bytes)
  for (const [type, docs] of Object.entries(common)) for (const doc of docs) put(folderOf(type), doc)
  const nodes = folderOf('node')
  for (let i = 0; i < count; i++) put(nodes, nodeOf(i))
}

/** The same as a document to import. */
export function clusterDocument(count) {
  const byName = docs => Object.fromEntries(docs.map(doc => [doc.name, doc]))
  const nodes = Array.from({ length: count }, (_, i) => nodeOf(i))
  const config = Object.fromEntries(Object.entries(common).map(([type, docs]) => [type, byName(docs)]))
  return JSON.stringify({ config: { ...config, node: byName(nodes) } })
}
