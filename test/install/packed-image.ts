import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

const options: Record<string, string> = {
  tar: '',
  'tar.gz': '--gzip',
  tgz: '--gzip',
  'tar.bz2': '--bzip2',
  'tar.xz': '--xz',
  'tar.zst': '--zstd'
}

const usual: Record<string, string> = {
  'etc/hosts': '127.0.0.1 localhost\n10.9.9.9 license\n',
  'etc/os-release': 'ID=test\n'
}

const packed = new Map<string, Buffer>()

/**
 * A packed image, owned by `owner` (the group is the next number, but for root): the usual files and the
 * given ones. A content that begins with `-> ` is a symbolic link; a path that ends in / is a directory, its content
 * the mode.
 */
export function packImage(files: Record<string, string> = {}, suffix = 'tar.gz', owner = 1234): Buffer {
  const key = JSON.stringify([files, suffix, owner])
  const image = packed.get(key) ?? pack(files, suffix, owner)
  packed.set(key, image)
  return image
}

function pack(files: Record<string, string>, suffix: string, owner: number): Buffer {
  const directory = mkdtempSync(join(tmpdir(), 'svc-image-'))
  try {
    for (const [path, content] of Object.entries({ ...usual, ...files })) {
      const file = join(directory, 'root', path)
      mkdirSync(path.endsWith('/') ? file : dirname(file), { recursive: true })
      if (path.endsWith('/')) chmodSync(file, Number.parseInt(content, 8))
      else if (content.startsWith('-> ')) execFileSync('ln', ['-s', content.slice(3), file])
      else writeFileSync(file, content)
      if (content.startsWith('#!')) chmodSync(file, 0o755)
    }
    const archive = join(directory, 'archive')
    const compress = options[suffix] ?? ''
    const extra = compress ? [compress] : []
    execFileSync('tar', [
      '-C',
      join(directory, 'root'),
      '-cf',
      archive,
      ...extra,
      `--owner=:${owner}`,
      `--group=:${owner === 0 ? 0 : owner + 1}`,
      '.'
    ])
    return readFileSync(archive)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

export function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}
