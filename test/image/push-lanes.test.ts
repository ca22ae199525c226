import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { daemonActor } from '../../lib/model/model.js'
import { until } from '../support/until.js'
import { oneOfSeveral } from './one-of-several.js'
import { makeTree } from './small-tree.js'

// rules 8.1, 9.15
t.test('pushes of two images do not meet on a node', async t => {
  const said: string[] = []
  const open: (() => void)[] = []
  const work = {
    call: async (_command: string, { node, tree }: { node: string; tree: string }) => {
      const what = `${tree.replace(/.*\//, '')} to ${node}`
      said.push(what)
      if (what === 'a to n1') await new Promise<void>(done => open.push(done))
      said.push(`${what}: done`)
      return { changes: 0 }
    }
  }
  const { bench, images } = await oneOfSeveral(t, work)
  await bench.put(tx => {
    tx.put('network', 'cluster', { name: 'cluster', network: '10.141.0.0/16' })
    for (const [i, name] of ['n1', 'n2'].entries())
      tx.put('node', name, {
        name,
        interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: `10.141.0.${i + 1}` }]
      })
    for (const name of ['a', 'b', 'c']) tx.put('osimage', name, { name })
  })
  for (const name of ['a', 'b', 'c']) makeTree(bench.path('images', name))
  const { signal } = new AbortController()
  const push = (osimage: string, node: string) => images.push({ node }, osimage, false, daemonActor, signal)
  const own = await push('a', 'n1')
  await until(() => open.length === 1)
  const second = await push('b', 'n1')
  await (await push('c', 'n2')).done
  for (let i = 0; i < 100; i++) await nextTurn()
  t.strictSame(said, ['a to n1', 'c to n2', 'c to n2: done'])
  open[0]?.()
  await Promise.all([own.done, second.done])
  t.strictSame(said.slice(3), ['a to n1: done', 'b to n1', 'b to n1: done'])
})
