import { execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync
} from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { Tree } from '../image/initramfs-tree.js'
import { type Child, start } from '../support/child.js'
import { Daemon } from '../support/daemon.js'
import { requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'

/** The words of a process; '' where there is none any more. */
function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1')
  } catch {
    return ''
  }
}

// A shell in the directory of an image, for root on the controller. rules 9.13

requireRoot()
requirePrograms('busybox', 'unshare', 'script', 'slirp4netns')

const policy = 'usr/sbin/policy-rc.d'
const resolv = 'etc/resolv.conf'

t.test('svcd osimage shell', async t => {
  const directory = scratch(t)
  const daemon = await Daemon.start({ directory })
  t.teardown(() => daemon.stop())
  const client = daemon.client()
  let count = 0
  /** An image of busybox, changed by a script whose working directory it is. */
  const image = async (t: Test, change = '') => {
    const name = `image${++count}`
    const tree = join(directory, 'images', name)
    mkdirSync(dirname(tree), { recursive: true })
    renameSync(new Tree(t, 'none').path, tree)
    execFileSync('sh', ['-euc', `mkdir -p usr/sbin sbin; : >sbin/init; chmod 755 .\n${change}`], {
      cwd: tree
    })
    t.equal((await client.post(`/config/osimage/${name}`, {})).status, 201)
    const words = (program: string) => [
      ...[...program.split(' '), join(daemon.tree, 'bin/svcd'), 'osimage', 'shell', name],
      ...[
        '--config',
        join(daemon.tree, 'etc/svcd.ini'),
        '--set',
        `http.listen=${client.address}:${client.port}`
      ],
      ...['state', 'files'].flatMap(path => ['--set', `paths.${path}=${daemon.path(path)}`]),
      ...['--set', `image.directory=${daemon.path('images')}`]
    ]
    const open = (input?: string): Child => start('env', words('env'), input === undefined ? {} : { input })
    const shell = async (input: string) => open(input).ended
    const pack = () => client.get(`/config/osimage/${name}/_pack`)
    return { name, tree, open, shell, pack, words }
  }
  // One for all tests that need no other image: its hundreds of links take most of the time of a short test.
  const plain = await image(t)

  await t.test('programs find the network, and no package starts a service', async t => {
    const { tree, shell, pack } = plain
    const { code, stdout, stderr } = await shell(`
      /${policy} ssh start; echo "policy $?"
      cat /${resolv} | sed 's/^/resolv /'
      cat /proc/net/dev | sed 's/^/net /'
      echo "processes $(ls -d /proc/[0-9]* | wc -l)"
      id -u | sed 's/^/user /'
      echo "history $HISTFILE"
      sed 's/^/map /' /proc/self/uid_map
      ls -l /proc/self/fd | sed -n 's/^.* \\([0-9]* -> .*\\)$/fd \\1/p'
      echo new >/etc/new; chown 33:44 /etc/new; umount /${policy} 2>/dev/null || echo held
      exit 7`)
    t.equal(code, 7, stderr)
    const told = (word: string) =>
      stdout.split('\n').flatMap(line => (line.startsWith(`${word} `) ? [line.slice(word.length + 1)] : []))
    t.strictSame(told('policy'), ['101'])
    t.equal(told('resolv')[0], 'nameserver 10.0.2.3')
    t.strictSame(
      told('net').flatMap(line => /^ *(\w+):/.exec(line)?.[1] ?? []),
      ['lo', 'tap0']
    )
    t.ok(Number(told('processes')[0]) < 12, stdout)
    t.strictSame(told('user'), ['0'])
    t.strictSame(told('history'), ['/dev/null'])
    t.match(told('map').join(), /^ +0 +2147483648 +2147483647$/, 'it is nobody on the controller')
    t.strictSame(
      told('fd').filter(fd => !/^[0-3] ->| -> \/dev\/null$/.test(fd)),
      []
    )
    t.match(stdout, /^held$/m)
    t.match(stderr, /what is installed here stays/)
    t.equal(execFileSync('stat', ['-c', '%u %g', join(tree, 'etc/new')]).toString(), '33 44\n')
    for (const path of [policy, resolv]) t.notOk(existsSync(join(tree, path)), `${path} is not left`)
    t.equal((await pack()).status, 204)
  })

  // slirp4netns unmounts its root; mounts that are shared with the controller would go there too.
  await t.test('the mounts of the controller stay, those that are shared too', async t => {
    const { shell } = plain
    const place = join(directory, 'shared')
    mkdirSync(join(place, 'below'), { recursive: true })
    execFileSync('sh', ['-euc', 'mount --bind "$1" "$1"; mount --make-shared "$1"', 'sh', place])
    execFileSync('mount', ['-t', 'tmpfs', 'none', join(place, 'below')])
    t.teardown(() => execFileSync('umount', ['--recursive', '--lazy', place]))
    const mounts = () =>
      readFileSync('/proc/self/mounts', 'utf8')
        .split('\n')
        .filter(line => line.includes(` ${place}`)).length
    t.equal(mounts(), 2)
    t.equal((await shell('exit 0')).code, 0)
    t.equal(mounts(), 2)
  })

  // A program of the image that had the controller's loopback could take svcd's place there, and be asked
  // with an admin's token.
  await t.test('it reaches nobody on the loopback of the controller, and cannot listen there', async t => {
    const { shell } = plain
    const url = `${client.address}:${client.port}`
    const { stdout } = await shell(`
      for at in ${url} 10.0.2.2:${client.port}; do busybox wget -q -T 3 -O - http://$at/version && echo reached; done
      (busybox nc -l -p 9 -s 127.0.0.1 -w 1; echo "listens $?") 2>&1 | sed 's/^/end /'
      cat /proc/net/tcp | wc -l | sed 's/^/sockets /'`)
    t.notMatch(stdout, /reached/)
    t.match(stdout, /^sockets 1$/m, 'no socket of the controller is seen')
  })

  await t.test('what the image has of these stays', async t => {
    const { tree, shell } = await image(
      t,
      `printf '#!/bin/sh\\nexit 104\\n' >${policy}; chmod 755 ${policy}; echo own >${resolv}`
    )
    const { stdout } = await shell(`/${policy}; echo "policy $?"; grep -c own /${resolv}`)
    t.equal(stdout, 'policy 104\n0\n')
    t.equal(readFileSync(join(tree, policy), 'utf8'), '#!/bin/sh\nexit 104\n')
    t.equal(readFileSync(join(tree, resolv), 'utf8'), 'own\n')
  })

  await t.test('a policy that may not be run is none', async t => {
    const { tree, shell } = await image(t, `echo own >${policy}; chmod 644 ${policy}`)
    t.equal((await shell(`/${policy}; echo "policy $?"`)).stdout, 'policy 101\n')
    t.equal(readFileSync(join(tree, policy), 'utf8'), 'own\n')
  })

  for (const target of ['../run/systemd/resolve/stub-resolv.conf', '/run/NetworkManager/resolv.conf'])
    await t.test(`resolv.conf is a link, ${target}`, async t => {
      const { tree, shell } = await image(t, `ln -s ${target} ${resolv}`)
      t.match((await shell(`cat /${resolv}`)).stdout, /^nameserver 10\.0\.2\.3\n/)
      t.strictSame(readdirSync(join(tree, 'run')), [])
    })

  await t.test('links of a hostile image lead nowhere', async t => {
    const outside = scratch(t)
    const { shell } = await image(t, 'rm -r usr/sbin; mv etc etc.old')
    for (const [link, to] of [
      ['usr/sbin', outside],
      ['etc', outside],
      ['etc', '../../..']
    ] as const) {
      const made = await image(t, `rm -rf ${link}`)
      symlinkSync(to, join(made.tree, link))
      await made.shell('true')
      t.strictSame(readdirSync(outside), [], `${link} -> ${to}`)
    }
    const made = await image(t)
    const victim = join(outside, 'victim')
    writeFileSync(victim, 'x')
    for (const path of [policy, resolv]) symlinkSync(victim, join(made.tree, path))
    await made.shell(`echo evil >/${resolv}; echo evil >/${policy}`)
    t.equal(readFileSync(victim, 'utf8'), 'x')
    t.equal((await shell('echo runs')).stdout, 'runs\n', 'an image without these directories')
  })

  await t.test('while it is open, no pack and no other shell begins', async t => {
    const { name, tree, open, shell, pack } = plain
    const first = open()
    first.process.stdin?.write('echo begun\n')
    await first.says('begun')
    const refused = await pack()
    t.equal(refused.status, 503)
    t.match(refused.text, `a shell is open in its directory ${tree} (svcd osimage shell ${name})`)
    const clone = await client.post(`/config/osimage/${name}/_clone`, { newosimage: `${name}-copy` })
    t.equal(clone.status, 503)
    t.match(clone.text, `a shell is open in its directory ${tree} (svcd osimage shell ${name})`)
    const second = await shell('echo no')
    t.equal(second.code, 1)
    t.match(second.stderr, /is being packed, or has a shell open/)
    first.process.stdin?.end('exit\n')
    t.equal((await first.ended).code, 0)
    t.equal((await pack()).status, 204)
  })

  await t.test('killed, it leaves no process, and the next one takes away what it left', async t => {
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      const { tree, open, shell, pack } = plain
      const killed = open()
      killed.process.stdin?.write('sleep 98765 & echo begun $!; wait\n')
      await killed.says('begun')
      const sleeps = () => readdirSync('/proc').filter(pid => commandOf(pid) === 'sleep\x0098765\x00')
      await until(() => sleeps().length === 1)
      process.kill(killed.pid, signal)
      await killed.ended
      await until(() => sleeps().length === 0)
      t.equal(existsSync(join(tree, policy)), signal === 'SIGKILL', signal)
      t.equal((await shell('true')).code, 0)
      t.notOk(existsSync(join(tree, policy)))
      t.equal((await pack()).status, 204)
    }
  })

  await t.test('at a terminal it has another one, whose prompt names the image', async t => {
    const { words, name } = plain
    const line = words('env')
      .map(word => `'${word}'`)
      .join(' ')
    const { code, stdout } = await start('script', ['-qec', line, '/dev/null'], {
      input: 'echo "in $((1 + 1))"; exit 4\n'
    }).ended
    t.match(stdout, /in 2/)
    t.match(stdout, `(${name}) # `)
    t.equal(code, 4)
  })

  await t.test('it is refused where it cannot be', async t => {
    const { words } = plain
    const nobody = await start('setpriv', words('--reuid=65534 --clear-groups env').map(String), {
      input: ''
    }).ended
    t.equal(nobody.code, 1)
    t.match(nobody.stderr, /takes root on the controller: type sudo svcd osimage shell/)
    const other = await start(
      'env',
      words('env').map(word => (/^image\d+$/.test(word) ? 'none' : word)),
      { input: '' }
    ).ended
    t.equal(other.code, 1)
    t.match(other.stderr, /OS image none/)
  })
})
