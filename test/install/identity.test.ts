import { execFileSync } from 'node:child_process'
import { existsSync, lstatSync, readdirSync, statSync } from 'node:fs'
import t from 'tap'
import { loadConfig } from '../../lib/config/load.js'
import { base64 } from '../support/install-data.js'
import { checkout, requirePrograms } from '../support/programs.js'
import { completed, install, type Plan } from './install.js'
import { allShells, everyCase } from './installing-node.js'
import { packImage } from './packed-image.js'

requirePrograms('ssh-keygen', 'ldd')

const { identity } = loadConfig(`${checkout}/etc/svcd.ini`, []).image

/** What ssh-keygen needs to run inside an image: put there before the image is unpacked. */
const partscript = (() => {
  const libraries = execFileSync('ldd', ['/usr/bin/ssh-keygen'], { encoding: 'utf8' }).match(/\/\S+/g) ?? []
  const copies = ['/usr/bin/ssh-keygen', ...libraries].map(
    file => `mkdir -p /sysroot${file.replace(/\/[^/]*$/, '')}; cp -L ${file} /sysroot${file}`
  )
  return base64(`mount -t tmpfs image /sysroot\n${copies.join('\n')}\n`)
})()

const image = packImage({
  'etc/passwd': 'root:x:0:0:root:/root:/bin/sh\n',
  'etc/machine-id': '0123456789abcdef0123456789abcdef\n',
  'var/lib/dbus/machine-id': '-> /etc/machine-id',
  'etc/ssh/ssh_host_rsa_key': 'of the image',
  'etc/ssh/ssh_host_rsa_key.pub': 'of the image',
  'etc/ssh/sshd_config': 'kept',
  'var/lib/systemd/random-seed': 'seed',
  'var/lib/systemd/credential.secret': 'secret',
  'usr/sbin/sshd': '#!/bin/sh\n'
})
const answers = { '/files/rocky9.tar.gz': image }

// rules 4.22
for (const shell of allShells) {
  t.test(`an image whose first boot is still to come, and links out of it, ${shell}`, async t => {
    const strange = packImage({
      'etc/machine-id': 'uninitialized\n',
      'etc/ssh/ssh_host_rsa_key': '-> /../../kept',
      'var/lib/dbus': '-> /../../../outside'
    })
    const done = await install(t, {
      shell,
      answers: { '/files/rocky9.tar.gz': strange },
      data: { identity },
      prepare: machine => machine.write('outside/machine-id', 'not of the image')
    })
    completed(t, done)
    t.equal(done.machine.read('etc/machine-id'), 'uninitialized\n')
    t.ok(lstatSync(done.machine.image('etc/ssh/ssh_host_rsa_key')).isSymbolicLink())
    t.equal(done.machine.text('outside/machine-id'), 'not of the image')
  })

  // RSA keys take long to make, and no shell has a part in that.
  if (!everyCase(shell) && shell !== 'bash') continue
  t.test(`each node has an identity of its own, ${shell}`, async t => {
    const plan: Plan = { shell, answers, data: { identity, partscript } }
    const nodes = [await install(t, plan), ...(shell === 'ash' ? [await install(t, plan)] : [])]
    for (const node of nodes) {
      completed(t, node)
      const { machine } = node
      t.equal(machine.read('etc/machine-id'), '', 'systemd makes one')
      t.ok(lstatSync(machine.image('var/lib/dbus/machine-id')).isSymbolicLink())
      t.strictSame(readdirSync(machine.image('var/lib/systemd')), [])
      t.equal(machine.read('etc/ssh/sshd_config'), 'kept')
      t.equal(statSync(machine.image('etc/ssh/ssh_host_ed25519_key')).mode & 0o777, 0o600)
      t.notMatch(node.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
    }
    for (const type of ['ed25519', 'rsa']) {
      const [one, other] = nodes.map(({ machine }) => machine.read(`etc/ssh/ssh_host_${type}_key.pub`))
      t.match(one, /^ssh-/)
      if (shell === 'ash') t.not(one, other, 'no two nodes share a host key')
    }
  })

  if (!everyCase(shell)) continue
  t.test(`what is off the list stays; host keys that are there are not added to, ${shell}`, async t => {
    const secrets = [{ name: 'k', path: '/etc/ssh/ssh_host_ed25519_key', content: base64('of the node') }]
    const keep = ['/etc/ssh/ssh_host_*', '/nowhere/x', '/os-release']
    const done = await install(t, { shell, answers, data: { identity: keep, partscript, secrets } })
    completed(t, done)
    const { machine, controller } = done
    t.equal(machine.read('etc/machine-id').length, 33)
    t.equal(machine.read('var/lib/systemd/random-seed'), 'seed')
    t.strictSame(readdirSync(machine.image('etc/ssh')).sort(), ['ssh_host_ed25519_key', 'sshd_config'])
    t.equal(machine.read('etc/ssh/ssh_host_ed25519_key'), 'of the node', 'a secret is not taken away')
    t.notOk(controller.states.includes('installer.hostkeys'))
    const none = await install(t, { shell, answers, data: { partscript } })
    completed(t, none)
    t.equal(none.machine.read('etc/ssh/ssh_host_rsa_key'), 'of the image')
    t.notOk(existsSync(none.machine.image('etc/ssh/ssh_host_ed25519_key')))
  })

  t.test(`host keys that cannot be made are a warning, and the installation goes on, ${shell}`, async t => {
    const unmountable = packImage({ 'usr/sbin/sshd': '#!/bin/sh\n', run: '-> /var/run', 'var/run/x': '' })
    const broken = packImage({
      'usr/sbin/sshd': '#!/bin/sh\n',
      'usr/bin/ssh-keygen': '#!/bin/sh\n',
      'bin/sh': '#!/nowhere\n'
    })
    for (const [packed, says] of [
      [
        unmountable,
        /cannot mount \/run in the image.*warning: ssh-keygen cannot run in the image: its ssh server/s
      ],
      [broken, /warning: ssh-keygen failed in the image: its ssh server has no key/]
    ] as const) {
      const data = { identity, ...(packed === unmountable ? { partscript } : {}) }
      const done = await install(t, { shell, answers: { '/files/rocky9.tar.gz': packed }, data })
      completed(t, done)
      t.ok(done.controller.states.includes('installer.hostkeys'))
      t.ok(says.test(done.run.output), 'warned')
      t.notMatch(done.run.mounts, / \/sysroot\/(dev|proc|sys|run)/)
      t.notOk(existsSync(done.machine.image('etc/ssh/ssh_host_ed25519_key')))
    }
  })
}
