import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { base64 } from '../support/install-data.js'
import { completed, failed, install, type Plan, unpacked, without } from './install.js'
import { everyCase, shells } from './installing-node.js'
import { packImage } from './packed-image.js'

const secret = (path: string, content = `secret of ${path}`) => ({
  name: 'x',
  path,
  content: base64(content)
})
const mode = (file: string) => (statSync(file).mode & 0o7777).toString(8)

for (const shell of shells) {
  // rules 5.5
  t.test(`secrets are placed inside the image with mode 0600, ${shell}`, async t => {
    const links = packImage({
      'etc/open.key': 'readable by all',
      'run/.keep': '',
      'var/run': '-> /run',
      'opt/up': '-> ../../../../../outside',
      outside: '-> /tmp',
      'etc/link.key': '-> /outside.key',
      'etc/directory.key': '-> /run',
      'etc/loop': '-> loop2',
      'etc/loop2': '-> loop'
    })
    const binary = Buffer.from([0, 1, 255, 10, 13, 39]).toString('base64')
    const done = await unpacked(t, {
      shell,
      answers: { '/files/rocky9.tar.gz': links },
      data: {
        secrets: [
          secret('/etc/open.key'),
          secret('/a/new/directory/key'),
          secret('/var/run/key'),
          secret('/opt/up/escape.key'),
          secret('/etc/link.key'),
          secret('/etc/../../../dots.key'),
          secret("/etc/it's a $(touch /pwned) key"),
          secret('/etc/directory.key'),
          { name: 'binary', path: '/etc/binary', content: binary }
        ]
      }
    })
    completed(t, done)
    const { machine } = done
    for (const path of [
      'etc/open.key',
      'a/new/directory/key',
      'dots.key',
      "etc/it's a $(touch /pwned) key"
    ]) {
      t.match(machine.read(path), /^secret of /, path)
      t.equal(mode(machine.image(path)), '600', path)
    }
    t.equal(mode(machine.image('a/new/directory')), '755')
    t.equal(machine.read('run/key'), 'secret of /var/run/key', 'a link means the image, not the initramfs')
    t.notOk(machine.has('run/key'))
    t.equal(machine.read('tmp/escape.key'), 'secret of /opt/up/escape.key')
    for (const path of ['etc/link.key', 'etc/directory.key']) {
      t.ok(lstatSync(machine.image(path)).isFile(), 'a link in the place of a secret is replaced')
    }
    t.equal(readFileSync(machine.image('etc/binary')).toString('base64'), binary)
    t.strictSame(readdirSync(join(machine.root, 'run')), [], 'nothing was written through a link')
    for (const path of ['outside.key', 'outside', 'tmp', 'pwned', 'dots.key'])
      t.notOk(machine.has(path), path)
  })

  if (everyCase(shell))
    t.test(`a link that goes round is no place for a secret, ${shell}`, async t => {
      const done = await unpacked(t, {
        shell,
        answers: { '/files/rocky9.tar.gz': packImage({ 'etc/loop': '-> loop2', 'etc/loop2': '-> loop' }) },
        data: { secrets: [secret('/etc/loop/key')] }
      })
      failed(t, done, 'secrets', /\/etc\/loop\/key is no place/)
    })

  t.test(`our block goes into the file that a link of the image means, ${shell}`, async t => {
    const links = packImage({
      'etc/hosts': '-> /etc/hosts.real',
      'etc/hosts.real': '10.9.9.9 license\n',
      'etc/chrony.conf': '-> ../opt/time/chrony.conf',
      'opt/time/chrony.conf': 'pool x\n'
    })
    const done = await install(t, { shell, answers: { '/files/rocky9.tar.gz': links } })
    completed(t, done)
    const { machine } = done
    t.ok(lstatSync(machine.image('etc/hosts')).isSymbolicLink())
    t.equal(
      machine.read('etc/hosts.real'),
      '10.9.9.9 license\n# svc begin\n127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' +
        '10.141.0.1 node001.cluster node001\n# svc end\n'
    )
    t.ok(lstatSync(machine.image('etc/chrony.conf')).isSymbolicLink())
    t.match(machine.read('opt/time/chrony.conf'), /^pool x\n# svc begin\nserver 10/)
    t.notOk(machine.has('etc/hosts.real'), 'nothing was written beside the image')
  })

  if (everyCase(shell))
    t.test(`a link to nothing: the file is made, with the lines of this machine, ${shell}`, async t => {
      const links = packImage({ 'etc/hosts': '-> ../run/made/hosts' })
      const done = await install(t, { shell, answers: { '/files/rocky9.tar.gz': links } })
      completed(t, done)
      t.match(
        done.machine.read('run/made/hosts'),
        /^# svc begin\n127\.0\.0\.1 localhost\n::1 localhost .*\n10\.141/
      )
    })

  // rules 5.5
  t.test(
    `a secret with an owner and a mode, and one whose owner the image does not know, ${shell}`,
    async t => {
      const passwd = 'root:x:0:0::/root:/bin/sh\nxmunge:x:7:7::/:/bin/sh\nmunge:x:64100:64101::/:/bin/sh\n'
      const files = {
        ...{
          'etc/passwd': passwd,
          'etc/group': 'root:x:0:\nmunge:x:64101:\n',
          'etc/munge': '-> ../opt/munge'
        },
        'opt/munge/.keep': ''
      }
      const chown = base64(`mount -t tmpfs image /sysroot
mkdir -p /sysroot/usr/bin
cp /usr/bin/busybox /sysroot/usr/bin/busybox
ln -s busybox /sysroot/usr/bin/chown
`)
      const munge = { name: 'munge', path: '/etc/munge/munge.key', content: base64('bytes') }
      const place = (secret_access: Record<string, string>, partscript = chown) =>
        unpacked(t, {
          shell,
          answers: { '/files/rocky9.tar.gz': packImage(files) },
          data: { partscript, secrets: [munge, secret('/etc/open.key')], secret_access }
        })
      const done = await place({ munge: '0400 munge munge' })
      completed(t, done)
      const of = (path: string) => {
        const { mode, uid, gid } = statSync(done.machine.image(path))
        return [(mode & 0o7777).toString(8), uid, gid]
      }
      t.same(of('opt/munge/munge.key'), ['400', 64100, 64101])
      t.same(of('etc/open.key'), ['600', 0, 0])
      if (!everyCase(shell)) return
      const numbers = await place({ munge: '2640 12 13' })
      t.same([numbers.machine.read('opt/munge/munge.key'), numbers.run.status], ['bytes', 0])
      const unknown = await place({ munge: '0400 nobody 0' })
      failed(t, unknown, 'secrets', /cannot write \/etc\/munge\/munge\.key in the image: .*nobody/)
      t.notOk(
        unknown.machine.has('opt/munge/munge.key') || unknown.machine.has('opt/munge/munge.key.svc-new')
      )
      const without = await place({ munge: '0400 munge 0' }, base64('mount -t tmpfs image /sysroot\n'))
      failed(t, without, 'secrets', /the image holds no chown/)
    }
  )

  if (everyCase(shell))
    t.test(`a secret that does not fit leaves nothing of itself, ${shell}`, async t => {
      const small = { partscript: base64('mount -t tmpfs -o size=1m small /sysroot') }
      const data = { ...small, secrets: [secret('/etc/key', 'x'.repeat(2_000_000))] }
      const done = await unpacked(t, { shell, data })
      failed(t, done, 'secrets', /cannot write \/etc\/key in the image/)
      t.strictSame(
        readdirSync(done.machine.image('etc')).filter(name => name.startsWith('key')),
        []
      )
    })

  t.test(`roles become units of the image, ${shell}`, async t => {
    const role = (target: string, script: string) => JSON.stringify({ target, script: base64(script) })
    const done = await unpacked(t, {
      shell,
      data: { roles: ['ntp', '', 'early.disk', 'plain'] },
      answers: {
        '/boot/roles/ntp': role('multi-user.target', '#!/bin/bash\necho ntp\n'),
        '/boot/roles/early.disk': JSON.stringify(JSON.parse(role('sysinit.target', '#!/bin/sh\n')), null, 2),
        '/boot/roles/plain': role('graphical.target', 'echo plain\n')
      }
    })
    completed(t, done)
    const { machine } = done
    t.equal(machine.read('usr/local/lib/svc/roles/ntp'), '#!/bin/bash\necho ntp\n')
    t.equal(mode(machine.image('usr/local/lib/svc/roles/ntp')), '755')
    const link = machine.image('etc/systemd/system/multi-user.target.wants/svc-role-ntp.service')
    t.equal(readlinkSync(link), '../svc-role-ntp.service')
    t.match(
      machine.read('etc/systemd/system/svc-role-ntp.service'),
      /\nExecStart=\/usr\/local\/lib\/svc\/roles\/ntp\n/
    )
    t.match(machine.read('etc/systemd/system/svc-role-ntp.service'), /After=network-online.target/)
    t.notMatch(machine.read('etc/systemd/system/svc-role-early.disk.service'), /network/)
    t.match(machine.read('etc/systemd/system/svc-role-plain.service'), /\nExecStart=\/bin\/sh \/usr/)
  })
}

t.test('what is no role is refused', async t => {
  const script = base64('true')
  const rolesAlone = (plan: Plan) => without(plan, 'inventory', 'unpack', 'network')
  for (const [answer, reason] of [
    ['{"target":"multi-user.target"}', /target and a base64 script/],
    [JSON.stringify({ target: '../../x', script }), /target and a base64 script/],
    [JSON.stringify({ target: 'x.target', script: 'a"b' }), /target and a base64 script/],
    ['<html>', /target and a base64 script/]
  ] as const) {
    const plan: Plan = { shell: 'ash', data: { roles: ['r'] }, answers: { '/boot/roles/r': answer } }
    const done = await install(t, rolesAlone(plan))
    failed(t, done, 'roles', reason)
    t.notOk(existsSync(done.machine.image('etc/systemd/system/svc-role-r.service')))
  }
  for (const name of ['../x', 'a b', '$(touch /pwned)']) {
    const done = await install(t, rolesAlone({ shell: 'ash', data: { roles: [name] } }))
    failed(t, done, 'roles', /is not a role name/)
    t.strictSame(done.controller.gets(), ['/files/rocky9.tar.gz'])
  }
})

// rules 4.26
t.test('the system tells svcd that it is up, and from which packed image it is', async t => {
  const done = await install(t, { shell: 'ash', data: { insecure: true } })
  completed(t, done)
  const { machine } = done
  const unit = 'etc/systemd/system/svc-running.service'
  t.match(machine.read(unit), /\nExecStart=\/bin\/sh \/etc\/svc\/running\nRestart=on-failure\n/)
  t.equal(
    readlinkSync(machine.image('etc/systemd/system/multi-user.target.wants/svc-running.service')),
    '../svc-running.service'
  )
  const url = `${done.controller.place.url}/boot/running/node001/rocky9.tar.gz`
  t.match(machine.read('etc/svc/running'), `exec curl -q -g -s -S -f -k --max-time 60 -o /dev/null '${url}'`)
  t.equal(mode(machine.image('etc/svc/running')), '755')
})
