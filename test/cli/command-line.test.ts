import { chmodSync, cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Script } from 'node:vm'
import { transformSync } from 'esbuild'
import t from 'tap'
import { Logins } from '../../lib/auth/logins.js'
import { loadConfig } from '../../lib/config/load.js'
import { version } from '../../lib/version.js'
import { builtTree, svcd } from '../support/built-tree.js'
import { start } from '../support/child.js'
import { local } from '../support/login.js'
import { checkout } from '../support/programs.js'

const tree = builtTree(t.testdir())

t.test('help and mistakes', async t => {
  const help = await svcd(tree, ['--help'])
  t.match(help, { code: 0, stderr: '', stdout: /^Usage: svcd COMMAND.*svcd join \/media\/keys/s })
  t.strictSame(await svcd(tree, ['serve', '--help', '--config', 'x']), help, 'help comes first')
  const mistakes: [string[], RegExp][] = [
    [[], /^svcd: which command\?$/m],
    [['start'], /^svcd: unknown command start$/m],
    [['constructor'], /^svcd: unknown command constructor$/m],
    [['serve', 'twice'], /^svcd: serve takes no operand$/m],
    [['serve', '--port', '80'], /^svcd: Unknown option '--port'$/m],
    [['serve', '--config'], /--config/],
    [['check', '--set'], /--set/],
    [['check', '--stdin'], /--role and --stdin belong to passwd/],
    [['serve', '--role', 'admin'], /--role and --stdin belong to passwd/],
    [['export', '--yes'], /--yes and --csv belong to import/],
    [['store', 'copy'], /store takes copy FROM TO/],
    [['store', 'copy', 'files', 'disk'], /store takes copy files etcd, or copy etcd files/],
    [['join'], /join takes one \[USER@\]HOST\[:\/STATE-DIRECTORY\]\|\/DIRECTORY/],
    [['join', 'host:state'], /or a directory with its files \(svcd join \/media\/keys\)/],
    [['passwd', '--stdin'], /passwd takes one USER/],
    [['passwd', 'a', 'b', '--stdin'], /passwd takes one USER/],
    [['passwd', 'a b', '--stdin'], /USER must be/],
    [['passwd', '__proto__', '--stdin'], /USER must be/],
    [['passwd', 'bob', '--stdin', '--role', 'root'], /--role must be admin, operator or viewer/],
    [['passwd', 'bob', '--stdin', '--role', 'admin:gpu'], /--role must not limit admin to groups/],
    [['passwd', 'bob'], /no terminal.*--stdin/]
  ]
  await Promise.all(
    mistakes.map(async ([args, message]) => {
      const ended = await svcd(tree, args, 'secret\n')
      t.match(ended, { code: 2, stdout: '', stderr: message }, args.join(' '))
      t.notMatch(ended.stderr, /\n {4}at |secret/)
    })
  )
})

t.test('version', async t => {
  t.strictSame(await svcd(tree, ['--version']), await svcd(tree, ['version']))
  const { code, stdout } = await svcd(tree, ['version'])
  t.strictSame(await svcd(tree, ['ctl', '--version']), await svcd(tree, ['version']))
  t.match(await svcd(tree, ['ctl', 'node', '--version']), {
    code: 2,
    stderr: /--version is a command of its own/
  })
  t.equal(code, 0)
  t.equal(stdout, `svcd ${version.service}, api 1, commit baked\n`)
  t.equal(version.commit, 'unknown', 'nothing is baked in beside sources that were not built')
})

t.test('an unbuilt checkout says what to type', async t => {
  const bare = t.testdir({ 'package.json': '{"type":"module"}' })
  cpSync(join(checkout, 'bin'), join(bare, 'bin'), { recursive: true })
  const { code, stderr } = await svcd(bare, ['version'])
  t.equal(code, 1)
  t.match(stderr, /^svcd is not built: type `make build` in /)
})

t.test('a Node that is too old is named, and the one that is needed', async t => {
  const bare = t.testdir({ 'package.json': '{"type":"module","engines":{"node":">=99.1"}}' })
  cpSync(join(checkout, 'bin'), join(bare, 'bin'), { recursive: true })
  for (const name of ['svcd', 'svcctl']) {
    const args = [join(bare, 'bin', name), '--help']
    const { code, stdout, stderr } = await start(process.execPath, args).ended
    const message = `${name} needs Node 99.1 or later, this is ${process.versions.node} (${process.execPath})\n`
    t.strictSame({ code, stdout, stderr }, { code: 1, stdout: '', stderr: message })
  }
})

