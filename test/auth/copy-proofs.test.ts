// rules 11.19
import t from 'tap'
import { CopyProofs } from '../../lib/auth/copy-proofs.js'

const key = Buffer.alloc(32, 1)
const told = { bytes: 10, sha256: 'a'.repeat(64) }

t.test('a question is one of a controller, for its path, within a minute', t => {
  let now = 1_000_000
  const proofs = new CopyProofs(key, () => now)
  const asked = proofs.headersFor('/copies/a')
  t.doesNotThrow(() => proofs.check('/copies/a', asked))
  t.notSame(proofs.headersFor('/copies/a'), asked, 'no two are the same')
  const refused = { status: 401, message: /controllers of this cluster alone/ }
  t.throws(() => proofs.check('/copies/b', asked), refused)
  t.throws(() => proofs.check('/copies/a', {}), refused)
  t.throws(
    () => proofs.check('/copies/a', new CopyProofs(Buffer.alloc(32), () => now).headersFor('/copies/a')),
    refused
  )
  const [[name, value]] = Object.entries(asked) as [[string, string]]
  for (const forged of [
    value.replace(/^\d+/, '1000001'),
    value.slice(0, -1),
    `${value} `,
    'é'.repeat(100),
    ''
  ])
    t.throws(() => proofs.check('/copies/a', { [name]: forged }), refused, forged)
  now += 60_001
  t.throws(() => proofs.check('/copies/a', asked), { status: 401, message: /clocks of two controllers/ })
  t.end()
})

t.test('what is told is proved, as the answer to one question', t => {
  const proofs = new CopyProofs(key, () => 1)
  const [asked, other] = [proofs.headersFor('/copies/a/checksum'), proofs.headersFor('/copies/a/checksum')]
  const proof = proofs.proofOf(asked, told)
  t.ok(proofs.isProved(asked, told, proof))
  t.notOk(proofs.isProved(other, told, proof), 'an old answer is none')
  t.notOk(proofs.isProved(asked, { ...told, bytes: 11 }, proof))
  t.notOk(proofs.isProved(asked, { ...told, sha256: 'b'.repeat(64) }, proof))
  t.notOk(proofs.isProved(asked, told, ''))
  t.end()
})
