import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import t from 'tap'
import { builtTree, replaceModule, svcd } from '../support/built-tree.js'
import { start } from '../support/child.js'
import { scratch } from '../support/scratch.js'

// One for all stand-ins: a copy of the checkout costs more than most of these tests.
const tree = builtTree(t.testdir())
// The rooms of the daemon take most of the time of a start, and a stand-in loads none of them.
replaceModule(tree, 'cli/rooms.js', '')

/**
 * Puts a stand-in in the place of the tree's daemon, which writes down when it is closed; `closing` is the
 * body of its close. What an earlier one left is removed.
 */
function standIn(closing: string, starting = '') {
  const events = join(tree, 'events')
  for (const path of [events, join(tree, 'var')]) rmSync(path, { recursive: true, force: true })
  writeFileSync(
    join(tree, 'dist/daemon.js'),
    `import { appendFileSync } from 'node:fs'
    const event = text => appendFileSync(${JSON.stringify(events)}, text + '\\n')
    export async function startDaemon(config) {
      const alive = setInterval(() => {}, 1000)
      ${starting}
      return {
        address: config.http.listen.address, port: 7051,
        async close(graceMs) { event('close ' + graceMs); ${closing}; event('closed') }
      }
    }`
  )
  const words = (args: readonly string[]) => ['serve', '--config', join(tree, 'etc/svcd.ini'), ...args]
  const serve = (...args: string[]) => start(join(tree, 'bin', 'svcd'), words(args))
  return { serve, events: () => (existsSync(events) ? readFileSync(events, 'utf8') : '') }
}

t.test('says the address, where the first password is, and the next curl', async t => {
  const { serve } = standIn('')
  const { says, process: child, ended } = serve()
  await says('/token')
  child.kill('SIGTERM')
  const { code, stdout } = await ended
  t.equal(code, 0)
  const file = join(tree, 'var', 'admin-password')
  t.match(
    stdout,
    '\nwarning: other machines cannot reach [http] listen 127.0.0.1: it is a loopback address; '
  )
  t.match(stdout, 'svcd listens on http://127.0.0.1:7051; nodes use http://127.0.0.1:7050\n')
  t.match(stdout, `the password of the first user, admin, is in ${file}\n`)
  t.match(
    stdout,
    `next, open http://127.0.0.1:7051/ in a browser, or type: ${relative(process.cwd(), join(tree, 'bin/svcctl'))} login admin --url http://127.0.0.1:7051\n`
  )
  t.match(
    stdout,
    `curl -d "{\\"username\\":\\"admin\\",\\"password\\":\\"$(cat ${file})\\"}" 'http://127.0.0.1:7051/token'`
  )
})

t.test(
  'svcctl is told as it can be typed: by its name where the shell finds it, by its path elsewhere',
  async t => {
    standIn('')
    const args = ['serve', '--config', join(tree, 'etc/svcd.ini')]
    const told = async (path: string, cwd: string) => {
      const env = { PATH: `${path}:${process.env.PATH}` }
      const {
        says,
        process: child,
        ended
      } = start('env', [`--chdir=${cwd}`, join(tree, 'bin', 'svcd'), ...args], { env })
      await says('/token')
      child.kill('SIGTERM')
      return /type: (.*) login/.exec((await ended).stdout)?.[1]
    }
    t.equal(await told(join(tree, 'bin'), '/'), 'svcctl')
    t.equal(await told('/nothing', '/'), join(tree, 'bin/svcctl'))
    t.equal(await told('/nothing', tree), 'bin/svcctl')
    t.equal(await told('/nothing', join(tree, 'bin')), './svcctl')
  }
)

t.test('with users in the ini there is no word of a first password', async t => {
  const { serve } = standIn('')
  const { stdout: line } = await svcd(tree, ['passwd', 'carol', '--stdin'], 'x')
  const [name, value] = line.trim().split(' = ')
  const settings = ['http.listen=[::]:7050', 'controller.address=fd00::1', `users.${name}=${value}`]
  const { says, process: child, ended } = serve(...settings.flatMap(setting => ['--set', setting]))
  await says('/token')
  child.kill('SIGINT')
  const { code, stdout } = await ended
  t.equal(code, 0)
  t.match(stdout, 'svcd listens on all addresses, port 7051; nodes use http://[fd00::1]:7050\n')
  t.notMatch(
    stdout.replace(/^warning: .*: nodes boot over IPv4 alone, and it is an address of IPv6$/m, ''),
    'warning'
  )
  t.match(stdout, '"username":"carol"')
  t.match(stdout, "/bin/svcctl login carol --url 'http://[::1]:7051'\n")
  t.notMatch(stdout.replaceAll(relative(process.cwd(), tree), ''), /first|scrypt/)
})

