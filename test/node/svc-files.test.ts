import { execFile, execFileSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { Controller } from '../support/controller.js'
import { runningFiles } from '../support/install-script.js'
import { scratch } from '../support/scratch.js'

const script = join(scratch(t), 'svc-files')
const shipped = runningFiles()
writeFileSync(script, shipped)
const shells = [['dash'], ['bash'], ['busybox', 'ash']]

if (process.getuid?.() !== 0) t.bailout('svc-files puts files in place as root: run as root')

/** What a run leaves: its status, and what it says. */
const run = (shell: readonly string[], ...args: string[]) =>
  new Promise<{ status: number; output: string }>(resolve => {
    const [program = '', ...first] = shell
    // A second word of the shell is another copy of the script.
    execFile(
      program,
      [...first, ...(first.length > 0 && program === 'dash' ? [] : [script]), ...args],
      (error, stdout, stderr) => resolve({ status: error ? Number(error.code) : 0, output: stdout + stderr })
    )
  })

/** A tar of these files, with a mode each. */
function tarOf(test: Test, files: Readonly<Record<string, readonly [text: string, mode: number]>>): string {
  const directory = scratch(test)
  for (const [path, [text, mode]] of Object.entries(files)) {
    const file = join(directory, 'tree', path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
    chmodSync(file, mode)
  }
  execFileSync('tar', ['-cf', '../files.tar', '--owner=0', '--group=0', ...Object.keys(files)], {
    cwd: join(directory, 'tree')
  })
  return join(directory, 'files.tar')
}

const mode = (file: string) => (statSync(file).mode & 0o7777).toString(8)

for (const shell of shells) {
  // rules 4.25
  t.test(`files are put in place as a whole, ${shell.join(' ')}`, async t => {
    const root = scratch(t)
    const path = (name: string) => join(root, name)
    mkdirSync(path('etc'))
    writeFileSync(path('etc/same'), 'same')
    chmodSync(path('etc/same'), 0o640)
    writeFileSync(path('etc/old'), 'old')
    symlinkSync('old', path('etc/link'))
    const same = statSync(path('etc/same'), { bigint: true })
    const held = readFileSync(path('etc/old'))
    const tar = tarOf(t, {
      'etc/same': ['same', 0o640],
      'etc/old': ['new', 0o600],
      'etc/link': ['in the place of the link', 0o644],
      "a b/c's $(id)/x": ['deep', 0o755],
      top: ['top', 0o644]
    })
    const { status, output } = await run(shell, '--root', root, tar)
    t.equal(status, 0, output)
    t.equal(held.toString(), 'old')
    t.equal(readFileSync(path('etc/old'), 'utf8'), 'new')
    t.equal(mode(path('etc/old')), '600')
    t.ok(lstatSync(path('etc/link')).isFile())
    t.equal(readFileSync(path("a b/c's $(id)/x"), 'utf8'), 'deep')
    t.equal(mode(path("a b/c's $(id)/x")), '755')
    t.equal(mode(path('a b')), '755')
    t.equal(readFileSync(path('top'), 'utf8'), 'top')
    t.equal(statSync(path('etc/same'), { bigint: true }).ctimeNs, same.ctimeNs, 'equal files are left alone')
    t.notMatch(output, /same/)
    t.same(readdirSync(path('etc')).sort(), ['link', 'old', 'same'], 'nothing is left beside them')
  })

  t.test(`no link leads out of the root, ${shell.join(' ')}`, async t => {
    const outside = scratch(t)
    writeFileSync(join(outside, 'passwd'), 'outside')
    const root = scratch(t)
    const path = (name: string) => join(root, name)
    for (const name of ['etc', 'run', 'home/eve', 'shared']) mkdirSync(path(name), { recursive: true })
    // Links of root are the system's: they are followed inside the root.
    symlinkSync('/run', path('etc/absolute'))
    symlinkSync('../../../../../../run', path('etc/upwards'))
    symlinkSync(join(outside, 'passwd'), path('etc/file'))
    symlinkSync(outside, path('etc/outside'))
    symlinkSync('loop', path('etc/loop'))
    // Links that somebody else may have made are not.
    symlinkSync(outside, path('home/eve/link'))
    symlinkSync('../etc', path('shared/link'))
    chownSync(path('home/eve'), 1234, 1234)
    chmodSync(path('shared'), 0o1777)
    mkdirSync(path('directory'))
    const tar = tarOf(t, {
      'etc/absolute/one': ['one', 0o644],
      'etc/upwards/two': ['two', 0o644],
      'etc/file': ['three', 0o644],
      'etc/outside/passwd': ['four', 0o644],
      'etc/loop/five': ['five', 0o644],
      'home/eve/link/passwd': ['six', 0o644],
      'home/eve/own': ['seven', 0o644],
      'shared/link/eight': ['eight', 0o644],
      directory: ['nine', 0o644],
      last: ['last', 0o644]
    })
    const { status, output } = await run(shell, '--root', root, tar)
    t.equal(status, 1, output)
    t.same(readdirSync(outside), ['passwd'])
    t.equal(readFileSync(join(outside, 'passwd'), 'utf8'), 'outside')
    t.equal(readFileSync(path('run/one'), 'utf8'), 'one')
    t.equal(readFileSync(path('run/two'), 'utf8'), 'two')
    t.equal(readFileSync(path('etc/file'), 'utf8'), 'three', 'a link in the place of the file is replaced')
    t.equal(
      readFileSync(path(`${outside}/passwd`), 'utf8'),
      'four',
      'an absolute link is followed inside the root'
    )
    t.equal(readFileSync(path('home/eve/own'), 'utf8'), 'seven')
    t.notOk(existsSync(path('etc/eight')))
    t.match(output, '/etc/loop leads round in a circle')
    for (const name of ['home/eve/link', 'shared/link'])
      t.match(output, `/${name} is a link that somebody other than root may have made`)
    t.match(output, '/directory is a directory')
    t.equal(readFileSync(path('last'), 'utf8'), 'last', 'the others are put in place')
  })
}

t.test('a tar that holds anything but files is refused as a whole', async t => {
  const root = scratch(t)
  mkdirSync(join(root, 'etc'))
  const directory = scratch(t)
  mkdirSync(join(directory, 'etc'))
  writeFileSync(join(directory, 'etc/a'), 'a')
  symlinkSync('/tmp', join(directory, 'etc/link'))
  execFileSync('tar', ['-cf', 'bad.tar', 'etc'], { cwd: directory })
  const bad = await run(['dash'], '--root', root, join(directory, 'bad.tar'))
  t.equal(bad.status, 1)
  t.match(bad.output, 'neither a file nor a directory')
  writeFileSync(
    join(directory, 'cut.tar'),
    readFileSync(tarOf(t, { 'etc/a': ['a'.repeat(2000), 0o644] })).subarray(0, 1100)
  )
  t.match(await run(['dash'], '--root', root, join(directory, 'cut.tar')), {
    status: 1,
    output: /the tar is damaged/
  })
  t.same(readdirSync(join(root, 'etc')), [])
})

// rules 4.25
t.test('a running node fetches its files; one that fails leaves the installed ones alone', async t => {
  const c = await Controller.start(t, 'auth.token_lifetime=30d')
  await c.cluster()
  const template = 'ntp {{ variables.ntp }}\n'
  await c.post('/config/file/ntp', { path: '/etc/ntp.conf', template, mode: '0640', group: '7' })
  await c.post('/config/file/gone', { path: '/etc/gone', owner: 'nobody-of-this-name' })
  await c.post('/config/group/compute', { files: ['ntp'], variables: { ntp: 'one' } })
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  const { text } = await c.get('/boot/install/node001', { token: null, source: '10.141.0.1' })
  const token = /^FILES_TOKEN='?([^'\n]+)/m.exec(text)?.[1] ?? ''
  t.match(token, /^ey/)
  const root = scratch(t)
  mkdirSync(join(root, 'etc/svc'), { recursive: true })
  const conf = join(root, 'etc/svc/files.conf')
  const { address, port } = c.daemon
  const settings = (node: string, token: string) =>
    writeFileSync(conf, `url http://${address}:${port}\nnode ${node}\ntoken ${token}\ninsecure \n`)
  const fetched = () => run(['dash'], '--root', root)
  const installed = () => readFileSync(join(root, 'etc/ntp.conf'), 'utf8')
  t.match(await fetched(), { status: 1, output: /files\.conf is missing/ })
  settings('node001', token)
  // What it does with its settings, in order.
  const programs = scratch(t)
  const steps = join(programs, 'steps')
  for (const name of ['sync', 'mv'])
    writeFileSync(
      join(programs, name),
      `#!/bin/sh\ncase $* in *files.conf*) echo ${name} >> ${steps};; esac\nPATH=\${PATH#*:} exec ${name} "$@"\n`,
      { mode: 0o755 }
    )
  c.clockMs = 2 * 86_400_000
  t.same(await run(['env', `PATH=${programs}:${process.env.PATH}`, 'dash'], '--root', root), {
    status: 0,
    output: 'svc-files: /etc/ntp.conf is new\n'
  })
  t.equal(readFileSync(steps, 'utf8'), 'sync\nmv\n', 'the new token is on the disk before it is in place')
  t.equal(installed(), 'ntp one\n')
  t.equal(statSync(join(root, 'etc/ntp.conf')).gid, 7)
  const renewed = /^token (.*)$/m.exec(readFileSync(conf, 'utf8'))?.[1] ?? ''
  t.match(renewed, /^ey/)
  t.not(renewed, token, 'it has a new token')
  t.equal(mode(conf), '600')
  const kept = statSync(conf).ino
  t.same(await fetched(), { status: 0, output: '' }, 'nothing is new')
  t.equal(statSync(conf).ino, kept, 'and nothing is written')
  c.clockMs += 2 * 86_400_000
  // The same by wget, where a system has no curl.
  const byWget = join(scratch(t), 'svc-files')
  writeFileSync(byWget, shipped.replace('command -v curl >/dev/null', 'false'))
  writeFileSync(join(root, 'etc/ntp.conf'), 'changed by hand')
  t.match(await run(['dash', byWget], '--root', root), { status: 0, output: /ntp\.conf is new/ })
  t.equal(installed(), 'ntp one\n')
  const again = /^token (.*)$/m.exec(readFileSync(conf, 'utf8'))?.[1] ?? ''
  t.not(again, renewed, 'it has a new token again')
  settings('node001', 'none')
  t.match(await run(['dash', byWget], '--root', root), {
    status: 1,
    output: /answered 401/
  })
  settings('node001', again)

  await c.post('/config/node/node001', { variables: { ntp: 'two' } })
  t.same(await fetched(), { status: 0, output: 'svc-files: /etc/ntp.conf is new\n' })
  t.equal(installed(), 'ntp two\n')

  await c.post('/config/file/ntp', { template: 'a\n{{ variables.none }}' })
  const failed = await fetched()
  t.equal(failed.status, 1)
  t.match(failed.output, /answered 503: node node001: file ntp cannot be rendered: ntp:2:14: /)
  t.equal(installed(), 'ntp two\n')
  await c.post('/config/file/ntp', { template })

  await c.post('/config/node/node001', { files: ['gone'], variables: { ntp: 'three' } })
  const unknown = await fetched()
  t.equal(unknown.status, 1)
  t.match(unknown.output, '/etc/gone: this system does not know its owner or its group')
  t.notOk(existsSync(join(root, 'etc/gone')))
  t.equal(installed(), 'ntp three\n', 'the others are put in place')

  await c.post('/config/node/node002', { group: 'compute', variables: { ntp: 'of node002' } })
  settings('node002', renewed)
  t.match(await fetched(), { status: 1, output: /answered 403: / })
  settings('node001', 'none')
  t.match(await fetched(), { status: 1, output: /answered 401: / })
  t.equal(installed(), 'ntp three\n')
})

