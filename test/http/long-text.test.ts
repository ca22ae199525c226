import t from 'tap'
import { LIMITS } from '../../lib/http/admission/limits.js'
import { LongText, reuse } from '../../lib/http/long-text.js'

const { listPieceCharacters, listKeptCharacters } = LIMITS

/** Parts that count how often they are made. */
function partsOf(texts: readonly string[]) {
  const parts = {
    made: 0,
    *[Symbol.iterator]() {
      parts.made++
      yield* texts
    }
  }
  return parts
}

/** Measures so many pieces. */
function measured(text: LongText, most = Number.POSITIVE_INFINITY): LongText {
  let count = 0
  for (const _ of text.measuring()) if (++count >= most) break
  return text
}

/** Returns what is sent. */
function sent(text: LongText): string {
  const found: Buffer[] = []
  for (const bytes of text.sending()) {
    found.push(Buffer.from(bytes))
    reuse(bytes)
  }
  return String(Buffer.concat(found))
}

// rules 2.13
t.test('what is sent is what was measured, whatever its characters are', async t => {
  for (const letter of ['x', 'é', '日', '😀']) {
    const texts = Array.from({ length: 1000 }, (_, i) => (i % 3 === 0 ? '' : letter.repeat(i)))
    const text = new LongText(partsOf(texts))
    t.equal(sent(measured(text)), `${texts.join('')}\n`)
    t.equal(text.bytes, Buffer.byteLength(texts.join('')) + 1)
    t.equal(sent(measured(new LongText(partsOf(texts)), 1)), `${texts.join('')}\n`, 'measured in part')
    text.forget()
  }
  t.equal(sent(measured(new LongText(partsOf([])))), '\n')
  const long = '日'.repeat(2 * listPieceCharacters)
  t.equal(
    sent(measured(new LongText(partsOf([long, long])))),
    `${long}${long}\n`,
    'parts longer than a piece'
  )
})

// rules 2.13
t.test('the parts of short texts are made once, and those above the bound of all twice', async t => {
  const part = 'x'.repeat(listPieceCharacters)
  const half = partsOf(Array.from({ length: listKeptCharacters / listPieceCharacters / 2 }, () => part))
  const first = measured(new LongText(half))
  const second = measured(new LongText(half))
  t.equal(half.made, 2)
  sent(first)
  t.equal(half.made, 2, 'its parts were kept')
  first.forget()
  sent(second)
  t.equal(half.made, 3, 'the newlines of both were over the bound')
  second.forget()
  const third = measured(new LongText(half))
  sent(third)
  t.equal(half.made, 4, 'there is room again')
  third.forget()
})

// rules 2.13
t.test('memory is used again only once it is given back', async t => {
  const texts = Array.from({ length: 4 }, (_, i) => String(i).repeat(listPieceCharacters))
  const text = measured(new LongText(partsOf(texts)))
  const found = [...text.sending()]
  t.equal(String(Buffer.concat(found)), `${texts.join('')}\n`)
  const memory = new Set(found.map(({ buffer }) => buffer))
  t.equal(memory.size, found.length)
  for (const bytes of found) reuse(bytes)
  for (const bytes of text.sending()) t.ok(memory.has(bytes.buffer) || bytes.length === 1)
  text.forget()
})
