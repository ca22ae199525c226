import t from 'tap'
import { CachedText } from '../../lib/boot/render.js'

// rules 4.11
t.test('a text is made once for the same values, and anew for others', async t => {
  const kept = new CachedText()
  const made: string[] = []
  const text = (...from: string[]) =>
    kept.text(from, () => {
      made.push(from.join(' '))
      return `${from.join(' ')} ${made.length}`
    })
  t.equal(text('a', 'b'), 'a b 1')
  t.equal(text('a', 'b'), 'a b 1')
  t.equal(text('a', 'c'), 'a c 2')
  t.equal(text('a'), 'a 3', 'fewer values')
  t.equal(text('a', 'b'), 'a b 4')
  t.throws(
    () =>
      kept.text(['x'], () => {
        throw new Error('no')
      }),
    /no/
  )
  t.equal(text('a', 'b'), 'a b 4', 'a failure is not kept')
  t.equal(text('x'), 'x 5')
})

t.test('a text is kept for a second: its template may include one that has changed', async t => {
  const kept = new CachedText()
  let version = 1
  const text = () => kept.text([], () => String(version))
  t.equal(text(), '1')
  version = 2
  t.equal(text(), '1')
  await new Promise(resolve => setTimeout(resolve, 1010))
  t.equal(text(), '2')
})
