// rules 6.11, 11.19
import t from 'tap'
import { ControllerAuth } from '../../lib/peers/proofs.js'

const key = Buffer.alloc(32, 1)

t.test('a question is one of a controller, with these words, within a minute, and once', t => {
  let now = 1_000_000
  const [writer, works] = [new ControllerAuth(key, () => now), new ControllerAuth(key, () => now)]
  const asked = writer.headersFor('{"to":"c2"}')
  const refused = { status: 401, message: /controllers of this cluster alone/ }
  t.throws(() => works.verifyRequest('{"to":"c3"}', asked), refused)
  t.throws(() => works.verifyRequest('{"to":"c2"}', {}), refused)
  const other = new ControllerAuth(Buffer.alloc(32), () => now)
  t.throws(() => works.verifyRequest('{"to":"c2"}', other.headersFor('{"to":"c2"}')), refused)
  const [[name, value]] = Object.entries(asked) as [[string, string]]
  for (const forged of [value.replace(/^\d+/, '1000001'), value.slice(0, -1), `${value} `, 'é', ''])
    t.throws(() => works.verifyRequest('{"to":"c2"}', { [name]: forged }), refused, forged)
  t.doesNotThrow(() => works.verifyRequest('{"to":"c2"}', asked))
  const again = { status: 401, message: /asked before/ }
  t.throws(() => works.verifyRequest('{"to":"c2"}', asked), again)
  now += 59_000
  t.throws(() => works.verifyRequest('{"to":"c2"}', asked), again)
  t.doesNotThrow(
    () => works.verifyRequest('{"to":"c2"}', writer.headersFor('{"to":"c2"}')),
    'the same words anew'
  )
  now += 1001
  t.throws(() => works.verifyRequest('{"to":"c2"}', asked), {
    status: 401,
    message: /clock of the controller that asks is 60 s behind that of this controller.*timedatectl/
  })
  // Its clock is ahead by a minute.
  const ahead = new ControllerAuth(key, () => now + 60_000).headersFor('x')
  t.doesNotThrow(() => works.verifyRequest('x', ahead))
  for (const ms of [0, 60_000, 60_000]) {
    now += ms
    t.throws(() => works.verifyRequest('x', ahead), again, `after ${ms} ms`)
  }
  now += 1
  t.throws(() => works.verifyRequest('x', ahead), {
    status: 401,
    message: /clock of the controller that asks/
  })
  // A start forgets what was asked.
  const before = writer.headersFor('x')
  now += 1
  const started = new ControllerAuth(key, () => now)
  t.throws(() => started.verifyRequest('x', before), { status: 401, message: /before svcd was started here/ })
  t.doesNotThrow(() => started.verifyRequest('x', writer.headersFor('x')))
  t.end()
})

t.test('what is answered is proved, as the answer to one question', t => {
  const proofs = new ControllerAuth(key, () => 1)
  const [asked, other] = [proofs.headersFor('x'), proofs.headersFor('x')]
  const proof = proofs.signAnswer(asked, '{"done":{}}')
  t.ok(proofs.isAnswerAuthentic(asked, '{"done":{}}', proof))
  t.notOk(proofs.isAnswerAuthentic(other, '{"done":{}}', proof), 'an old answer is none')
  t.notOk(proofs.isAnswerAuthentic(asked, '{"done":1}', proof))
  t.notOk(proofs.isAnswerAuthentic(asked, '{"done":{}}', ''))
  t.end()
})
