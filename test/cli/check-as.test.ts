import { chmodSync, chownSync, copyFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { builtTree, svcd } from '../support/built-tree.js'
import { makeCertificate } from '../support/certificate.js'
import { requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

requireRoot()
requirePrograms('setpriv')

const nobody = 65534

// rules 7.7
t.test('root’s check tells what the user of the unit may not read or write', async t => {
  const directory = scratch(t)
  const at = (...names: string[]) => join(directory, ...names)
  const tree = builtTree(at('svcd'))
  const ini = at('svcd.ini')
  const { key, certificate } = await makeCertificate(directory, 'tls')
  const lines = [
    ...[
      '[http]',
      `tls_certificate = ${certificate}`,
      `tls_key = ${key}`,
      '[ssh]',
      `key = ${at('ssh')}`,
      '[paths]'
    ],
    ...[`state = ${at('state')}`, `files = ${at('files')}`, `templates = ${at('svcd/templates')}`],
    ...['[image]', `directory = ${at('images')}`]
  ]
  writeFileSync(ini, lines.join('\n'))
  for (const name of ['state', 'files', 'images', 'state/node']) mkdirSync(at(name), { mode: 0o700 })
  copyFileSync(key, at('ssh'))
  chmodSync(ini, 0o640)
  const check = () => svcd(tree, ['check', '--config', ini])
  const unit = (text: string) => {
    mkdirSync(at('systemd/system'), { recursive: true })
    writeFileSync(at('systemd/system/svcd.service'), text)
  }
  const service = (user: string, file = ini) =>
    unit(`[Service]\nUser=${user}\nGroup=x\nExecStart=/usr/bin/svcd serve --config ${file}\n`)
  service('nobody', '/etc/svcd/svcd.ini')
  t.match(await check(), { code: 0, stdout: 'ok\n' }, 'a unit with another ini is none of this one’s')
  service('nobody')
  const note = `note: this is what user nobody sees, as whom ${at('systemd/system/svcd.service')} runs svcd\n`
  t.match(await check(), {
    code: 1,
    stderr: new RegExp(`^${note}.*svcd\\.ini: cannot be read: EACCES.*root:svcd, mode 0640`)
  })
  chownSync(ini, 0, nobody)
  const { stderr, code, stdout } = await check()
  t.strictSame([code, stdout], [1, ''])
  for (const line of [
    `${at('state')}: belongs to user 0, and svcd runs as user 65534: stop svcd on this machine and type, as root: sh `,
    `${ini}:8: [paths] files: user nobody may not read and write ${at('files')} (EACCES); type, as root, while svcd is stopped: sh `,
    `${ini}:11: [image] directory: user nobody may not enter ${at('images')} (EACCES); `,
    `${ini}:5: [ssh] key: user nobody may not read ${at('ssh')} (EACCES); type: chown nobody ${at('ssh')}`,
    `${ini}:3: [http] tls_key: ${key} may not be read by the user of svcd (EACCES); give it the group svcd: chgrp svcd ${key} && chmod 0640 ${key}`
  ])
    t.ok(stderr.includes(line), `${line}\n${stderr}`)

  for (const name of ['state', 'files', 'state/node', 'ssh']) chownSync(at(name), nobody, nobody)
  for (const path of [key, at('images')]) chownSync(path, 0, nobody)
  chmodSync(key, 0o640)
  chmodSync(at('images'), 0o710)
  const well = await check()
  t.match(well, { code: 0, stdout: 'ok\n' })
  t.ok(well.stderr.startsWith(note))
  chmodSync(at('state'), 0o500)
  t.match(await check(), {
    code: 1,
    stderr: `[paths] state: user nobody may not read and write ${at('state')} (EACCES); type, as root, while svcd is stopped: sh `
  })
  chmodSync(at('state'), 0o700)
  writeFileSync(at('state/admin-password'), 'x\n', { mode: 0o600 })
  const command = `hand-over.sh ${at('state')} ${at('files')} ${at('images')} nobody\n`
  t.ok((await check()).stderr.includes(command), 'a file of root’s: the command is whole')
  chownSync(at('state/admin-password'), nobody, nobody)
  const another = at('another.ini')
  copyFileSync(ini, another)
  const tried = await svcd(tree, ['check', '--config', another])
  t.match(tried, { code: 0, stdout: 'ok\n' }, 'root tries an ini that the unit does not have')
  t.match(tried.stderr, /^note: this is what root sees; \S+ belongs to user nobody, who may see less$/m)
  t.notMatch(tried.stderr, /hand-over|warning: \S+ belongs/)
  service('nobody-such')
  t.match(await check(), {
    code: 1,
    stderr: 'names user nobody-such, whom this machine does not know; type: systemd-sysusers'
  })
})