t.test('a Node of long ago can read the commands: it would not get as far as to name itself', t => {
  const inBin = (name: string) => readFileSync(join(checkout, 'bin', name), 'utf8')
  t.equal(JSON.parse(inBin('package.json')).type, 'commonjs')
  for (const name of ['svcd', 'svcctl']) {
    t.doesNotThrow(() => new Script(inBin(name)), `${name} is no ES module`)
    const lowered = (target: string) => transformSync(inBin(name), { target }).code
    t.equal(lowered('node12.22'), lowered('esnext'), `${name} has no new words`)
  }
  t.end()
})

t.test('make says which Node it needs, before anything else fails', async t => {
  const bare = t.testdir({
    bin: {},
    build: {},
    lib: {},
    'package.json': '"node": ">=20.17"',
    'package-lock.json': '{}'
  })
  for (const file of ['Makefile', 'build/node-version.sh']) cpSync(join(checkout, file), join(bare, file))
  for (const program of ['sh', 'sed', 'sort', 'find', 'dirname', 'env'])
    symlinkSync(join('/usr/bin', program), join(bare, 'bin', program))
  const made = async () => {
    const make = [`PATH=${join(bare, 'bin')}`, '/usr/bin/make', '-C', bare, 'build']
    const { code, stderr } = await start('/usr/bin/env', make).ended
    t.equal(code, 2)
    return stderr
  }
  const program = (name: string, text: string) =>
    writeFileSync(join(bare, 'bin', name), `#!/bin/sh\n${text}\n`, { mode: 0o755 })
  t.match(await made(), /^node is missing: install Node 20\.17 or later$/m)
  program('node', 'echo 18.20.4')
  t.match(await made(), /^svcd needs Node 20\.17 or later, this is 18\.20\.4 \(.*\/bin\/node\)$/m)
  program('node', 'echo 20.17.0')
  t.match(await made(), /^npm is missing: install it/m)
  program('npm', 'echo npm was asked >&2; exit 1')
  t.match(await made(), /^npm was asked$/m)
})

t.test('make says what it does before it is silent for long', async t => {
  const bare = t.testdir({ bin: {}, build: { 'bundle.mjs': '' }, lib: {}, node_modules: {} })
  for (const file of ['package.json', 'package-lock.json', 'tsconfig.json', 'tsconfig.build.json'])
    writeFileSync(join(bare, file), file === 'package.json' ? '"node": ">=20.17"' : '{}')
  for (const file of ['Makefile', 'build/node-version.sh']) cpSync(join(checkout, file), join(bare, file))
  const program = (name: string, text: string) =>
    writeFileSync(join(bare, 'bin', name), `#!/bin/sh\n${text}\n`, { mode: 0o755 })
  program('npm', 'echo "npm $*" >&2; mkdir -p dist; [ "$3" != lint ]')
  program('node', 'case $1 in -p) echo 20.17.0 ;; build*) exit 0 ;; *) echo 20.17.0 ;; esac')
  const said = async (goal: string) => {
    const make = [`PATH=${join(bare, 'bin')}:/usr/bin`, '/usr/bin/make', '-s', '-C', bare, goal]
    return (await start('/usr/bin/env', make).ended).stderr.split('\n')
  }
  const [first = '', ci, second = '', build, ...rest] = await said('build')
  t.same([ci, build, rest], ['npm ci --no-audit --no-fund', 'npm run --silent build', ['']])
  t.match(first, /packages.* minutes/)
  t.match(second, /code.* half a minute/)
  t.match(await said('lint'), [/type check.* half a minute/, 'npm run --silent lint'])
  t.same(await said('build'), [''], 'what is there already is told of with no word')
})

const places = `[paths]\nstate = state\ntemplates = ${join(tree, 'templates')}\n`

