import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { delimiter, join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { runCommand } from '../../lib/helper/local.js'
import { kernel, Tree } from '../image/initramfs-tree.js'
import { requireNode, startNode } from '../image/node.js'
import { beginning } from '../image/taking.js'
import { builtTree } from '../support/built-tree.js'
import { start } from '../support/child.js'
import { locate, node, output, programEnv, requirePrograms } from '../support/programs.js'
import { proof } from '../support/proof.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

requireNode()
requirePrograms('busybox', 'systemd-socket-activate')

const nobody = 65534

/** A directory of this machine that no image and no order may reach. */
function outsideIn(directory: string): string {
  const outside = join(directory, 'outside')
  mkdirSync(join(outside, 'etc'), { recursive: true })
  for (const name of ['secret', 'etc/word']) writeFileSync(join(outside, name), 'a secret of this machine')
  return outside
}

const lookOf = (outside: string) =>
  ['', ...(readdirSync(outside, { recursive: true }) as string[])].sort().map(name => {
    const { uid, gid, mode, size, mtimeMs } = statSync(join(outside, name))
    return [name, uid, gid, mode, size, mtimeMs].join(' ')
  })

/**
 * What a program of an image does that finds what was the root: below the names that an attacker gives to
 * directories.
 */
const evil = (outside: string) => `#!/bin/sh
cat /proc/self/uid_map >/var/map
for top in / /*/ /*/host/ /*/*/host/ /srv/*/*/host/; do
  [ ! -e "$top${outside}/secret" ] || echo pwned >"$top${outside}/pwned"
done
`

/**
 * Lays an image of which the programs are an attacker's, and the directories that are to take the places of
 * others.
 */
function hostile(tree: Tree, outside: string): void {
  tree.program('dracut', `${evil(outside)}echo an initramfs >/tmp/svc/initrd\n`)
  mkdirSync(join(tree.path, 'spare'))
  chmodSync(join(tree.path, 'spare'), 0o1777)
  tree.write('spare/svc/libexec/build-initramfs.sh', evil(outside))
}

/** `run` becomes `gone`, with what is mounted there; `tmp` becomes `run/host`, and `spare` becomes `tmp`. */
const move = 'mv run gone && mkdir run && mv tmp run/host && mv spare tmp'

// rules 9.13, 9.14
t.test('directories of an image that change places while it is shut in', async t => {
  for (const program of ['unshare', 'perl', 'mount', 'cp', 'pivot_root', 'nsenter', 'umount']) {
    const directory = scratch(t)
    const outside = outsideIn(directory)
    const before = lookOf(outside)
    const tree = new Tree(t, 'dracut')
    hostile(tree, outside)
    // A program of this name on PATH has them change places, for all of this machine, before it does its
    // work.
    const bin = join(directory, 'bin')
    mkdirSync(bin)
    const ours = `${locate('nsenter')} --mount=/proc/${process.pid}/ns/mnt`
    writeFileSync(
      join(bin, program),
      `#!/bin/sh
${ours} ${locate('sh')} -c 'cd ${tree.path} && [ ! -e gone ] && ${move}' >&2
exec ${locate(program)} "$@"
`,
      { mode: 0o755 }
    )
    const path = process.env.PATH
    process.env.PATH = `${bin}${delimiter}${path}`
    const places = {
      ...{ images: join(tree.path, '..'), files: directory, state: directory, sshKey: '', sshPort: 22 },
      ...{ byRoot: true, units: [] }
    }
    const args = { tree: tree.path, kernelversion: kernel, dracutmodules: [], kernelmodules: [] }
    const built = await runCommand(places, 'initramfs', args, { timeLimitMs: 60_000 }).then(
      () => 'built',
      (error: Error) => error.message
    )
    process.env.PATH = path
    t.comment(`${program}: ${built}`)
    if (!['umount', 'pivot_root'].includes(program)) t.ok(existsSync(join(tree.path, 'gone')), program)
    t.strictSame(lookOf(outside), before, `${program}: nothing of this machine was reached`)
    const map = existsSync(join(tree.path, 'var/map')) ? tree.read('var/map').trim() : ''
    t.notMatch(map, /^\s*\d+\s+0\s/, `${program}: root of the image is not root of this machine`)
  }
})

/** Returns /proc/PID/status; '' for a program that has ended since it was listed. */
function statusOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8')
  } catch {
    return ''
  }
}

