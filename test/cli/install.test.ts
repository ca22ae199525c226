import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  unlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { keys } from '../../lib/config/keys.js'
import { loadConfig } from '../../lib/config/load.js'
import { builtTree, svcd } from '../support/built-tree.js'
import { start } from '../support/child.js'
import { checkout } from '../support/programs.js'

const base = t.testdir({ source: {}, staged: {} })
const source = builtTree(join(base, 'source'))
const staged = join(base, 'staged')
const install = (env: Record<string, string> = { DESTDIR: staged }) =>
  start('sh', [join(source, 'build', 'install.sh')], { input: '', env }).ended
const inStage = (...path: string[]) => join(staged, ...path)

t.test('stages code, command, ini, templates, state and unit', async t => {
  const { code, stdout, stderr } = await install()
  t.equal(code, 0, stderr)
  t.match(
    stdout,
    /^next: set \[http\] listen and .* in \/etc\/svcd\/svcd\.ini, type svcd check, then\n.*enable --now svcd/m
  )
  t.equal(readlinkSync(inStage('usr/bin/svcd')), '../lib/svcd/bin/svcd')
  t.equal(readlinkSync(inStage('usr/bin/svcctl')), '../lib/svcd/bin/svcctl')
  t.equal(readlinkSync(inStage('usr/bin/svcd-export')), '../lib/svcd/libexec/svcd-export')
  const completion = inStage('usr/share/bash-completion/completions/svcctl')
  t.match(readFileSync(completion, 'utf8'), /^complete -F _svcctl svcctl svcd$/m)
  t.equal(readlinkSync(inStage('usr/share/bash-completion/completions/svcd')), 'svcctl')
  for (const [page, words] of [
    ['man8/svcd.8', ['passwd USER [\\-\\-role ROLE]', '\\-\\-config FILE']],
    [
      'man5/svcd.ini.5',
      Object.entries(keys).flatMap(([section, of]) => [`[${section}]`, ...Object.keys(of)])
    ],
    ['man1/svcctl.1', ['power SET', '\\-o, \\-\\-output FORMAT']]
  ] as const) {
    const text = readFileSync(inStage('usr/share/man', page), 'utf8')
    for (const word of words) t.ok(text.includes(word), `${page}: ${word}`)
  }
  t.equal(statSync(inStage('var/lib/svcd')).mode & 0o7777, 0o1771)
  for (const file of ['sysusers.d/svcd.conf', 'tmpfiles.d/svcd.conf'])
    t.ok(existsSync(inStage('usr/lib', file)), file)
  t.equal(statSync(inStage('etc/svcd/svcd.ini')).mode & 0o777, 0o600)
  for (const directory of ['etc/svcd/roles', 'etc/svcd/scripts', 'usr/lib/svcd/node_modules'])
    t.ok(statSync(inStage(directory)).isDirectory(), directory)
  // The second is a link into the node's side.
  for (const template of ['boot/templ_boot_ipxe.cfg', 'install/lib/http.sh'])
    for (const directory of ['etc/svcd/templates', 'usr/lib/svcd/templates'])
      t.equal(
        readFileSync(inStage(directory, template), 'utf8'),
        readFileSync(join(checkout, 'templates', template), 'utf8')
      )
  t.ok(lstatSync(inStage('etc/svcd/templates/install/lib/http.sh')).isFile())
  for (const file of ['dracut/90svc/module-setup.sh', 'initramfs-tools/hooks/svc', 'libexec/enter-image.sh'])
    t.equal(
      readFileSync(inStage('usr/lib/svcd', file), 'utf8'),
      readFileSync(join(checkout, file), 'utf8'),
      `${file}: the node's side`
    )
  for (const [shipped, file] of [
    ['etc/nginx-svcd.conf', 'lib/svcd/examples/nginx-svcd.conf'],
    ['etc/keepalived-svcd.conf', 'lib/svcd/examples/keepalived-svcd.conf'],
    ['etc/opentracker.conf', 'lib/svcd/examples/opentracker.conf'],
    ['systemd/opentracker.service.d/svcd.conf', 'lib/svcd/examples/opentracker.service.d/svcd.conf'],
    ['docs/torrent.md', 'share/doc/svcd/docs/torrent.md']
  ] as const)
    t.equal(
      readFileSync(inStage('usr', file), 'utf8'),
      readFileSync(join(checkout, shipped), 'utf8'),
      shipped
    )
  t.notOk(existsSync(inStage('usr/share/doc/svcd/docs/api-intro.md')), 'a part of api.md')
  const development = ['typescript', 'tap', '@biomejs', '@types']
  t.notOk(
    development.some(name => existsSync(inStage('usr/lib/svcd/node_modules', name))),
    'no development packages'
  )
})

