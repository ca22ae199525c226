import t from 'tap'
import { ForwardAuth } from '../../lib/peers/proofs.js'

const key = new Uint8Array(32).fill(7)
/** The right to write of the one that it is handed to. */
const right = '4711'
const token = { 'x-access-tokens': 'token' }
const head = { method: 'POST', target: '/config/node/n1?x=1', headers: token }
const body = Buffer.from('{"a":1}')

/** The same request with the header of one that was handed on. */
const having = (headers: Record<string, string>, of = head) => ({
  ...of,
  headers: { ...of.headers, ...headers }
})

// rules 11.16
t.test('the address that asked is believed from who has the key, for that request, at that time', async t => {
  let now = 1_000_000
  const requests = new ForwardAuth(
    key,
    () => right,
    () => now
  )
  for (const address of ['10.141.0.7', '2001:db8::1']) {
    const headers = await requests.headersFor(right, head, address, body)
    t.equal(requests.verify(having(headers))?.address, address)
  }
  t.equal(requests.verify(head), undefined)

  const headers = await requests.headersFor(right, head, '10.141.0.7', body)
  const [name = '', value = ''] = Object.entries(headers)[0] ?? []
  const other = await new ForwardAuth(
    new Uint8Array(32),
    () => right,
    () => now
  ).headersFor(right, head, '10.141.0.7', body)
  const bearer = { ...head, headers: { authorization: 'Bearer token' } }
  const ofBearer = Object.values(await requests.headersFor(right, bearer, '10.141.0.7', body))[0] ?? ''
  const others = [
    ['another Bearer token', { ...head, headers: { authorization: 'Bearer other' } }, ofBearer],
    ['another method', { ...head, method: 'GET' }, value],
    ['another target', { ...head, target: '/config/node/n2' }, value],
    ['another token', { ...head, headers: { 'x-access-tokens': 'other' } }, value],
    ['no token', { ...head, headers: {} }, value],
    ['a Bearer token', { ...head, headers: { authorization: 'Bearer other' } }, value],
    ['another address', head, value.replace('10.141.0.7', '10.141.0.8')],
    ['another right', head, value.replace(' 4711 ', ' 4712 ')],
    ['another time', head, value.replace('1000000', '1000001')],
    ['another number', head, value.replace(/ [\da-f]{32} /, ` ${'0'.repeat(32)} `)],
    ['another body', head, value.replace(/ [\da-f]{64} /, ` ${'0'.repeat(64)} `)],
    ['no proof', head, '10.141.0.7 1000000'],
    ['a short proof', head, value.slice(0, -1)],
    ['nothing', head, ''],
    ['spaces', head, ' '.repeat(100)],
    ['another key', head, other[name] ?? '']
  ] as const
  for (const [what, of, given] of others)
    t.throws(
      () => requests.verify({ ...of, headers: { ...of.headers, [name]: given } }),
      { status: 400, message: /is for controllers of this cluster: leave it out/ },
      what
    )
  for (const later of [60_000, -60_000]) {
    now = 0
    // One that has taken none yet.
    const answers = new ForwardAuth(
      key,
      () => right,
      () => now
    )
    now = 1_000_000 + later
    t.equal(answers.verify(having(headers))?.address, '10.141.0.7')
    now += Math.sign(later)
    const which = later > 0 ? 'behind' : 'ahead of'
    t.throws(() => answers.verify(having(headers), 'controller c1', 'controller c2'), {
      status: 503,
      message: new RegExp(
        `^the clock of controller c2 is 60 s ${which} that of controller c1, and 60 s are allowed: type timedatectl .* try again$`
      ),
      headers: { 'Retry-After': '5' }
    })
  }
})

// rules 11.16
t.test('it is believed with that body', async t => {
  const requests = new ForwardAuth(
    key,
    () => right,
    () => 1_000_000
  )
  for (const own of [body, Buffer.alloc(0), Buffer.alloc(3_000_000, 'x')]) {
    const handedOn = requests.verify(having(await requests.headersFor(right, head, '10.141.0.7', own)))
    await t.resolves(handedOn?.checkBody(own) ?? Promise.reject())
    const longer = Buffer.concat([own, Buffer.from(' ')])
    const others =
      own.length > 0 ? [longer, Buffer.from(own).fill('y', own.length - 1), own.subarray(1)] : [longer]
    for (const other of others)
      await t.rejects(handedOn?.checkBody(other) ?? Promise.resolve(), {
        status: 400,
        message: /another body: leave it out/
      })
  }
})

// rules 11.16
t.test('it is believed once', async t => {
  let now = 1_000_000
  const requests = new ForwardAuth(
    key,
    () => right,
    () => now
  )
  const [one, other] = [
    await requests.headersFor(right, head, '10.141.0.7', body),
    await requests.headersFor(right, head, '10.141.0.7', body)
  ]
  const again = { status: 400, message: /came before, and counts once/ }
  t.equal(requests.verify(having(one))?.address, '10.141.0.7')
  t.throws(() => requests.verify(having(one)), again)
  t.equal(requests.verify(having(other))?.address, '10.141.0.7', 'the same is asked anew')
  now += 60_000
  for (const headers of [one, other]) t.throws(() => requests.verify(having(headers)), again)
})

// rules 11.16
t.test('what was handed on before the start may have come before', async t => {
  let now = 1_000_000
  const headers = await new ForwardAuth(
    key,
    () => right,
    () => now
  ).headersFor(right, head, '10.141.0.7', body)
  now += 1
  const requests = new ForwardAuth(
    key,
    () => right,
    () => now
  )
  t.throws(() => requests.verify(having(headers)), {
    status: 503,
    message: /before svcd was started here/,
    headers: { 'Retry-After': '5' }
  })
  t.ok(requests.verify(having(await requests.headersFor(right, head, '10.141.0.7', body))))
})

// rules 11.16
t.test('it is believed by who has the right to write that it is for', async t => {
  let own: string | undefined = right
  const requests = new ForwardAuth(
    key,
    () => own,
    () => 1_000_000
  )
  const headers = await requests.headersFor(right, head, '10.141.0.7', body)
  // Another one has got the right since, or this one anew; or it writes no more.
  for (own of ['4712', undefined])
    t.throws(() => requests.verify(having(headers)), {
      status: 503,
      message: /the primary has changed since this was handed on: try again/,
      headers: { 'Retry-After': '5', 'x-svcd-not-taken': 'yes' }
    })
  own = right
  t.equal(requests.verify(having(headers))?.address, '10.141.0.7')
})
