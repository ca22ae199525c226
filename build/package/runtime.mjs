// node build/package/runtime.mjs ARCH DIRECTORY: fetches the Node runtime in runtime.json from the npm
// registry, and puts it into DIRECTORY as `node` and `LICENSE`. Refuses a file with another checksum.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const [arch = '', directory = ''] = process.argv.slice(2)
const root = fileURLToPath(new URL('../..', import.meta.url))
const { version, ...architectures } = JSON.parse(
  readFileSync(new URL('runtime.json', import.meta.url), 'utf8')
)
const wanted = architectures[arch]
if (!wanted)
  throw new Error(`there is no runtime for ${arch}, only for ${Object.keys(architectures).join(', ')}`)

const cache = join(root, '.cache', 'runtime')
const kept = join(cache, `${wanted.name}-${version}.tgz`)
const integrityOf = file => `sha512-${createHash('sha512').update(readFileSync(file)).digest('base64')}`

if (!existsSync(kept) || integrityOf(kept) !== wanted.integrity) {
  const fetched = join(cache, `${process.pid}`)
  mkdirSync(fetched, { recursive: true })
  try {
    const specifier = `${wanted.name}@${version}`
    execFileSync('npm', ['pack', '--silent', '--pack-destination', fetched, specifier], {
      stdio: ['ignore', 'ignore', 'inherit']
    })
    const file = join(fetched, `${wanted.name}-${version}.tgz`)
    const integrity = integrityOf(file)
    if (integrity !== wanted.integrity)
      throw new Error(
        `${specifier} is ${integrity}, and build/package/runtime.json names ${wanted.integrity}`
      )
    renameSync(file, kept)
  } finally {
    rmSync(fetched, { recursive: true })
  }
}

const members = ['package/bin/node', 'package/LICENSE']
const words = ['--no-same-owner', '--transform=s,.*/,,', '-C', directory, '-xzf', kept]
mkdirSync(directory, { recursive: true })
execFileSync('tar', [...words, ...members], { stdio: 'inherit' })
