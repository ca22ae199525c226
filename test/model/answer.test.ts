import t from 'tap'
import { type AnswerSource, showText } from '../../lib/model/answer.js'
import type { Docs } from '../../lib/model/docs.js'
import type { ClusterSettings } from '../../lib/model/stored.js'

const LONG = 8000
const reader = { cluster: {} as ClusterSettings, masked: false }

/** A network that counts how often its text is made. */
function counted(name: string, length: number) {
  const found = { made: 0 }
  const doc = {
    name,
    get comment() {
      found.made++
      return 'x'.repeat(length)
    }
  } as unknown as Docs['network']
  const seen: AnswerSource<'network'> = {
    ...{ doc, group: undefined, image: undefined, status: null, runs: undefined }
  }
  return { found, text: () => showText('network', seen, reader) }
}

// rules 2.13
t.test('the texts of objects are kept, up to 32 Mi characters', async t => {
  const one = counted('one', 10)
  t.equal(one.text(), one.text())
  t.equal(one.found.made, 1)
  const others = Array.from({ length: Math.ceil((32 * 1024 * 1024) / LONG) }, (_, i) =>
    counted(`o${i}`, LONG)
  )
  for (const other of others.slice(0, 1000)) other.text()
  one.text()
  t.equal(one.found.made, 1, 'a few others change nothing')
  for (const other of others) other.text()
  one.text()
  t.equal(one.found.made, 2, 'many others take its place')
  others.at(-1)?.text()
  t.equal(others.at(-1)?.found.made, 1, 'which are kept')
  const long = counted('long', 2 * LONG)
  for (let i = 0; i < 2; i++) long.text()
  t.equal(long.found.made, 2, 'a long one is never kept')
})
