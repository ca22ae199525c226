// Writes the source commit to dist/commit, with `-dirty` if the tree differs; `unknown` outside git.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

function commit() {
  try {
    return execFileSync('git', ['describe', '--always', '--abbrev=40', '--dirty', '--exclude=*'], {
      cwd: root,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
      // A tarball unpacked inside another repository is not a commit of that repository.
      env: { ...process.env, GIT_CEILING_DIRECTORIES: dirname(root) }
    }).trim()
  } catch {
    return 'unknown'
  }
}

writeFileSync(join(root, 'dist', 'commit'), `${commit()}\n`)
