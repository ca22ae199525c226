import t from 'tap'
import { TurnCount } from '../../lib/http/turn-count.js'

const turn = () => new Promise(setImmediate)

// rules 2.13
t.test('what there was in one turn is counted, and not what was before and after it', async t => {
  const count = new TurnCount()
  const add = (times: number) => {
    for (let i = 0; i < times; i++) count.add()
  }
  add(100)
  t.equal(count.inTurn, 0, 'asked for the first time')
  add(10)
  await turn()
  add(7)
  await turn()
  t.equal(count.inTurn, 7)
  await turn()
  await turn()
  t.equal(count.inTurn, 0, 'nothing came since')
})
