import t from 'tap'
import { runSync } from '../../lib/base/concurrency.js'
import { unsignedKernels } from '../../lib/model/secure-boot.js'
import { beginning } from './imaging.js'
import { small } from './small-tree.js'

// rules 15.13
t.test('an unsigned kernel is told where nodes boot it by GRUB, and nowhere else', async t => {
  const { c, pack } = await beginning(t, small)
  await c.post('/config/group/grub', { osimage: 'compute', loader: 'grub' })
  await c.post('/config/node/n1', { group: 'grub' })
  await c.post('/config/node/n2', { osimage: 'compute' })
  const whyOf = async (node: string) =>
    (await c.get(`/monitor/node/${node}/_why`)).body.monitor.why[node].verdict
  t.notMatch(await whyOf('n1'), /signature/, 'nothing is packed')
  t.equal((await pack()).status, 204)
  const { view, cluster } = c.daemon.model
  const found = runSync(unsignedKernels(view, cluster, 'compute'))
  t.strictSame([...found.values()], [['n1']])
  t.match(
    [...found.keys()][0],
    /^the kernel of pack compute-\S+ carries no signature: .* Secure Boot on refuses it$/
  )
  t.match(await whyOf('n1'), /Besides, the kernel of pack compute-\S+ carries no signature/)
  t.notMatch(await whyOf('n2'), /signature/)
  await c.post('/config/node/n1', { netboot: false })
  t.notMatch(await whyOf('n1'), /signature/, 'it boots from its disk')
})
