import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import t from 'tap'
import { checkout, requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

requirePrograms('shellcheck', 'setfacl')
const directory = join(checkout, 'build/package')
const read = (name: string) => readFileSync(join(directory, name), 'utf8')

t.test('the scripts of the package are sound', async t => {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter(entry =>
    entry.isFile()
  )
  const scripts = files
    .map(({ parentPath, name }) => relative(directory, join(parentPath, name)))
    .filter(name => read(name).startsWith('#!/bin/sh'))
  t.ok(['debian/postinst', 'debian/postrm', 'debian/prerm'].every(name => scripts.includes(name)))
  t.equal(execFileSync('shellcheck', scripts, { cwd: directory, encoding: 'utf8' }), '')
  for (const name of scripts) t.match(read(name), /^set -eu?$/m, name)
})

t.test(
  'a purge takes the right to write to /var/lib/bind back, and goes on where something is mounted',
  async t => {
    requireRoot()
    const top = scratch(t)
    // The script itself, in directories of its own, with nobody for user svcd.
    const script = read('debian/postrm')
      .replace(/(?<=[\s"])\/(?=(etc|usr|var|run)\/)/g, `${top}/`)
      .replaceAll(/(-user |-group |u:)svcd/g, '$1nobody')
    for (const name of ['var/lib/bind', 'var/lib/svcd/images', 'var/lib/svcd/state', 'etc/svcd', 'bin'])
      mkdirSync(join(top, name), { recursive: true })
    for (const program of ['userdel', 'groupdel', 'getent'])
      writeFileSync(join(top, 'bin', program), `#!/bin/sh\necho ${program} "$@" >> ${top}/calls\n`, {
        mode: 0o755
      })
    writeFileSync(join(top, 'postrm'), script)
    const bind = join(top, 'var/lib/bind')
    execFileSync('setfacl', ['-m', 'u:nobody:rwx', bind])
    const inNamespace = `mount -t tmpfs none ${top}/var/lib/svcd/images && PATH=${top}/bin:$PATH sh ${top}/postrm purge`
    const { status, stderr } = spawnSync('unshare', ['--mount', 'sh', '-c', inNamespace], {
      encoding: 'utf8'
    })
    t.equal(status, 0, stderr)
    t.match(stderr, `kept, for something is mounted in it, or it cannot be removed: ${top}/var/lib/svcd`)
    t.notMatch(execFileSync('getfacl', ['-p', bind], { encoding: 'utf8' }), /nobody/)
    t.match(readFileSync(join(top, 'calls'), 'utf8'), /^userdel svcd$/m)
    t.notOk(existsSync(join(top, 'etc/svcd')) || existsSync(join(top, 'var/lib/svcd/state')))
  }
)

t.test('the runtime is one version for all machines, with a checksum', async t => {
  const { version, ...architectures } = JSON.parse(read('runtime.json'))
  t.match(version, /^24\.\d+\.\d+$/)
  t.strictSame(Object.keys(architectures), ['amd64', 'arm64'])
  for (const { name, integrity } of Object.values<{ name: string; integrity: string }>(architectures)) {
    t.match(name, /^node-linux-(x64|arm64)$/)
    t.match(integrity, /^sha512-[A-Za-z0-9+/]{86}==$/)
  }
})

t.test('the package depends on no Node and on what the documents name', async t => {
  const [, depends = ''] = /^Depends: (.*)$/m.exec(read('debian/control')) ?? []
  const names = depends.split(', ').map(word => word.split(' ')[0])
  t.strictSame(names, ['dbus', 'libc6', 'libgcc-s1', 'libstdc++6', 'mount', 'systemd', 'util-linux-extra'])
  const documents = readFileSync(join(checkout, 'docs/packages.md'), 'utf8').replace(/\s+/g, ' ')
  for (const name of names) t.match(documents, name)
})

t.test('what is in package.json and in the commit decides about the package', async t => {
  const tree = scratch(t)
  cpSync(join(directory, 'version.sh'), join(tree, 'build/package/version.sh'))
  const manifest = (change: object) => {
    const { version, author, homepage, type } = JSON.parse(
      readFileSync(join(checkout, 'package.json'), 'utf8')
    )
    const fields = { version, author, homepage, ...change, type }
    writeFileSync(join(tree, 'package.json'), `${JSON.stringify(fields, null, 2)}\n`)
  }
  const sh = (text: string, env: Record<string, string> = {}) =>
    spawnSync('sh', ['-euc', `cd ${tree}; ${text}`], {
      encoding: 'utf8',
      env: { PATH: process.env.PATH ?? '', HOME: tree, ...env }
    })
  const names = ['version', 'maintainer', 'homepage', 'SOURCE_DATE_EPOCH', 'TZ', 'LC_ALL'] as const
  const taken = (env: Record<string, string> = {}) => {
    const print = `. build/package/version.sh; printf '%s\\n' ${names.map(name => `"$${name}"`).join(' ')}; umask`
    const { status, stdout, stderr } = sh(print, env)
    return { status, stderr, lines: stdout.trim().split('\n') }
  }
  const git =
    'git -c user.name=a -c user.email=a@b.invalid -c init.defaultBranch=main -c commit.gpgsign=false -c tag.gpgsign=false'
  const at = (seconds: number) => ({
    GIT_AUTHOR_DATE: `${seconds} +0000`,
    GIT_COMMITTER_DATE: `${seconds} +0000`
  })
  const rest = ['UTC', 'C.UTF-8', '0022']

  manifest({ version: '1.2.3', author: 'A <a@b.invalid>', homepage: 'https://b.invalid/c' })
  const given = ['A <a@b.invalid>', 'https://b.invalid/c']
  t.not(taken().status, 0, 'no git and no time')
  t.same(taken({ SOURCE_DATE_EPOCH: '77', TZ: 'Asia/Tokyo' }).lines, ['1.2.3', ...given, '77', ...rest])

  const commit = `${git} add -A && ${git} commit -qm x --allow-empty`
  t.equal(sh(`${git} init -q && ${commit} && ${git} tag v1.2.3`, at(1_700_000_000)).status, 0)
  t.same(taken({ SOURCE_DATE_EPOCH: '77' }).lines, ['1.2.3', ...given, '1700000000', ...rest])
  t.equal(sh(commit, at(1_700_000_060)).status, 0)
  const [later = ''] = taken().lines
  t.match(later, /^1\.2\.3\+git20231114221420\.[0-9a-f]{7}$/)
  t.equal(sh(`dpkg --compare-versions '${later}' gt 1.2.3`).status, 0, 'a later commit is an upgrade')
  writeFileSync(join(tree, 'changed'), '')
  t.match(taken().lines[0], /\.dirty$/)

  manifest({ author: undefined })
  const { status, stderr } = taken()
  t.not(status, 0)
  t.match(stderr, 'package.json names no author')
  for (const file of ['debian/control', 'rpm/svcd.spec'])
    t.notMatch(read(file), /invalid|:\/\//, `${file} takes it from there`)
})
