import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { locate, ProgramError, type ProgramOptions, run } from '../../lib/program/program.js'
import { start } from '../support/child.js'
import { requirePrograms } from '../support/programs.js'
import { until } from '../support/until.js'

requirePrograms('setpriv')

const minute = 60_000

/** Runs a shell script of the test's own, `args` being its $1, $2 … */
const script = (text: string, options: Partial<ProgramOptions> = {}, ...args: string[]) =>
  run('sh', ['-c', text, 'sh', ...args], { timeLimitMs: minute, ...options })

async function failure(promise: Promise<unknown>): Promise<ProgramError> {
  const error = await promise.then(
    () => undefined,
    error => error
  )
  if (!(error instanceof ProgramError)) throw new Error(`no ProgramError: ${error}`)
  return error
}

/** Whether a process runs; a zombie does not. */
function runs(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}

async function ends(t: Test, pid: number, what: string): Promise<void> {
  await until(() => !runs(pid), what)
  t.pass(what)
}

t.test('a program that succeeds: its status and what it wrote', async t => {
  const { status, stdout, stderr } = await script('echo out; echo err >&2')
  t.same({ status, stdout, stderr }, { status: 0, stdout: 'out\n', stderr: 'err\n' })
  t.equal((await script('exit 3', { ok: [0, 3] })).status, 3)
})

t.test('one that fails: status and last words', async t => {
  const error = await failure(script('echo first >&2; printf "disk \\033[31mfull\\n\\n" >&2; exit 2'))
  t.equal(error.message, 'sh failed with status 2: disk \\u001b[31mfull')
  t.match(error, { program: 'sh', kind: 'failed', status: 2, stderr: /^first\n/ })
  t.equal((await failure(script('exit 0', { ok: [1] }))).status, 0)
  const killed = await failure(script('kill -SEGV $$'))
  t.equal(killed.message, 'sh was killed by SIGSEGV')
  t.equal(killed.status, undefined)
})

t.test('one that is missing, or is no program', async t => {
  const directory = t.testdir({ plain: 'no program', folder: {} })
  for (const name of ['no-such-program', '', join(directory, 'plain'), join(directory, 'folder'), 'a\0b']) {
    const error = await failure(run(name, [], { timeLimitMs: minute }))
    t.match(error, { program: name, kind: 'missing', message: `${name} is not installed` })
  }
  const home = await failure(script('true', { cwd: join(directory, 'none') }))
  t.equal(home.kind, 'failed', 'a missing directory is no missing program')
  t.match(home.message, /^sh cannot be started in ".*none": ENOENT$/)
})

t.test('locate', async t => {
  const directory = t.testdir({ tool: '#!/bin/sh\n' })
  chmodSync(join(directory, 'tool'), 0o755)
  mkdirSync(join(directory, 'sh'))
  const { PATH } = process.env
  t.teardown(() => {
    process.env.PATH = PATH
  })
  process.env.PATH = `.:${directory}:/usr/bin:/bin`
  t.equal(await locate('tool'), join(directory, 'tool'))
  t.match(await locate('sh'), /bin\/sh$/, 'a directory of that name is passed over')
  t.equal(await locate('none'), undefined)
  t.match(await locate('chroot'), /sbin\/chroot$/, 'the system directories are looked in too')
  process.chdir(directory)
  process.env.PATH = '.'
  t.equal(await locate('tool'), undefined, 'nothing is taken from the working directory')
})

t.test('the environment is clean unless one is given', async t => {
  process.env.SVCD_TEST_SECRET = 'hunter2'
  t.teardown(() => {
    delete process.env.SVCD_TEST_SECRET
  })
  // Besides what the test runner puts into the environment of every child.
  const names = async (env?: NodeJS.ProcessEnv) => {
    const { stdout } = await run('env', ['-0'], { timeLimitMs: minute, ...(env ? { env } : {}) })
    const found = stdout.split('\0').map(entry => entry.split('=', 1)[0] ?? '')
    return found.filter(name => name !== '' && !/^(_TAPJS_.*|NODE_OPTIONS)$/.test(name)).sort()
  }
  t.same(await names(), ['HOME', 'LC_ALL', 'PATH'])
  const own = { PATH: '/usr/bin:/bin', ONLY: 'this' }
  t.same(await names(own), ['ONLY', 'PATH'])
})

