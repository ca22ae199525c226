import t from 'tap'
import { turnsOf } from '../fuzz/node-sets.js'
import { Random } from '../fuzz/random.js'
import { Controller } from '../support/controller.js'
import { usage } from '../support/turns.js'

// rules 12.1, 12.10
t.test('no set holds the event loop, whatever it is made of', async t => {
  const c = await Controller.start(t)
  const node = Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`n${i}`, { group: 'compute' }]))
  const imported = await c.post('/config/cluster/import', {
    config: { group: { compute: {}, empty: {} }, node }
  })
  t.equal(imported.status, 201)
  const seed = Number(process.env.FUZZ_SEED ?? 25)
  const turns = await turnsOf(c, new Random(seed), 3000)
  t.comment(JSON.stringify(turns))
  t.ok(turns.refused > 500 && turns.refused < 2900, `${turns.refused} of 3000 were no sets`)
  // Whole sets cost far more than a turn may: a loop of as many names beside it tells how fast this machine
  // is.
  const used = usage()
  const before = used()
  const names = new Set<string>()
  for (let i = 0; i < 100_000; i++) names.add(`n${i}`)
  const yardstick = used() - before
  t.ok(turns.longestTurn < 50 + yardstick, `seed ${seed}: ${turns.longestTurn} ms in one turn: ${turns.of}`)
})
