// node build/package/sbom.mjs ARCH FILE: writes the software bill of materials of a package, in CycloneDX as
// JSON: the production packages of package-lock.json, and the Node runtime. The same lock gives the same bytes.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const [arch = '', file = ''] = process.argv.slice(2)
const root = fileURLToPath(new URL('../..', import.meta.url))
const program = join(root, 'node_modules/.bin/cyclonedx-npm')
const words = [
  '--omit',
  'dev',
  '--package-lock-only',
  '--flatten-components',
  '--output-reproducible',
  '--validate',
  '-o',
  '-'
]
const bom = JSON.parse(
  execFileSync(program, [...words, join(root, 'package.json')], { cwd: root, encoding: 'utf8' })
)
// The npm of this machine makes no difference to the package.
bom.metadata.tools.components = bom.metadata.tools.components.filter(({ name }) => name !== 'npm')
const { version, [arch]: runtime } = JSON.parse(
  readFileSync(new URL('runtime.json', import.meta.url), 'utf8')
)
if (!runtime) throw new Error(`there is no runtime for ${arch}`)
/** Where the registry has a package, with its checksum. */
const distribution = (name, number, integrity) => {
  const content = Buffer.from(integrity.replace(/^sha512-/, ''), 'base64').toString('hex')
  const url = `https://registry.npmjs.org/${name}/-/${name.replace(/.*\//, '')}-${number}.tgz`
  return [{ type: 'distribution', url, hashes: [{ alg: 'SHA-512', content }] }]
}
// The lock names checksums without addresses, and the program leaves them out then.
const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages
for (const component of bom.components) {
  const { value } = component.properties.find(({ name }) => name === 'cdx:npm:package:path')
  const name = value.replace(/.*node_modules\//, '')
  component.externalReferences = distribution(name, component.version, lock[value].integrity)
}
const purl = `pkg:npm/${runtime.name}@${version}`
const node = {
  ...{ type: 'platform', name: runtime.name, version, 'bom-ref': purl },
  licenses: [{ license: { id: 'MIT' } }],
  ...{ purl, externalReferences: distribution(runtime.name, version, runtime.integrity) }
}
bom.components.push(node)
bom.dependencies.push({ ref: purl })
bom.dependencies.find(({ ref }) => ref === bom.metadata.component['bom-ref']).dependsOn.push(purl)
writeFileSync(file, `${JSON.stringify(bom, null, 2)}\n`)