// rules 11.5
t.test('SIGTERM: closes with 10 s of grace, then exits 0', async t => {
  const { serve, events } = standIn('await new Promise(resolve => setTimeout(resolve, 200))')
  const { says, process: child, ended } = serve()
  await says('/token')
  t.equal(events(), '')
  child.kill('SIGTERM')
  t.match(await ended, { code: 0, signal: null })
  t.equal(events(), 'close 10000\nclosed\n')
})

t.test('a second signal exits 1 at once', async t => {
  const { serve, events } = standIn('console.log("closing"); await new Promise(() => {})')
  const { says, process: child, ended } = serve()
  await says('/token')
  child.kill('SIGTERM')
  await says('closing')
  child.kill('SIGINT')
  t.match(await ended, { code: 1, signal: null })
  t.equal(events(), 'close 10000\n')
})

t.test('a signal during the start is obeyed after it', async t => {
  const { serve, events } = standIn(
    '',
    'console.log("starting"); await new Promise(resolve => setTimeout(resolve, 300)); event("started")'
  )
  const { says, process: child, ended } = serve()
  await says('starting')
  child.kill('SIGTERM')
  t.match(await ended, { code: 0 })
  t.equal(events(), 'started\nclose 10000\nclosed\n')
})

t.test('a close that fails exits 1 with one sentence', async t => {
  const { serve } = standIn('throw new Error("disk is full")')
  const { says, process: child, ended } = serve()
  await says('/token')
  child.kill('SIGTERM')
  const { code, stderr } = await ended
  t.equal(code, 1)
  t.match(stderr, /^svcd: disk is full$/m)
  t.notMatch(stderr, /^ +at /m)
})

t.test('a start that fails: one line per problem, exit 1, no stack trace', async t => {
  const failures: [string, RegExp][] = [
    ['throw new Error("held by pid 7\\nsince noon")', /^svcd: held by pid 7; since noon\n$/],
    [
      'throw new (await import("./base/errors.js")).ProblemsError([{ file: "/a.json", line: 3, message: "x" }, { file: "/b.json", message: "y" }])',
      /^\/a\.json:3: x\n\/b\.json: y\n$/
    ],
    ['throw "text"', /^svcd: text\n$/],
    [
      'throw Object.assign(new Error("listen EADDRINUSE"), { code: "EADDRINUSE", syscall: "listen", address: "127.0.0.1", port: 7 })',
      /^svcd: cannot listen on \[http\] listen, 127\.0\.0\.1 port 7: another program listens there; stop it, or give svcd another port \(\[http\] listen in the ini, or --set http\.listen=…\)\n$/
    ]
  ]
  for (const [starting, expected] of failures) {
    const { serve } = standIn('', starting)
    const { code, stdout, stderr } = await serve().ended
    t.equal(code, 1)
    t.equal(stdout, '')
    t.match(stderr, expected)
  }
})

t.test('readiness: systemd is told once the daemon listens, and only then', async t => {
  standIn('', 'event("started")')
  // The path of a socket has 107 characters at most.
  const directory = scratch(t)
  const socket = join(directory, 'notify')
  // The notification socket is a datagram one, which Node does not speak.
  const listener = start('python3', [
    '-c',
    'import socket, sys, os\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\ns.bind(sys.argv[1])\nprint("bound", flush=True)\nwhile True:\n  data, fds, _, _ = socket.recv_fds(s, 4096, 8)\n  print(data.decode(), os.path.exists(sys.argv[2]), flush=True)\n  for fd in fds: os.close(fd)',
    socket,
    join(tree, 'events')
  ])
  t.teardown(() => void listener.process.kill())
  await listener.says('bound')
  const running = start(join(tree, 'bin', 'svcd'), ['serve', '--config', join(tree, 'etc/svcd.ini')], {
    env: { NOTIFY_SOCKET: socket }
  })
  await listener.says('READY=1 True')
  running.process.kill('SIGTERM')
  const { code, stderr } = await running.ended
  t.equal(code, 0)
  t.notMatch(stderr, /systemd/)
})

