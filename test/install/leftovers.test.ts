import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { base64, installData } from '../support/install-data.js'
import { installScript } from '../support/install-script.js'
import { completed, exits, failed, install, type Plan, startFakeController } from './install.js'
import { allShells, everyCase, InstallingNode, type Run } from './installing-node.js'
import { packImage } from './packed-image.js'

// What a script of the admin starts ends with it (rules 4.30), so that it does not keep the next try from its
// disks.

t.jobs = 4

const busybox = readFileSync('/usr/bin/busybox')
/** Programs that stay: each writes its process id to /pids. Sleeps of a length that nobody else has. */
const stays: Readonly<Record<string, string>> = {
  'in the background': 'sleep 4001 & echo $! >> /pids',
  'with a session of its own':
    "setsid sh -c 'echo $$ >> /pids; exec sleep 4002' > /dev/null 2>&1 < /dev/null &",
  'without its environment': "setsid env -i PATH=/tools sh -c 'echo $$ >> /pids; exec sleep 4003' &",
  'that takes no notice of signals': "(trap '' HUP INT TERM; sh -c 'echo $$ >> /pids; exec sleep 4004') &",
  'whose parent is gone': 'sh -c \'sh -c "echo \\$\\$ >> /pids; exec sleep 4005" &\'',
  'that works below /sysroot':
    "(mkdir -p /sysroot/x; cd /sysroot/x; sh -c 'echo $$ >> /pids; exec sleep 4006') &",
  'with mounts of its own': "unshare -m sh -c 'echo $$ >> /pids; exec sleep 4007' &",
  'that starts others again and again':
    'sh -c \'while :; do sh -c "echo \\$\\$ >> /pids; exec sleep 4008" & sleep 0.05; done\' &'
}
const all = `${Object.values(stays).join('\n')}\nsleep 0.3\n`

/** The processes that were noted and still run. */
function left(machine: InstallingNode): string[] {
  const noted = machine.text('pids').trim().split('\n')
  return noted.filter(pid => {
    try {
      return /sleep.400\d/.test(readFileSync(`/proc/${pid}/cmdline`, 'utf8'))
    } catch {
      return false
    }
  })
}

function nothingLeft(t: Test, machine: InstallingNode, run: Run, count = Object.keys(stays).length): void {
  t.ok(machine.text('pids').trim().split('\n').length >= count, 'they had been started')
  t.strictSame(left(machine), [], 'none of them runs')
  t.notMatch(run.mounts, 'svcscript')
}

for (const shell of allShells) {
  const plan = (data: Plan['data']): Plan => ({ shell, data: data ?? {} })

  t.test(`what scripts have started ends with them, ${shell}`, async t => {
    const done = await install(t, plan({ prescript: base64(all), postscript: base64(all) }))
    completed(t, done)
    nothingLeft(t, done.machine, done.run, 2 * Object.keys(stays).length)
  })

  if (!everyCase(shell) && shell !== 'bash') continue
  t.test(`also with a script that fails, or is stopped, ${shell}`, async t => {
    for (const [end, reason] of [
      ['exit 7', /ended with status 7/],
      ['kill -TERM $PPID; sleep 0.3', /signal/]
    ] as const) {
      if (!everyCase(shell) && end === 'exit 7') continue
      const done = await install(t, plan({ prescript: base64(`${all}${end}`) }))
      failed(t, done, 'prescript', reason)
      nothingLeft(t, done.machine, done.run)
    }
  })
}

for (const shell of ['bash', 'ash'] as const) {
  t.test(`a service in the chroot does not keep the next try from its disk, ${shell}`, async t => {
    const controller = await startFakeController(t)
    controller.files.set('/files/rocky9.tar.gz', packImage())
    const machine = new InstallingNode(t, { shell })
    machine.write('busybox', busybox, 0o755)
    // The second time it fails if anything of the first is still mounted, below /sysroot or elsewhere.
    const partscript = base64(
      'grep -E "^/dev/(fake1|fake2) " /proc/mounts && exit 9\n' +
        'mount -t tmpfs /dev/fake1 /sysroot\nmkdir -p /elsewhere\nmount -t tmpfs /dev/fake2 /elsewhere'
    )
    const postscript = base64(
      'cp /busybox $_SYSTEMROOT/busybox\nchroot $_SYSTEMROOT /busybox sh -c "echo \\$\\$ > /pid; exec /busybox sleep 4009" &\n' +
        'sleep 0.3; cat $_SYSTEMROOT/pid >> /pids; exit 7'
    )
    const script = installScript(installData({ ...controller.place, partscript, postscript }))
    const runs = await machine.run(script, script)
    exits(t, runs, [1, 1])
    t.match(
      controller.states.at(-1),
      /failed: postscript: the postscript ended with status 7/,
      'for its own reason'
    )
    t.strictSame(left(machine), [])
  })
}

t.test('what a killed run has left is ended before its disks are', async t => {
  const controller = await startFakeController(t)
  controller.files.set('/files/rocky9.tar.gz', packImage())
  // Disks are worked on: what of the script runs then?
  const swapoff =
    'for pid in $(cat /pids); do ! grep -q sleep "/proc/$pid/cmdline" || echo "$pid" >> /busy; done'
  const machine = new InstallingNode(t, { shell: 'bash', programs: { swapoff } })
  machine.write('pids', '')
  const partscript = base64('mount -t tmpfs /dev/fake1 /sysroot')
  const killed = `${stays['with a session of its own']}\nsleep 0.3; kill -9 $PPID; sleep 1`
  const script = (postscript: string) =>
    installScript(installData({ ...controller.place, partscript, postscript: base64(postscript) }))
  const runs = await machine.run(script(killed), script('true'))
  exits(t, runs, [137, 0])
  t.match(machine.text('pids'), /^\d+\n$/, 'it had been started')
  t.notOk(machine.has('busy'))
  t.strictSame(left(machine), [])
})

t.test('a kernel without cgroups: what has the environment or the root directory of a script', async t => {
  const mount = 'case $* in *cgroup2*) exit 1 ;; esac; exec /usr/bin/mount "$@"'
  const few = ['in the background', 'with a session of its own', 'whose parent is gone'].map(
    name => stays[name]
  )
  const chrooted =
    'mkdir -p /sysroot/usr; cp /busybox /sysroot/busybox; setsid env -i /usr/sbin/chroot /sysroot /busybox sleep 4009 &\necho $! >> /pids'
  const postscript = base64(`${few.join('\n')}\n${chrooted}\nsleep 0.3\n`)
  const prepare = (machine: InstallingNode) => machine.write('busybox', busybox, 0o755)
  const done = await install(t, { shell: 'bash', programs: { mount }, data: { postscript }, prepare })
  completed(t, done)
  nothingLeft(t, done.machine, done.run, 4)
})

t.test(
  'a process that serves a file system stays: it has an @ as the first character of its name',
  async t => {
    const served = "bash -c 'exec -a @serves /usr/bin/sleep 4001' & echo $! >> /pids; sleep 0.3"
    const programs = { bash: 'exec /usr/bin/bash "$@"' }
    const done = await install(t, { shell: 'bash', programs, data: { prescript: base64(served) } })
    completed(t, done)
    const [pid = ''] = done.machine.text('pids').trim().split('\n')
    t.match(readFileSync(`/proc/${pid}/cmdline`, 'utf8'), '@serves')
    process.kill(Number(pid), 'SIGKILL')
  }
)