// rules 4.28
t.test('of several controllers the first that gives the files', async t => {
  const c = await Controller.start(t, 'auth.token_lifetime=30d')
  await c.cluster()
  await c.post('/config/file/motd', { path: '/etc/motd', template: 'of {{ node }}\n' })
  await c.post('/config/group/compute', { files: ['motd'] })
  await c.post('/config/node/node001', { group: 'compute', macaddr: '52:54:00:00:00:01' })
  const { text } = await c.get('/boot/install/node001', { token: null, source: '10.141.0.1' })
  const token = /^FILES_TOKEN='?([^'\n]+)/m.exec(text)?.[1] ?? ''
  const { address, port } = c.daemon
  const url = `http://${address}:${port}`
  const refusing = createServer((_, response) => response.writeHead(500).end()).listen(0, '127.0.0.1')
  await once(refusing, 'listening')
  t.teardown(() => refusing.close())
  const bad = `http://127.0.0.1:${(refusing.address() as AddressInfo).port}`
  const byWget = join(scratch(t), 'svc-files')
  writeFileSync(byWget, shipped.replace('command -v curl >/dev/null', 'false'))
  for (const shell of [['dash'], ['dash', byWget]]) {
    const root = scratch(t)
    mkdirSync(join(root, 'etc/svc'), { recursive: true })
    const conf = join(root, 'etc/svc/files.conf')
    const settings = (urls: string) =>
      writeFileSync(conf, `url ${urls}\nnode node001\ntoken ${token}\ninsecure \n`)
    const gone = 'http://127.0.0.1:9'
    settings(`${gone} ${bad} ${url}`)
    c.clockMs += 2 * 86_400_000
    t.match(await run(shell, '--root', root), { status: 0, output: /^svc-files: \/etc\/motd is new\n/ })
    t.equal(readFileSync(join(root, 'etc/motd'), 'utf8'), 'of node001\n')
    const kept = readFileSync(conf, 'utf8')
    t.ok(
      kept.startsWith(`url ${gone} ${bad} ${url}\nnode node001\ntoken ey`),
      'all are kept with a new token'
    )
    t.notMatch(kept, token)
    settings(`${bad} ${gone}`)
    const none = await run(shell, '--root', root)
    t.equal(none.status, 1)
    t.match(
      none.output,
      `svc-files: cannot fetch ${bad}/boot/files/node001: the controller answered 500; ${gone}/boot/files/node001: `
    )
  }
})

