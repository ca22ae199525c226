import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { signerOf } from '../../lib/image/signature.js'
import { debianKernel } from '../support/kernel.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { beginning } from './imaging.js'
import { onlyPrograms } from './packing.js'
import { small } from './small-tree.js'

const { signal } = new AbortController()

/** A key and its certificate with this subject. */
async function keyOf(directory: string, name: string, subject: string) {
  const [key, certificate] = [join(directory, `${name}.key`), join(directory, `${name}.crt`)]
  const made = ['-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', certificate, '-subj', subject]
  await output('openssl', ['req', '-x509', ...made])
  return ['--key', key, '--cert', certificate]
}

// rules 15.13
t.test('who signed a kernel: its maker, several, nobody', async t => {
  const directory = scratch(t)
  const { image } = await debianKernel()
  t.match(await signerOf(image, signal), { signer: /^Debian Secure Boot Signer .*linux$/ })
  const [bare, signed, twice] = ['bare', 'signed', 'twice'].map(name => join(directory, name)) as [
    string,
    string,
    string
  ]
  copyFileSync(image, bare)
  await output('sbattach', ['--remove', bare])
  t.same(await signerOf(bare, signal), { signer: 'none' })
  const own = await keyOf(directory, 'own', '/O=Site/CN=Site of svcd/emailAddress=a@b')
  await output('sbsign', [...own, '--output', signed, bare])
  t.same(await signerOf(signed, signal), { signer: 'Site of svcd' })
  await output('sbsign', [...own, '--output', twice, image])
  t.match(await signerOf(twice, signal), { signer: /^Debian Secure Boot Signer .*, Site of svcd$/ })
})

// rules 15.13
t.test('a strange file is looked at, and hurts nobody', async t => {
  const directory = scratch(t)
  const file = join(directory, 'kernel')
  writeFileSync(file, 'no program')
  t.same(await signerOf(file, signal), { signer: 'none' })
  writeFileSync(file, 'MZ no program')
  t.match(await signerOf(file, signal), { unknown: /sbverify failed with status 1/ })
  onlyPrograms(t, directory, { sbverify: 'while :; do echo "signature 1"; done' })
  t.match(await signerOf(file, signal), {
    unknown: /who signed the kernel: sbverify wrote more than 65536 bytes/
  })
})

// rules 15.13
t.test('without sbverify the package is named', async t => {
  const directory = scratch(t)
  const file = join(directory, 'kernel')
  writeFileSync(file, 'MZ')
  onlyPrograms(t, directory, {})
  t.match(await signerOf(file, signal), { unknown: /sbverify is not installed: apt-get install sbsigntool/ })
})

// rules 15.13
t.test('a pack keeps who signed its kernel, and the image shows it until it has another kernel', async t => {
  const { c, tree, image, pack, ended, packs } = await beginning(t, small)
  t.equal((await image())._kernelsigner, null, 'nothing is packed')
  t.equal((await pack()).status, 204)
  t.equal((await image())._kernelsigner, 'none')
  t.match((await ended('pack')).results, { kernelsigner: 'none' })
  copyFileSync((await debianKernel()).image, join(tree, 'boot/vmlinuz-6.1.0-10'))
  t.equal((await pack()).status, 204)
  const shown = await image()
  t.match(shown._kernelsigner, /^Debian Secure Boot Signer/)
  t.match((await c.get('/config/osimage')).body.config.osimage.compute, {
    _kernelsigner: shown._kernelsigner
  })
  t.ok((await packs()).length > 0)
  t.equal((await c.post('/config/osimage/compute', shown)).status, 204, 'what was read can be posted back')
  c.file('mykernel', 'my kernel')
  await c.post('/config/osimage/compute', { kernelfile: 'mykernel' })
  t.equal((await image())._kernelsigner, null, "the kernel is the admin's own")
})