// rules 7.7
t.test(
  'check: the problems of the ini, and those of the state with all fields of an object, in one run',
  async t => {
    const interfaces = [
      { interface: 'a', ipaddress: 'x' },
      { interface: 'b', macaddress: 'y' }
    ]
    const node = { name: 'n1', netboot: 'yes', bootmenu: 'no', interfaces }
    const directory = t.testdir({
      'bad.ini': `[http]\nmax_body = 5\n[ssh]\nkey = none\n${places}`,
      state: { node: { 'n1.json': `${JSON.stringify(node, null, 2)}\n` } }
    })
    const { code, stderr } = await svcd(tree, ['check', '--config', join(directory, 'bad.ini')])
    t.equal(code, 1)
    const at = (line: number) => `${directory}/state/node/n1.json:${line}: node n1: `
    const lines = [
      `${directory}/bad.ini:2: [http] max_body must be`,
      `${directory}/bad.ini:4: [ssh] key: there is no file ${directory}/none; put`,
      `${at(3)}field "netboot" must be true or false`,
      `${at(4)}field "bootmenu" must be true or false`,
      `${at(8)}interface a: field "ipaddress" must be`,
      `${at(12)}interface b: field "macaddress" must be`
    ]
    t.strictSame(
      stderr
        .trimEnd()
        .split('\n')
        .map((line, i) => line.slice(0, lines[i]?.length)),
      lines,
      stderr
    )
  }
)

// rules 7.7
t.test('check: every problem with its line, exit 1, no stack trace', async t => {
  const directory = t.testdir({ 'bad.ini': `[http]\nlisten = x\nfoo = 1\n${places}` })
  const file = join(directory, 'bad.ini')
  const { code, stdout, stderr } = await svcd(tree, ['check', '--config', file, '--set', 'log.level=loud'])
  t.equal(code, 1)
  t.equal(stdout, '')
  const lines = stderr.trimEnd().split('\n')
  t.equal(lines.length, 3)
  t.ok(lines[0]?.startsWith(`${file}:2: [http] listen must be `), stderr)
  t.ok(lines[1]?.startsWith(`${file}:3: unknown key "foo"`), stderr)
  t.ok(lines[2]?.startsWith('--set log.level: [log] level must be '), stderr)
  const missing = await svcd(tree, ['serve', '--config', join(directory, 'missing.ini')])
  t.match(missing, {
    code: 1,
    stdout: '',
    stderr: /missing\.ini: cannot be read: ENOENT.*; name the ini of your svcd: --config FILE\n$/
  })
})

// rules 5.1
t.test('passwd prints a line that the ini takes', async t => {
  const state = t.testdir()
  const lines = await Promise.all([
    svcd(tree, ['passwd', 'alice', '--stdin'], 'pass wörd; #"\n'),
    svcd(tree, ['--role', 'viewer:gpu,compute', '--stdin', 'passwd', 'bob'], 'no line end')
  ])
  t.match(lines[0], { code: 0, stderr: '', stdout: /^alice = admin \$scrypt\$\S+\n$/ })
  t.match(lines[1], { code: 0, stderr: '', stdout: /^bob = viewer:compute,gpu \$scrypt\$\S+\n$/ })
  const file = join(state, 'svcd.ini')
  writeFileSync(file, `[users]\n${lines.map(line => line.stdout).join('')}`)
  const logins = new Logins({ users: loadConfig(file, []).users, adminPasswordFile: '', now: Date.now })
  t.match(await logins.login('alice', 'pass wörd; #"', '::1'), local('alice', 'admin'))
  t.match(await logins.login('bob', 'no line end', '::1'), local('bob', 'viewer:compute,gpu'))
})

t.test('passwords that cannot be', async t => {
  const bad: [string | Uint8Array, RegExp][] = [
    ['', /empty/],
    ['\n', /empty/],
    ['two\nlines\n', /one line/],
    ['nul\0', /one line/],
    ['x'.repeat(1025), /longer than 1024 bytes/],
    [Buffer.from([0x61, 0xff]), /not UTF-8/]
  ]
  await Promise.all(
    bad.map(async ([input, message]) =>
      t.match(await svcd(tree, ['passwd', 'bob', '--stdin'], input), { code: 1, stdout: '', stderr: message })
    )
  )
})

t.test('an ini that may not be read', async t => {
  const file = join(t.testdir({ 'svcd.ini': '' }), 'svcd.ini')
  chmodSync(file, 0)
  // Root may read everything, so the question is asked as nobody.
  const nobody = ['--reuid=65534', '--regid=65534', '--clear-groups']
  const args = process.getuid?.() === 0 ? nobody : []
  const ended = await start('setpriv', [...args, join(tree, 'bin', 'svcd'), 'check', '--config', file], {
    input: ''
  }).ended
  t.match(ended, { code: 1, stderr: /svcd\.ini: cannot be read: EACCES/ })
})
