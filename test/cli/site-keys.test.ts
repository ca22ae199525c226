import { copyFileSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { isBackedUp } from '../../lib/backup/state-names.js'
import { siteKeys } from '../../lib/cli/site-keys.js'
import { beginning } from '../image/imaging.js'
import { small } from '../image/small-tree.js'
import { debianKernel } from '../support/kernel.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

const configOf = (state: string) =>
  ({ paths: { state }, controller: { name: 'head' } }) as unknown as Parameters<typeof siteKeys>[0]

// rules 15.14
t.test('the key of a site is made once, signs, and is exported for machines to enrol', async t => {
  const directory = scratch(t)
  const keys = (...words: string[]) => siteKeys(configOf(directory), ['secureboot', ...words])
  await t.rejects(keys('show'), /has no key of the site for Secure Boot: type svcd keys secureboot make/)
  t.match(await keys('make'), /CN=Secure Boot of head\nvalid to .*\nSHA-256 [0-9A-F:]{95}\n/)
  for (const name of ['secureboot.key', 'secureboot.crt']) {
    t.equal(statSync(join(directory, name)).mode & 0o777, 0o600, name)
    t.ok(isBackedUp(name), `a backup has ${name}`)
  }
  const key = readFileSync(join(directory, 'secureboot.key'))
  await t.rejects(keys('make'), /secureboot\.key is there already, .* it is not replaced/)
  t.same(readFileSync(join(directory, 'secureboot.key')), key)
  const certificate = join(directory, 'secureboot.crt')

  const kernel = join(directory, 'kernel')
  copyFileSync((await debianKernel()).image, kernel)
  await t.rejects(output('sbverify', ['--cert', certificate, kernel]), 'it is not signed by the site')
  t.equal(await keys('sign', kernel), `${kernel}.signed\n`)
  t.match(await output('sbverify', ['--cert', certificate, `${kernel}.signed`]), /Signature verification OK/)
  t.match(await output('sbverify', ['--list', `${kernel}.signed`]), /Debian/, "its maker's stays")
  await t.rejects(keys('sign', certificate), /sbsign failed/)

  const out = join(directory, 'out')
  mkdirSync(out)
  t.equal((await keys('export', out)).split('\n').length, 7)
  t.match(
    await output('openssl', ['x509', '-inform', 'DER', '-in', join(out, 'site.cer'), '-noout', '-subject']),
    /head/
  )
  t.match(await output('sig-list-to-certs', [join(out, 'site.esl'), join(out, 'again')]), /X509 Header/)
  for (const name of ['db', 'KEK', 'PK']) t.ok(statSync(join(out, `${name}.auth`)).size > 1000, name)
})

// rules 15.14
t.test('other words are refused', async t => {
  for (const words of [
    [],
    ['secureboot'],
    ['tls', 'make'],
    ['secureboot', 'make', 'x'],
    ['secureboot', 'sign']
  ])
    await t.rejects(
      siteKeys(configOf('/nowhere'), words),
      { message: /^keys takes secureboot/ },
      words.join(' ')
    )
})

// rules 15.14
t.test('kernels of packs are signed by the site where the ini says so', async t => {
  const { c, tree, image, pack, ended } = await beginning(t, small, 'image.sign_kernels=yes')
  copyFileSync((await debianKernel()).image, join(tree, 'boot/vmlinuz-6.1.0-10'))
  t.equal((await pack()).status, 503)
  t.match((await ended('pack')).message, /\[image\] sign_kernels: .* type svcd keys secureboot make/)
  t.equal((await image()).kernelfile, null, 'nothing was packed')
  await siteKeys(configOf(join(c.directory, 'state')), ['secureboot', 'make'])
  t.equal((await pack()).status, 204)
  const { kernelfile, _kernelsigner } = await image()
  t.match(_kernelsigner, /^Debian Secure Boot Signer .*, Secure Boot of \S+$/)
  const certificate = join(c.directory, 'state/secureboot.crt')
  const served = join(c.directory, 'files', kernelfile)
  t.match(await output('sbverify', ['--cert', certificate, served]), /Signature verification OK/)
})
