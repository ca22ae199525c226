import t from 'tap'
import { Turns } from '../../lib/auth/turns.js'

t.test('no more than the limit at once, every task once', async t => {
  const turns = new Turns(3)
  let running = 0
  let most = 0
  const results = await Promise.all(
    Array.from({ length: 200 }, (_, index) =>
      turns.run(`party${index % 7}`, async () => {
        most = Math.max(most, ++running)
        await new Promise(setImmediate)
        running--
        return index
      })
    )
  )
  t.equal(most, 3)
  t.strictSame(
    results,
    Array.from({ length: 200 }, (_, index) => index)
  )
})

t.test('a party with many tasks does not hold up another', async t => {
  const turns = new Turns(1)
  const order: string[] = []
  const run = (party: string) => turns.run(party, async () => void order.push(party))
  await Promise.all(['a', 'a', 'a', 'a', 'b', 'c', 'b'].map(run))
  t.strictSame(order, ['a', 'a', 'b', 'c', 'a', 'b', 'a'])
})

t.test('a task that fails gives its place back', async t => {
  const turns = new Turns(1)
  const failing = () => turns.run('a', () => Promise.reject(new Error('no')))
  await Promise.all([t.rejects(failing()), t.rejects(failing()), t.rejects(failing())])
  t.equal(await turns.run('b', async () => 'done'), 'done')
})