// rules 9.13
t.test('root of an image is nobody on this machine, and its files stay root’s', async t => {
  const directory = scratch(t)
  const tree = new Tree(t, 'dracut')
  tree.behave('hang')
  const places = {
    ...{ images: join(tree.path, '..'), files: directory, state: directory, sshKey: '', sshPort: 22 },
    ...{ byRoot: true, units: [] }
  }
  const args = { tree: tree.path, kernelversion: kernel, dracutmodules: [], kernelmodules: [] }
  const stop = new AbortController()
  const built = runCommand(places, 'initramfs', args, { timeLimitMs: 60_000, signal: stop.signal }).catch(
    () => {}
  )
  await Promise.race([tree.hanging(), built])
  let users: number[] = []
  const look = () => {
    users = tree.inside().flatMap(pid => {
      const [, uid] = /^Name:\s*sleep$[\s\S]*^Uid:\s*(\d+)/m.exec(statusOf(pid)) ?? []
      return uid === undefined ? [] : [Number(uid)]
    })
    return users.length > 0
  }
  // The shell says that it hangs before its sleep is there.
  await until(async () => look(), 'a program of the image')
  stop.abort()
  await built
  t.ok(users.length > 0)
  t.strictSame([...new Set(users)], [2 ** 31])
  const { uid, gid } = statSync(join(tree.path, 'var/hanging'))
  t.strictSame([uid, gid], [0, 0])
})

/**
 * Everything as the packages make it, and an attacker of user svcd with another image of which the programs
 * are his.
 */