t.test('hostile arguments arrive as they are', async t => {
  const directory = t.testdir({})
  const args = [
    '; touch pwned',
    '$(touch pwned)',
    '`touch pwned`',
    'a\nb',
    '../..',
    '--',
    '-rf',
    '',
    'é\u{1f600}'
  ]
  const { stdout } = await run('printf', ['%s\\0', ...args], { timeLimitMs: minute, cwd: directory })
  t.same(stdout.split('\0').slice(0, -1), args)
  t.same((await run('ls', ['-A'], { timeLimitMs: minute, cwd: directory })).stdout, '')
  const nul = await failure(run('printf', ['a\0b'], { timeLimitMs: minute }))
  t.match(nul, { kind: 'failed', message: /NUL character/ })
  const long = await failure(run('printf', ['x'.repeat(4 << 20)], { timeLimitMs: minute }))
  t.match(long, { kind: 'failed', message: 'printf cannot be started: E2BIG' })
})

t.test('standard input is empty', async t => {
  t.equal((await run('cat', [], { timeLimitMs: minute })).stdout, '')
})

t.test('lines as they come', async t => {
  const lines: string[] = []
  const errors: string[] = []
  const { stdout, stderr } = await script(
    String.raw`printf 'one\r\ntwo\r50%%\r\n\nh\303'; sleep 0.1; printf '\251\nlast'; echo e1 >&2; printf e2 >&2`,
    { onLine: line => lines.push(line), onErrorLine: line => errors.push(line) }
  )
  t.same(lines, ['one', 'two', '50%', '', 'hé', 'last'])
  t.same(errors, ['e1', 'e2'])
  t.same({ stdout, stderr }, { stdout: '', stderr: 'e1\ne2' })
  const pieces: number[] = []
  await script('head -c 200000 /dev/zero | tr "\\0" x', { onLine: line => pieces.push(line.length) })
  t.same(pieces, [65_536, 65_536, 65_536, 3392], 'a line without an end does not gather in memory')
})

t.test('what the caller throws at a line ends the program and is thrown on', async t => {
  const thrown = new Error('not this line')
  let calls = 0
  const onLine = () => {
    calls++
    throw thrown
  }
  await t.rejects(script('while :; do echo y; done', { onLine }), thrown)
  t.equal(calls, 1)
})

t.test('standard output to a file descriptor', async t => {
  const file = join(t.testdir({}), 'out')
  const handle = await open(file, 'wx', 0o600)
  t.equal((await script('echo to the file', { output: handle.fd })).stdout, '')
  await handle.write('still open\n')
  await handle.close()
  t.equal(readFileSync(file, 'utf8'), 'to the file\nstill open\n')
})

t.test('too much output ends it; a great deal is fine with a slow reader', async t => {
  const error = await failure(script('exec cat /dev/zero', { maxOutput: 1000 }))
  t.match(error, { kind: 'failed', message: 'sh wrote more than 1000 bytes and was ended' })
  const whole = await script('head -c 1000 /dev/zero', { maxOutput: 1000 })
  t.equal(whole.stdout.length, 1000)
  let count = 0
  const onLine = () => {
    if (count++ % 10_000 !== 0) return
    const until = performance.now() + 20
    while (performance.now() < until);
  }
  // A standard output that does not block would make seq give up with EAGAIN.
  await run('seq', ['200000'], { timeLimitMs: minute, onLine })
  t.equal(count, 200_000)
})

t.test('only the last of standard error is kept', async t => {
  const { stderr } = await script('seq 100000 >&2')
  t.equal(stderr.length, 8192)
  t.match(stderr, /\n99999\n100000\n$/)
})

t.test('time limit: SIGTERM first', async t => {
  const error = await failure(script('echo waiting >&2; exec sleep 1000', { timeLimitMs: 1500 }))
  t.match(error, { kind: 'time limit', message: 'sh took longer than 1500 ms and was ended: waiting' })
})

/** A shell and its child that both ignore SIGTERM; `onPids` gets the pids of both. */
const stubborn = `trap '' TERM; sh -c 'echo $$; while :; do sleep 1; done' & echo $$; while :; do sleep 1; done`

t.test('time limit: what ignores SIGTERM is killed, with its children', async t => {
  const pids: number[] = []
  const error = await failure(
    script(stubborn, { timeLimitMs: 1500, onLine: line => pids.push(Number(line)) })
  )
  t.equal(error.kind, 'time limit')
  t.equal(pids.length, 2)
  for (const pid of pids) await ends(t, pid, 'it is gone')
})

