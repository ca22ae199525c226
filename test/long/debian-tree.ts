import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { checkout, output, requirePrograms, requireRoot } from '../support/programs.js'

/** A release that debootstrap knows. */
export interface Release {
  readonly suite: string
  /** Default: debootstrap's own, Debian's. */
  readonly mirror?: string
  /** Default: main. */
  readonly components?: string
  /** The script of debootstrap for a suite that it does not know yet, which needs `mirror`. */
  readonly script?: string
}

export const bookworm: Release = { suite: 'bookworm' }
/** Ubuntu 24.04. */
export const noble: Release = {
  suite: 'noble',
  mirror: 'http://archive.ubuntu.com/ubuntu',
  components: 'main,universe',
  script: 'gutsy'
}
const cache = join(checkout, '.cache/debian')
const timeLimitMs = 30 * 60_000

// Mounts made in here are seen by nobody else and end with the last process; that ends with this one, kill -9
// included.
const apart = ['setpriv', '--pdeathsig', 'KILL'].concat([
  ...['unshare', '--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', '--mount-proc']
])

const isThere = (path: string) =>
  stat(path).then(
    () => true,
    () => false
  )

const isAlive = (pid: number) => isThere(`/proc/${pid}`)

async function inPrivate(...command: string[]): Promise<void> {
  const [program = '', ...args] = [...apart, ...command]
  await output(program, args, { timeout: timeLimitMs })
}

/** Removes what runs that were killed have left. */
async function sweep(): Promise<void> {
  for (const name of await readdir(cache)) {
    const owner = Number(name.match(/^\.partial-(\d+)-/)?.[1])
    if (owner && !(await isAlive(owner)))
      await output('rm', ['-rf', '--one-file-system', join(cache, name)], { timeout: timeLimitMs })
  }
}

/** A directory of the cache, made by `make` in one beside it that is renamed when it is whole. */
async function cached(name: string, make: (directory: string) => Promise<void>): Promise<string> {
  const finished = join(cache, name)
  if (await isThere(finished)) return finished
  const work = await mkdtemp(join(cache, `.partial-${process.pid}-`))
  try {
    await make(join(work, 'tree'))
    await rename(join(work, 'tree'), finished).catch(error => {
      // Another run was first: its tree is as good.
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await output('rm', ['-rf', '--one-file-system', work], { timeout: timeLimitMs })
  }
  return finished
}

const base = ({ suite, mirror, components = 'main', script }: Release) =>
  cached(`base-${suite}`, async tree => {
    const from = [mirror ?? [], script ?? []].flat()
    await inPrivate('debootstrap', '--variant=minbase', `--components=${components}`, suite, tree, ...from)
    await rm(join(tree, 'var/log/bootstrap.log'), { force: true })
    // No package starts a service in here.
    await writeFile(join(tree, 'usr/sbin/policy-rc.d'), '#!/bin/sh\nexit 101\n', { mode: 0o755 })
  })

const install = `
set -e
tree=$1
shift
mount -t proc proc "$tree/proc"
mount -t sysfs sysfs "$tree/sys"
mount -t tmpfs tmpfs "$tree/run"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
cp /etc/resolv.conf "$tree/etc/resolv.conf"
# The lists of sid end after a week, and a mirror may be late.
chroot "$tree" apt-get -q -o Acquire::Check-Valid-Until=false update
packages=''
for word; do
  if [ "$word" = then ]; then
    chroot "$tree" apt-get -q install -y --no-install-recommends $packages
    packages=''
  else
    packages="$packages $word"
  fi
done
chroot "$tree" apt-get -q install -y --no-install-recommends $packages
chroot "$tree" apt-get clean
: >"$tree/etc/resolv.conf"
find "$tree/var/lib/apt/lists" -type f -delete
`

/**
 * A Debian tree ("minbase", some 200 MB; bookworm if no release is given) with further packages, made by
 * debootstrap and apt once and then kept below .cache/debian. Any number of runs may ask at once; one that is
 * killed leaves nothing mounted. Nobody may change the tree: copy it (`cp -a -x`) to change it. `afterwards`
 * are packages that are installed when the others are there.
 * @throws Error when the process is not root, a program is missing, or a package cannot be fetched.
 */
export async function debianTree(options: {
  readonly packages: readonly string[]
  readonly afterwards?: readonly string[]
  readonly release?: Release
}): Promise<string> {
  const { release = bookworm } = options
  requireRoot()
  requirePrograms('debootstrap', 'setpriv', 'unshare', 'chroot')
  await mkdir(cache, { recursive: true })
  await sweep()
  const packages = [...new Set(options.packages)].sort()
  if (options.afterwards) packages.push('then', ...options.afterwards)
  const root = await base(release)
  if (packages.length === 0) return root
  const key = createHash('sha256')
    .update([release.suite, ...packages].join('\n'))
    .digest('hex')
    .slice(0, 12)
  return cached(key, async tree => {
    await output('cp', ['-a', '-x', root, tree], { timeout: timeLimitMs })
    await inPrivate('sh', '-c', install, 'install', tree, ...packages)
  })
}