async function attacked(t: Test, rounds: number) {
  const { directory, remote, root, path } = await beginning(t)
  await startNode(t, root, [], remote.port)
  const outside = outsideIn(directory)
  const before = lookOf(outside)
  const images = path('images')
  for (const name of ['p', 'q']) mkdirSync(join(images, name), { recursive: true })
  mkdirSync(path('files'))
  await output('chown', ['-R', `${nobody}:${nobody}`, path('my state'), path('files')])
  chmodSync(images, 0o711)
  mkdirSync(join(images, 'p/x/etc'), { recursive: true })
  mkdirSync(join(images, 'p/x/usr'))
  writeFileSync(join(images, 'p/x/etc/word'), 'image')
  symlinkSync(outside, join(images, 'q/x'))
  const [inner, outer] = [new Tree(t, 'dracut'), new Tree(t, 'dracut')]
  hostile(inner, outside)
  // Root of another image moves, replaces and links all the time.
  outer.program(
    'dracut',
    `${evil(outside)}cd /srv/inner
while [ ! -e /srv/stop ]; do
  [ -e gone ] || { ${move}; }
  sleep 0.0$(($(cut -d' ' -f1 /proc/uptime | tr -d .) % 10))
  [ ! -e gone ] || { mv tmp spare; mv run/host tmp; rmdir run; mv gone run; }
  mv usr usr2; ln -s ${outside} usr; rm usr; mv usr2 usr
  mv tmp tmp2; ln -s ${outside} tmp; rm tmp; mv tmp2 tmp
  sleep 0.$(($(cut -d' ' -f1 /proc/uptime | tr -d .) % 5))
done 2>/dev/null
echo an initramfs >/tmp/svc/initrd
`
  )
  renameSync(outer.path, join(images, 'outer'))
  mkdirSync(join(images, 'outer/srv'))
  renameSync(inner.path, join(images, 'outer/srv/inner'))

  const built = builtTree(path('svcd'))
  const socket = path('helper.sock')
  const settings = [`paths.state=${path('my state')}`, `paths.files=${path('files')}`]
  settings.push(`image.directory=${images}`, `ssh.port=${remote.port}`)
  const helper = start('systemd-socket-activate', [
    ...['-l', socket, join(built, 'bin/svcd'), 'helper', '--config', join(built, 'etc/svcd.ini')],
    ...settings.flatMap(value => ['--set', value])
  ])
  t.teardown(() => helper.kill())
  await until(() => existsSync(socket))
  chownSync(socket, nobody, nobody)
  // What any user may mount: in namespaces of his own.
  const script = `while [ -e ${socket} ]; do
    for name in run tmp boot usr; do mount --bind /proc ${images}/outer/srv/inner/$name; done
    sleep 0.5
    for name in run tmp boot usr; do umount -l ${images}/outer/srv/inner/$name; done
  done 2>/dev/null`
  const user = ['setpriv', '--pdeathsig', 'KILL', `--reuid=${nobody}`, `--regid=${nobody}`, '--clear-groups']
  const [by = '', ...words] = [...user, 'unshare', '--user', '--map-root-user', '--mount', 'sh', '-c', script]
  const mounting = spawn(by, words, { env: programEnv(), stdio: 'ignore' })
  const attacker = spawn(
    'env',
    [
      ...node.slice(1),
      ...[
        '--enable-source-maps',
        join(import.meta.dirname, 'attacker.js'),
        socket,
        images,
        path('files'),
        `${rounds}`
      ]
    ],
    { env: programEnv(), stdio: ['ignore', 'pipe', 'inherit'] }
  )
  const ended = Promise.all([once(attacker, 'exit'), once(mounting, 'exit')])
  t.teardown(() => {
    attacker.kill('SIGKILL')
    mounting.kill('SIGKILL')
    return ended
  })
  const answers = new Map<string, number>()
  const seen: string[] = []
  let done = 0
  for await (const line of createInterface({ input: attacker.stdout as Readable })) {
    const [command = '', rest = ''] = line.split(/ (.*)/)
    const kind = `${command} ${rest === 'done' ? 'done' : 'failed'}`
    answers.set(kind, (answers.get(kind) ?? 0) + 1)
    if (command === 'SEEN') seen.push(line)
    if (command === 'OUTER')
      t.equal(rest, `ended in round ${rounds}`, 'the other image was at it all the time')
    if (command !== 'ROUND') continue
    done++
    if (done % 100 === 0) t.comment(`${done} rounds`, Object.fromEntries(answers))
    if (existsSync(join(outside, 'pwned')) || done === rounds) {
      // The outer image's program ends by this.
      writeFileSync(join(images, 'outer/srv/stop'), '')
      if (done < rounds) break
    }
  }
  await sleep(0)
  const after = lookOf(outside)
  mounting.kill('SIGKILL')
  return { before, after, seen, done, answers: Object.fromEntries(answers) }
}

// rules 9.13, 9.14
t.test(
  'user svcd, with orders and as root of another image, gets nothing of this machine',
  { timeout: 7_200_000 },
  async t => {
    const rounds = Number(process.env.SVCD_ATTACK_ROUNDS ?? (process.env.SVCD_LONG ? 1000 : 8))
    const { before, after, seen, done, answers } = await attacked(t, rounds)
    const escapes = seen.length + (JSON.stringify(before) === JSON.stringify(after) ? 0 : 1)
    const note = `${escapes} escapes; initramfs built ${answers['initramfs done'] ?? 0} times`
    t.comment(`${done} rounds, ${note}`, answers)
    proof('an image that breaks out of its pack', { tried: done, note })
    t.strictSame(after, before)
    t.strictSame(seen, [])
    t.equal(done, rounds)
    // In a few rounds the attacker may spoil each pack, clone and sync: the long form has time for all.
    const always = ['initramfs', 'copy', 'remove']
    for (const command of rounds < 100 ? always : [...always, 'pack', 'clone', 'sync'])
      t.ok((answers[`${command} done`] ?? 0) > 0, `${command} was done at times`, answers)
  }
)