t.test('abort', async t => {
  const before = await failure(script('echo', { signal: AbortSignal.abort() }))
  t.match(before, { kind: 'aborted', message: 'sh was stopped before it began' })
  const stop = new AbortController()
  const pids: number[] = []
  const onLine = (line: string) => {
    pids.push(Number(line))
    if (pids.length === 2) stop.abort()
  }
  // The shell goes on SIGTERM, its child would not.
  const text = `(trap '' TERM; echo 1; while :; do sleep 1; done) & echo $!; wait`
  const error = await failure(script(text, { signal: stop.signal, onLine }))
  t.match(error, { kind: 'aborted', message: 'sh was stopped' })
  for (const pid of pids.filter(pid => pid > 1)) await ends(t, pid, 'its child is gone')
  const late = new AbortController()
  const clean = await failure(
    script('trap "exit 0" TERM; echo; while :; do sleep 0.1; done', {
      signal: late.signal,
      onLine: () => late.abort()
    })
  )
  t.equal(clean.kind, 'aborted', 'status 0 after an abort is no success')
})

t.test('what it leaves in its group is killed; what left the group holds nothing up', async t => {
  const { stdout } = await script('sleep 1000 & echo $!')
  await ends(t, Number(stdout), 'the child in the background')
  const left = `setsid sh -c 'echo $$ > pid; exec sleep 1000' & while [ ! -s pid ]; do sleep 0.05; done; cat pid`
  const pid = Number((await script(left, { cwd: t.testdir({}) })).stdout)
  t.teardown(() => process.kill(pid))
  t.ok(runs(pid), 'it keeps the streams open, and is not waited for')
})

t.test('kill -9 of the process that runs it ends it', async t => {
  for (let round = 0; round < 3; round++) {
    const parent = start(process.execPath, [join(import.meta.dirname, 'parent-program.js')])
    t.teardown(() => parent.kill())
    const pid = Number(await parent.says(/^\d+$/m))
    t.ok(runs(pid), 'the program runs')
    await parent.kill()
    await ends(t, pid, 'the program is gone')
  }
})

t.test('without a setpriv that can do it, programs run all the same', async t => {
  const directory = t.testdir({ sh: '#!/bin/sh\nexec /bin/sh "$@"\n' })
  chmodSync(join(directory, 'sh'), 0o755)
  const { PATH } = process.env
  t.teardown(() => {
    process.env.PATH = PATH
  })
  process.env.PATH = directory
  t.equal(await locate('setpriv'), undefined)
  t.equal((await script('echo none')).stdout, 'none\n')
  const refusing = '#!/bin/sh\necho unrecognized option >&2\nexit 1\n'
  writeFileSync(join(directory, 'setpriv'), refusing, { mode: 0o755 })
  t.equal((await script('echo another')).stdout, 'another\n')
})

t.test('a program is not read while what took its lines is busy', async t => {
  for (const [onLine, text] of [
    ['onLine', 'yes'],
    ['onErrorLine', 'yes >&2']
  ] as const) {
    let taken = 0
    let go = () => {}
    const busy = new Promise<void>(resolve => {
      go = resolve
    })
    const stop = new AbortController()
    const take = () => {
      taken++
      return busy
    }
    const running = failure(script(text, { signal: stop.signal, [onLine]: take }))
    await until(() => taken > 0)
    const before = taken
    t.ok(before <= 65_536, onLine, { before })
    await new Promise(resolve => setTimeout(resolve, 300))
    t.equal(taken, before, 'it waits')
    go()
    await until(() => taken > 200_000)
    stop.abort()
    t.equal((await running).kind, 'aborted')
  }
})

// rules 9.13
t.test('programs get no descriptor that svcd inherited, wherever below the limit it is', async t => {
  const module = new URL('../../lib/program/program.js', import.meta.url)
  const code = `import(${JSON.stringify(module.href)}).then(async ({ run }) =>
    console.log((await run('sh', ['-c', 'for i in 600 900 1000; do readlink /proc/$$/fd/$i; done'], { timeLimitMs: 9999 })).stdout))`
  const opened = 'ulimit -n 1024; exec 600</etc/passwd 900</etc/passwd 1000</etc/passwd; exec "$0" -e "$1"'
  const { stdout } = await run('bash', ['-c', opened, process.execPath, code], { timeLimitMs: minute })
  t.equal(stdout, '/dev/null\n/dev/null\n/dev/null\n\n')
})