t.test('readiness that cannot be told is logged, not fatal', async t => {
  standIn('')
  const {
    says,
    process: child,
    ended
  } = start(join(tree, 'bin', 'svcd'), ['serve', '--config', join(tree, 'etc/svcd.ini')], {
    env: { NOTIFY_SOCKET: '/run/svcd-nobody-listens' }
  })
  await says('systemd was not told')
  child.kill('SIGTERM')
  t.match(await ended, { code: 0, stderr: /warn systemd was not told of readiness/ })
})

// rules 7.7
t.test('check: problems and warnings of templates and state', async t => {
  const check = async (found: object) => {
    const code = `export const checkAll = async () => (${JSON.stringify(found)})`
    writeFileSync(join(tree, 'dist/cli/checks.js'), code)
    return svcd(tree, ['check'])
  }
  t.match(await check({ problems: [], warnings: [], changedSettings: [] }), {
    code: 0,
    stdout: 'ok\n',
    stderr: ''
  })
  t.match(await check({ problems: [], warnings: ['far'], changedSettings: ['near'] }), {
    code: 0,
    stdout: 'ok\n',
    stderr: 'warning: far\nnote: near\n'
  })
  t.match(
    await check({
      problems: [{ file: '/t.cfg', line: 2, message: 'bad' }],
      warnings: ['far'],
      changedSettings: []
    }),
    {
      code: 1,
      stdout: '',
      stderr: '/t.cfg:2: bad\nwarning: far\n'
    }
  )
})

t.test('the real daemon: first start, the printed command gives a token, stop, second start', async t => {
  const tree = builtTree(t.testdir())
  const args = ['serve', '--config', join(tree, 'etc/svcd.ini'), '--set', 'http.listen=127.0.0.1:0']
  const passwords = new Set<string>()
  for (const round of ['first', 'second']) {
    const { says, output, process: child, ended } = start(join(tree, 'bin', 'svcd'), args)
    await says("/token'\n")
    const command = /^ {2}(curl .*)$/m.exec(output())?.[1] ?? ''
    // Printed to be pasted into a shell, so a shell is what proves it.
    const curl = await start('sh', ['-c', command], { input: '' }).ended
    t.match(JSON.parse(curl.stdout), { token: /^[\w-]+\.[\w-]+\.[\w-]+$/ }, round)
    child.kill('SIGTERM')
    const { code, stdout, stderr } = await ended
    t.equal(code, 0, stderr)
    const password = readFileSync(join(tree, 'var', 'admin-password'), 'utf8').trim()
    passwords.add(password)
    t.notOk(`${stdout}${stderr}`.includes(password), 'the password is never printed')
  }
  t.equal(passwords.size, 1)
  writeFileSync(join(tree, 'var', 'token.key'), 'short')
  const { code, stdout, stderr } = await start(join(tree, 'bin', 'svcd'), args).ended
  t.equal(code, 1)
  t.equal(stdout, '')
  t.match(stderr, /^svcd: .*token\.key is damaged \(5 bytes, not 32\).*$/m)
  t.notMatch(stderr, /^ +at /m)
})

t.test('the hidden class of the tick objects of process.nextTick outlives full collections', async t => {
  // V8 prints an object with the address of its class, and moves no class.
  const { serve } = standIn(
    '',
    `const [{ setFlagsFromString }, { runInNewContext }, { executionAsyncResource }] = await Promise.all(
      ['v8', 'vm', 'async_hooks'].map(name => import('node:' + name)))
    setFlagsFromString('--expose-gc')
    setFlagsFromString('--allow-natives-syntax')
    const collect = runInNewContext('gc')
    const print = new Function('object', '%DebugPrint(object)')
    const turns = async () => {
      for (let i = 0; i < 100; i++) {
        for (let k = 0; k < 1000; k++) process.nextTick(() => {})
        await new Promise(setImmediate)
      }
      await new Promise(done => process.nextTick(() => done(print(executionAsyncResource()))))
    }
    await turns()
    // V8 keeps a class that optimized code uses for the first few collections.
    for (let i = 0; i < 6; i++) await new Promise(done => setTimeout(() => done(collect()), 1))
    await turns()`
  )
  const { says, process: child, ended } = serve()
  await says('/token')
  child.kill('SIGTERM')
  const { code, stdout } = await ended
  t.equal(code, 0)
  const classes = [...stdout.matchAll(/DebugPrint: .*(?:\n - map: | map = )(0x[0-9a-f]+)/g)].map(
    ([, at]) => at
  )
  t.equal(classes.length, 2)
  t.equal(classes[1], classes[0])
})