// rules 7.1
t.test('the installed ini has absolute paths, none of them in the staging directory', async t => {
  const config = loadConfig(inStage('etc/svcd/svcd.ini'), [])
  t.strictSame(config.paths, {
    state: '/var/lib/svcd',
    templates: '/etc/svcd/templates',
    files: '/var/lib/svcd/files',
    roles: '/etc/svcd/roles',
    scripts: '/etc/svcd/scripts'
  })
  t.equal(config.image.directory, '/var/lib/svcd/images')
})

t.test('the installed command runs without the checkout', async t => {
  const { stdout, code } = await svcd(inStage('usr'), ['version'])
  t.equal(code, 0)
  t.match(stdout, /^svcd .* commit baked$/m)
  const state = join(base, 'state')
  const ini = ['--config', inStage('etc/svcd/svcd.ini')]
  const settings = [
    `paths.state=${state}`,
    `paths.files=${state}/files`,
    `paths.templates=${inStage('etc/svcd/templates')}`
  ]
  const args = [...ini, ...settings.flatMap(setting => ['--set', setting])]
  const check = await svcd(inStage('usr'), ['check', ...args])
  t.equal(check.code, 0, check.stderr)
  const {
    says,
    process: child,
    ended
  } = start(inStage('usr/bin/svcd'), ['serve', ...args, '--set', 'http.listen=127.0.0.1:0'])
  await says('/token')
  child.kill('SIGTERM')
  t.equal((await ended).code, 0)
})

const units = [
  ...['svcd.service', 'svcd-helper.service', 'svcd-helper.socket'],
  ...['svcd-export@.service', 'svcd-export@.timer']
]

