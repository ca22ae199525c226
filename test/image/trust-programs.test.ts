import t from 'tap'
import type { Config } from '../../lib/config/types.js'
import { bootFiles } from '../../lib/image/boot-files.js'
import { imageFindings } from '../../lib/image/findings.js'
import { Bench } from './bench.js'
import { makeTree } from './small-tree.js'

// rules 15.8
t.test('a pack and svcd check tell what attestation needs in the image', async t => {
  const bench = await Bench.open(t, 'image.initramfs=no')
  const { config, model } = bench.context
  await bench.put(tx => tx.put('osimage', 'compute', { name: 'compute' }))
  const tree = makeTree(bench.path('images', 'compute'), { 'sbin/init': '', 'usr/bin/openssl': '' })
  const warned = async (trust: string) => {
    await bench.put(tx => tx.put('node', 'n1', { name: 'n1', osimage: 'compute', trust } as never))
    const job = bench.job()
    await bootFiles(bench.context, { name: 'compute' }, tree, {}, job)
    const { warnings } = imageFindings(config as Config, model.view, model.cluster)
    return [job.lines, warnings].map(all => all.filter(line => line.includes('trust')))
  }
  const said = (policy: string) =>
    `trust = ${policy} of its nodes needs tpm2-tools in the image, for its initramfs: ` +
    `chroot ${tree} apt-get install tpm2-tools (or dnf), and pack it`
  for (const policy of ['require', 'report'])
    t.strictSame(await warned(policy), [[`warning: ${said(policy)}`], [`OS image compute: ${said(policy)}`]])
  t.strictSame(await warned('none'), [[], []], 'no node proves anything')
  makeTree(bench.path('images', 'compute'), { 'usr/bin/tpm2': '' })
  t.strictSame(await warned('require'), [[], []])
})
