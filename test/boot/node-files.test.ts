import t from 'tap'
import { NodeFiles } from '../../lib/boot/node-files.js'
import { MemoryCluster } from '../support/memory-cluster.js'

// rules 4.25
t.test('one node that asks for its files all the time takes no place of another', async t => {
  const { model } = new MemoryCluster({ 'node/n1': {}, 'node/n2': {} })
  const files = new NodeFiles({ model, url: 'http://10.141.255.254:7050' })
  t.teardown(() => files.close())
  const often = Promise.allSettled(Array.from({ length: 250 }, () => files.tar('n1', false)))
  t.equal((await files.tar('n2', false)).length, 1024)
  const reasons = (await often).flatMap(answer => (answer.status === 'rejected' ? [answer.reason] : []))
  t.equal(reasons.length, 245, 'one is rendered and four wait')
  for (const reason of reasons)
    t.match(reason, {
      status: 503,
      message: 'the files of node n1 are asked for; try again in 10 s',
      headers: { 'Retry-After': '10' }
    })
})