for (const shell of shells) {
  // rules 4.25
  t.test(`directories, links and modes of four digits, ${shell.join(' ')}`, async t => {
    const root = scratch(t)
    const path = (name: string) => join(root, name)
    const outside = scratch(t)
    const was = mode(outside)
    mkdirSync(path('etc/there'), { recursive: true })
    writeFileSync(path('etc/there/kept'), 'kept')
    writeFileSync(path('etc/old'), 'a file')
    symlinkSync('/elsewhere', path('etc/moved'))
    mkdirSync(path('etc/full'))
    mkdirSync(path('home/user'), { recursive: true })
    chownSync(path('home/user'), 1234, 1234)
    symlinkSync(outside, path('home/user/way'))
    const tar = tarOf(t, {
      'var/spool/x/.svc-directory': ['', 0o2775],
      'var/spool/x/y/.svc-directory': ['', 0o1777],
      'etc/there/.svc-directory': ['', 0o700],
      'etc/.svc-link.old': ['../usr/lib/old', 0o644],
      'etc/.svc-link.moved': ['/new place/$(id)', 0o644],
      'var/spool/x/tool': ['tool', 0o4755],
      '.svc-link.top': ['etc', 0o644]
    })
    const { status, output } = await run(shell, '--root', root, tar)
    t.equal(status, 0, output)
    t.same(
      [mode(path('var/spool/x')), mode(path('var/spool/x/y')), mode(path('etc/there'))],
      ['2775', '1777', '700']
    )
    t.equal(mode(path('var/spool/x/tool')), '4755')
    t.equal(readFileSync(path('etc/there/kept'), 'utf8'), 'kept')
    t.equal(readlinkSync(path('etc/old')), '../usr/lib/old')
    t.equal(readlinkSync(path('etc/moved')), '/new place/$(id)')
    t.equal(readlinkSync(path('top')), 'etc')
    t.notOk(readdirSync(root, { recursive: true }).some(name => String(name).includes('.svc-')))
    t.match(output, /svc-files: \/etc\/old is new\n/)
    const again = await run(shell, '--root', root, tar)
    t.same(again, { status: 0, output: '' }, 'what is as it should be is left alone')
    // What cannot be placed, or would lead elsewhere, is told; the rest is placed.
    const bad = tarOf(t, {
      'etc/.svc-link.full': ['x', 0o644],
      'etc/old2/.svc-directory': ['', 0o755],
      'home/user/way/.svc-directory': ['', 0o777],
      'home/user/way/.svc-link.in': ['x', 0o644],
      'home/user/moved/.svc-directory': ['', 0o755],
      'home/user/empty/.svc-directory': ['', 0o755],
      'etc/there/kept/.svc-directory': ['', 0o755]
    })
    // A user can give a directory of root's another place in the user's own.
    mkdirSync(path('home/user/moved'), { mode: 0o700 })
    writeFileSync(path('home/user/moved/key'), 'secret')
    mkdirSync(path('home/user/empty'), { mode: 0o700 })
    const refused = await run(shell, '--root', root, bad)
    t.equal(refused.status, 1)
    t.match(refused.output, /\/etc\/full is a directory/)
    t.match(refused.output, /\/etc\/there\/kept cannot be made a directory/)
    t.match(refused.output, /\/home\/user\/way is a link that somebody other than root may have made/)
    t.match(refused.output, /\/home\/user\/moved has another owner or mode, and somebody other than root/)
    t.same([mode(path('home/user/moved')), mode(path('home/user/empty'))], ['700', '755'])
    t.same(readdirSync(outside), [])
    t.equal(mode(outside), was)
    t.equal(mode(path('etc/old2')), '755')
  })
}
