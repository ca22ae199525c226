import t from 'tap'
import { runSync } from '../lib/base/concurrency.js'
import { jsonInParts } from '../lib/base/json.js'

t.test('JSON in parts is the JSON of the whole', async t => {
  const list = (length: number) =>
    Array.from({ length }, (_, i) => ({ name: `n${i}`, text: `"${i}\n`, none: undefined }))
  for (const value of [
    ...[1, null, 'text', true, [], {}, [[]], [{}, 1, 'x']],
    ...[0, 1, 127, 128, 129, 1000].map(list),
    { a: undefined, b: list(300), c: { d: [list(200), list(2)], e: 'x', f: undefined }, g: null },
    { first: undefined },
    [list(129), list(0), { list: list(257) }]
  ]) {
    const text = runSync(jsonInParts(value)).join('')
    t.strictSame(JSON.parse(text), JSON.parse(JSON.stringify(value)))
    t.equal(text, JSON.stringify(value))
  }
})

t.test('it yields between the parts of a long list, wherever that is', t => {
  const steps = [...jsonInParts({ a: [{ hosts: Array.from({ length: 1000 }, () => 'x') }] })]
  t.ok(steps.length >= 7, `${steps.length} steps`)
  t.end()
})