t.test('the units pass systemd-analyze verify, without a word', async t => {
  const read = (name: string) => readFileSync(inStage('usr/lib/systemd/system', name), 'utf8')
  t.match(read('svcd.service'), /^ExecStart=\/usr\/bin\/svcd serve --config \/etc\/svcd\/svcd\.ini$/m)
  t.match(read('svcd-helper.service'), /^ExecStart=\/usr\/bin\/svcd helper --config \/etc\/svcd\/svcd\.ini$/m)
  // systemd stops in the reverse order: svcd ends what it has ordered, then its helper ends.
  t.match(read('svcd-helper.service'), /^PartOf=svcd\.service$[^[]*^Before=svcd\.service$/m)
  // systemd finds a drop-in by the beginning of the unit's name: this one is made at each rehearsal.
  const rehearsal = read('svcd-rehearsal-.service.d/svcd.conf')
  for (const line of [
    ...['BindsTo=svcd-helper.service', 'PrivateNetwork=yes', 'NoNewPrivileges=yes', 'TasksMax=256'],
    ...['TemporaryFileSystem=/var/lib/svcd:ro', 'BindPaths=-/var/lib/svcd/rehearsal', 'ProtectSystem=strict'],
    ...['DevicePolicy=closed', 'DeviceAllow=/dev/kvm rw', 'SystemCallFilter=@system-service seccomp'],
    ...['CapabilityBoundingSet=CAP_NET_ADMIN CAP_SETGID CAP_SETPCAP CAP_SETUID', 'MemoryMax=75%']
  ])
    t.ok(rehearsal.split('\n').includes(line), line)
  t.notMatch(rehearsal, /^MemoryDenyWriteExecute|^PrivateDevices/m, 'node compiles, and KVM is a device')
  const made = join(base, 'svcd-rehearsal-1.service')
  writeFileSync(made, rehearsal.replace('[Service]', '[Service]\nExecStart=/bin/true'))
  // verify looks for the program, which is staged here.
  const files = units.map(name => join(base, name))
  for (const [i, name] of units.entries())
    writeFileSync(files[i] ?? '', read(name).replace('ExecStart=/usr/', `ExecStart=${inStage('usr/')}`))
  const verify = () => start('systemd-analyze', ['verify', '--man=no', ...files, made], { input: '' }).ended
  const { code, stdout, stderr } = await verify()
  t.equal(code, 0)
  t.equal(stderr + stdout, '')
  writeFileSync(files[0] ?? '', `${read('svcd.service')}\nMemoryMaximum=1\n`)
  t.not((await verify()).stderr, '', 'verify would have said something')
})

// rules 11.10
t.test('the daemon’s unit has no power, and the figures are those of the documents', async t => {
  const figures = readFileSync(join(checkout, 'docs/security.md'), 'utf8')
  for (const name of ['svcd.service', 'svcd-helper.service']) {
    const file = join(checkout, 'systemd', name)
    const words = ['security', '--offline=yes', '--no-pager', file]
    const { stdout } = await start('systemd-analyze', words, { input: '' }).ended
    const [, figure = ''] = /Overall exposure level for \S+: (\d+\.\d)/.exec(stdout) ?? []
    t.match(figures, `| \`${name}\` | ${figure} |`)
    t.ok(Number(figure) < (name === 'svcd.service' ? 2 : 3.2), figure)
  }
  // The services of ssh and of rehearsals have drop-ins alone: systemd makes their units itself.
  for (const [name, rest, user, most] of [
    ['svcd-ssh-', '<digits>-<number>', 'svcd-ssh', 2],
    ['svcd-rehearsal-', '<digits>', 'root', 2.4]
  ] as const) {
    const file = join(base, `${name}1.service`)
    const dropIn = readFileSync(inStage(`usr/lib/systemd/system/${name}.service.d/svcd.conf`), 'utf8')
    const more = `[Service]\nUser=${user}\nExecStart=/bin/true`
    writeFileSync(file, dropIn.replace('[Service]', more))
    const words = ['security', '--offline=yes', '--no-pager', file]
    const rated = await start('systemd-analyze', words, { input: '' }).ended
    const [, exposure = ''] = /Overall exposure level for \S+: (\d+\.\d)/.exec(rated.stdout) ?? []
    t.match(figures, `| \`${name}${rest}.service\` | ${exposure} |`)
    t.ok(Number(exposure) < most, exposure)
  }
  const helper = readFileSync(join(checkout, 'systemd/svcd-helper.service'), 'utf8')
  t.match(helper, /^DevicePolicy=closed\nDeviceAllow=block-\* m\nDeviceAllow=char-\* m\n(?!DeviceAllow)/m)
  t.match(helper, /^Environment=SVCD_SSH_USER=svcd-ssh SVCD_SSH_UNIT=svcd-ssh$/m)
  for (const set of ['PrivateNetwork=yes', 'RestrictAddressFamilies=AF_UNIX']) t.match(helper, `\n${set}\n`)
  const daemon = readFileSync(join(checkout, 'systemd/svcd.service'), 'utf8')
  t.match(daemon, /^User=svcd$/m)
  t.match(daemon, /^CapabilityBoundingSet=$/m)
})

/**
 * Leaves of the source's packages only those that its programs load while they install: to copy all of them
 * again is most of the work of an installation.
 */
function lightenPackages(): void {
  const packages = join(source, 'node_modules')
  const installed = inStage('usr/lib/svcd/node_modules')
  // It is a link to the packages of this checkout.
  unlinkSync(packages)
  for (const name of readdirSync(installed))
    for (const path of name.startsWith('@')
      ? readdirSync(join(installed, name)).map(of => join(name, of))
      : [name])
      if (/^(ini|ipaddr\.js|jsonc-parser|signal-exit|write-file-atomic|imurmurhash)$/.test(path))
        cpSync(join(installed, path), join(packages, path), { recursive: true })
      else mkdirSync(join(packages, path), { recursive: true })
}

t.test('a second installation renews what is ours and keeps what the admin edited', async t => {
  lightenPackages()
  const edited = inStage('etc/svcd/templates/boot/templ_boot_ipxe.cfg')
  const untouched = inStage('etc/svcd/templates/boot/templ_boot_disk.cfg')
  const ini = inStage('etc/svcd/svcd.ini')
  appendFileSync(edited, '# ours\n')
  appendFileSync(ini, '# ours\n')
  writeFileSync(inStage('usr/lib/svcd/dist/stale.js'), '')
  for (const name of ['templ_boot_ipxe.cfg', 'templ_boot_disk.cfg'])
    appendFileSync(join(source, 'templates/boot', name), '# new version\n')
  for (const round of ['an upgrade', 'the same again']) {
    const { code, stdout } = await install()
    t.equal(code, 0, round)
    t.match(
      stdout,
      `kept as edited: ${edited} (shipped: ${inStage('usr/lib/svcd/templates/boot/templ_boot_ipxe.cfg')})`
    )
    t.match(stdout, `kept: ${ini}`)
    t.match(stdout, /^next: systemctl daemon-reload, and systemctl start svcd$/m)
    t.match(readFileSync(edited, 'utf8'), /# ours\n$/)
    t.match(readFileSync(untouched, 'utf8'), /# new version\n$/)
    t.match(readFileSync(ini, 'utf8'), /# ours\n$/)
  }
  t.notOk(existsSync(inStage('usr/lib/svcd/dist/stale.js')))
})

t.test('nothing is installed while a daemon holds the state', async t => {
  const stale = inStage('usr/lib/svcd/dist/stale.js')
  writeFileSync(stale, '')
  const held = start('flock', [inStage('var/lib/svcd'), 'sh', '-c', 'echo held; cat'])
  t.teardown(() => held.kill())
  await held.says('held')
  const { code, stderr } = await install()
  t.equal(code, 1)
  t.match(
    stderr,
    `svcd is running on ${inStage('var/lib/svcd')}: type "systemctl stop svcd", then install again`
  )
  t.ok(existsSync(stale), 'nothing is changed')
})

t.test('another prefix', async t => {
  const other = join(base, 'other')
  t.equal((await install({ DESTDIR: other, PREFIX: '/usr/local' })).code, 0)
  t.match(
    readFileSync(join(other, 'usr/local/lib/systemd/system/svcd.service'), 'utf8'),
    /^ExecStart=\/usr\/local\/bin\/svcd serve --config \/etc\/svcd\/svcd\.ini$/m
  )
  t.equal((await svcd(join(other, 'usr/local'), ['version'])).code, 0)
})

t.test('an unbuilt checkout installs nothing', async t => {
  const bare = t.testdir({ build: {}, staged: {} })
  writeFileSync(join(bare, 'build/install.sh'), readFileSync(join(checkout, 'build/install.sh')))
  const args = [join(bare, 'build/install.sh')]
  const { code, stderr } = await start('sh', args, { input: '', env: { DESTDIR: join(bare, 'staged') } })
    .ended
  t.equal(code, 1)
  t.match(stderr, 'svcd is not built: type "make build" first\n')
  t.notOk(existsSync(join(bare, 'staged/usr')))
})

// rules 6.4
t.test('the commit that the build bakes in', async t => {
  const bare = t.testdir({ build: {}, dist: {} })
  writeFileSync(join(bare, 'build/commit.mjs'), readFileSync(join(checkout, 'build/commit.mjs')))
  const bake = () => {
    execFileSync('node', [join(bare, 'build/commit.mjs')])
    return readFileSync(join(bare, 'dist/commit'), 'utf8').trim()
  }
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.org', '-C', bare, ...args], {
      encoding: 'utf8'
    })
  t.equal(bake(), 'unknown', 'this directory is inside a repository that is not its own')
  git('init', '-q')
  writeFileSync(join(bare, '.gitignore'), 'dist/\n')
  t.equal(bake(), 'unknown', 'no commit yet')
  git('add', '.')
  git('commit', '-q', '-m', 'first')
  t.equal(bake(), git('rev-parse', 'HEAD').trim())
  appendFileSync(join(bare, '.gitignore'), 'x\n')
  t.equal(bake(), `${git('rev-parse', 'HEAD').trim()}-dirty`)
})
