import { execFileSync, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { runCommand } from '../../lib/helper/local.js'
import { requireNode, startNode } from '../image/node.js'
import { beginning } from '../image/taking.js'
import { checkout, locate, output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

requireNode()
requirePrograms('systemd-sysusers', 'systemd-tmpfiles')

const nobody = 65534
/** Who ssh runs as here, in the place of svcd-ssh: a user that each Debian has. */
const sshUser = 'games'
const work = '.svcd-0123456789abcdef'
const grab = { node: 'node001', address: '127.0.0.1', filesystems: [], exclude: [], own: [], dryrun: false }

/** A node that runs, and the places of a helper that works for user nobody. */
async function forNobody(t: Test) {
  const { remote, root, path } = await beginning(t)
  for (const name of ['images', 'files', 'run']) mkdirSync(path(name))
  await output('chown', ['-R', `${nobody}:${nobody}`, path('my state'), path('files')])
  const places = {
    ...{ images: path('images'), files: path('files'), state: path('my state'), sshKey: '', sshUser },
    ...{ sshPort: remote.port, byRoot: false, units: [] }
  }
  t.intercept(process, 'env', { value: { ...process.env, RUNTIME_DIRECTORY: path('run') } })
  const take = (more: object = {}) =>
    runCommand({ ...places, ...more }, 'grab', { ...grab, parent: '', work }, { timeLimitMs: 60_000 })
  return { path, root, remote, places, take }
}

/** Waits until the attacker has tried the process, five seconds at most. */
const instead = (attacks: string) => `#!/bin/sh
echo "$$ $(id -u)" >>${attacks}/started
i=0
while ! [ -e ${attacks}/tried.$$ ] && [ $i -lt 100 ]; do sleep 0.05; i=$((i + 1)); done
exec ${locate('ssh')} "$@"
`

const attacker = `cd "$1" || exit
while :; do
  while read -r pid user; do
    [ -e tried.$pid ] && continue
    kill -CONT $pid 2>/dev/null && echo "signalled $user" >>reached
    { head -c 1 /proc/$pid/mem; true </proc/$pid/environ; } 2>&1 | grep -q -v -i denied && echo "looked into $user" >>reached
    cat ../run/*/id_ed25519 2>/dev/null | grep -q . && echo key >>reached
    : >tried.$pid
  done <started
  sleep 0.05
done
`

// rules 9.14
t.test('who has svcd’s user reaches no process of a grab, whoever owns the files directory', async t => {
  const { path, root, remote, take, places } = await forNobody(t)
  await startNode(t, root, [], remote.port)
  const attacks = path('attacks')
  mkdirSync(attacks)
  chmodSync(attacks, 0o777)
  writeFileSync(join(attacks, 'started'), '')
  chmodSync(join(attacks, 'started'), 0o666)
  mkdirSync(path('bin'))
  writeFileSync(path('bin/ssh'), instead(attacks), { mode: 0o755 })
  t.intercept(process, 'env', {
    value: { ...process.env, PATH: `${path('bin')}:${process.env.PATH}`, RUNTIME_DIRECTORY: path('run') }
  })
  // With no capability, as svcd.service.
  const ids = [
    `--reuid=${nobody}`,
    `--regid=${nobody}`,
    '--clear-groups',
    '--bounding-set=-all',
    '--inh-caps=-all'
  ]
  const svcd = spawn('setpriv', [...ids, 'sh', '-c', attacker, 'attacker', attacks], { stdio: 'ignore' })
  t.teardown(() => svcd.kill('SIGKILL'))
  const reached = () => (existsSync(join(attacks, 'reached')) ? lines('reached') : [])
  const lines = (name: string) => readFileSync(join(attacks, name), 'utf8').trimEnd().split('\n')
  await take()
  const users = () => lines('started').map(line => Number(line.split(' ')[1]))
  const games = Number(execFileSync('id', ['-u', sshUser], { encoding: 'utf8' }))
  t.strictSame(users(), [games, games], 'the mount points, and the files')
  t.equal(readdirSync(attacks).filter(name => name.startsWith('tried.')).length, 2, 'both were tried')
  t.strictSame(reached(), [], 'and none was reached')
  t.equal(readFileSync(join(places.images, work, 'etc/motd'), 'utf8'), 'first\n')
  t.equal(statSync(path('my state/ssh/known_hosts/node001')).uid, nobody, 'the host key is kept for svcd')
  t.strictSame(readdirSync(path('run')), [], 'the copy of the key is gone')

  // In a directory of svcd's, it can put one of somebody else there.
  renameSync(path('files'), path('files-before'))
  mkdirSync(path('files'))
  chownSync(path('files'), 1, 1)
  await output('chown', ['-R', '1:1', path('my state/ssh')])
  await output('rm', ['-rf', join(places.images, work)])
  await take()
  t.notOk(users().includes(1), 'ssh does not run as its owner')
  t.strictSame(reached(), [])
})

// rules 9.14
t.test('what ssh is handed is a file of svcd’s own, and no link is followed', async t => {
  const { path, take } = await forNobody(t)
  await t.rejects(take({ sshUser: 'no-such-user' }), {
    message: 'there is no user no-such-user, as whom ssh runs; type: systemd-sysusers'
  })
  await t.rejects(take({ sshUser: 'root' }), { message: /ssh must not run as user root, who is root: give/ })
  await t.rejects(take({ sshUser: 'nobody' }), { message: /nobody, who is the owner of \[paths\] files/ })
  const key = path('my state/ssh/id_ed25519')
  const of = (file: string, uid: number) => {
    copyFileSync(key, path(file))
    chmodSync(path(file), 0o600)
    chownSync(path(file), uid, uid)
    return path(file)
  }
  await t.rejects(take({ sshKey: of('of-root', 0) }), {
    message:
      /^\[ssh\] key \S+ ?\S*of-root must be a regular file of 64 KiB at most that belongs to user 65534/
  })
  symlinkSync(path('of-root'), path('my state/led'))
  await t.rejects(take({ sshKey: path('my state/led') }), { message: /led must be a regular file/ })
  await t.rejects(take({ sshKey: path('none') }), {
    message: `the ssh key ${path('none')} cannot be read: ENOENT`
  })
  const known = path('my state/ssh/known_hosts')
  writeFileSync(join(known, 'node001'), '')
  chownSync(join(known, 'node001'), nobody, nobody)
  truncateSync(join(known, 'node001'), 1e12)
  await t.rejects(take(), { message: /known_hosts\/node001 must be a regular file/ })
  rmSync(join(known, 'node001'))
  symlinkSync(path('of-root'), join(known, 'node001'))
  await t.rejects(take(), { code: 'ELOOP' })
  rmSync(join(known, 'node001'))
  renameSync(path('my state/ssh'), path('elsewhere'))
  symlinkSync(path('elsewhere'), path('my state/ssh'))
  await t.rejects(take(), { message: `the ssh key ${key} cannot be read: ENOTDIR` })
  t.strictSame(readdirSync(path('run')), [])
})

// rules 11.10
t.test(
  'a device and a setuid program of an image are out of svcd’s reach, and its service looks into images',
  async t => {
    const top = scratch(t)
    for (const [from, to] of [
      ['svcd.sysusers', 'usr/lib/sysusers.d/svcd.conf'],
      ['svcd.tmpfiles', 'usr/lib/tmpfiles.d/svcd.conf']
    ] as const) {
      mkdirSync(join(top, to, '..'), { recursive: true })
      copyFileSync(join(checkout, 'systemd', from), join(top, to))
    }
    mkdirSync(join(top, 'etc'))
    const make = (program: string, ...words: string[]) =>
      output(program, [...words, `--root=${top}`, 'svcd.conf'])
    await make('systemd-sysusers')
    const line = (file: string, name: string) =>
      new RegExp(`^${name}:[^:]*:(\\d+):(\\d*)`, 'm').exec(readFileSync(join(top, 'etc', file), 'utf8')) ?? []
    const [, uid, gid] = line('passwd', 'svcd')
    // As version 1.0 left it.
    const images = join(top, 'var/lib/svcd/images')
    mkdirSync(images, { recursive: true })
    for (const path of ['usr', 'usr/lib', 'var', 'var/lib']) chmodSync(join(top, path), 0o755)
    chownSync(images, 0, Number(gid))
    chmodSync(images, 0o710)
    await output('systemd-tmpfiles', ['--create', `--root=${top}`, 'svcd.conf']).catch(() => {})
    const tree = join(images, 'grabbed')
    mkdirSync(tree)
    execFileSync('mknod', ['-m', '666', join(tree, 'null'), 'c', '1', '3'])
    copyFileSync(locate('id') ?? '', join(tree, 'id'))
    chmodSync(join(tree, 'id'), 0o4755)
    // A mount that hides setuid bits would pass for what is tested here.
    const as = (groups: string, script: string) =>
      spawnSync(
        'setpriv',
        [`--reuid=${uid}`, `--regid=${gid}`, groups, '--bounding-set=-all', 'sh', '-c', script],
        { cwd: top, encoding: 'utf8' }
      )
    for (const script of [': <var/lib/svcd/images/grabbed/null', 'var/lib/svcd/images/grabbed/id']) {
      t.match(as('--clear-groups', script).stderr, /Permission denied/, script)
      t.equal(as('--clear-groups', script).stdout, '', script)
    }
    const [, images1] = line('group', 'svcd-images')
    t.match(as(`--groups=${images1}`, 'ls var/lib/svcd/images/grabbed').stdout, /^id\nnull\n$/)
    t.notMatch(
      readFileSync(join(top, 'etc/group'), 'utf8'),
      /^svcd-images:.*[a-z]$/m,
      'nobody is in the group'
    )
    const unit = readFileSync(join(checkout, 'systemd/svcd.service'), 'utf8')
    for (const set of ['SupplementaryGroups=svcd-images', 'PrivateDevices=yes', 'NoNewPrivileges=yes'])
      t.match(unit, new RegExp(`^${set}$`, 'm'))
  }
)
