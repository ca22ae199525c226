import t from 'tap'
import { ForwardedRequests } from '../../lib/auth/forwarded.js'

const key = new Uint8Array(32).fill(7)
const token = { 'x-access-tokens': 'token' }
const head = { method: 'POST', target: '/config/node/n1?x=1', headers: token }

// rules 11.16
t.test('the address that asked is believed from who has the key, for that request, at that time', async t => {
  let now = 1_000_000
  const requests = new ForwardedRequests(key, () => now)
  for (const address of ['10.141.0.7', '2001:db8::1']) {
    const headers = requests.headersFor(head, address)
    t.equal(requests.addressIn({ ...head, headers: { ...token, ...headers } }), address)
  }
  t.equal(requests.addressIn(head), undefined)

  const headers = requests.headersFor(head, '10.141.0.7')
  const [name = '', value = ''] = Object.entries(headers)[0] ?? []
  const others = [
    ['another method', { ...head, method: 'GET' }, value],
    ['another target', { ...head, target: '/config/node/n2' }, value],
    ['another token', { ...head, headers: { 'x-access-tokens': 'other' } }, value],
    ['no token', { ...head, headers: {} }, value],
    ['another address', head, value.replace('10.141.0.7', '10.141.0.8')],
    ['another time', head, value.replace('1000000', '1000001')],
    ['no proof', head, '10.141.0.7 1000000'],
    ['a short proof', head, value.slice(0, -1)],
    ['nothing', head, ''],
    ['spaces', head, ' '.repeat(100)],
    [
      'another key',
      head,
      Object.values(new ForwardedRequests(new Uint8Array(32), () => now).headersFor(head, '10.141.0.7'))[0]
    ]
  ] as const
  for (const [what, of, given] of others)
    t.throws(
      () => requests.addressIn({ ...of, headers: { ...of.headers, [name]: given } }),
      { status: 400, message: /is for controllers of this cluster: leave it out/ },
      what
    )
  for (const later of [60_000, -60_000]) {
    now = 1_000_000 + later
    t.equal(requests.addressIn({ ...head, headers: { ...token, ...headers } }), '10.141.0.7')
    now += Math.sign(later)
    t.throws(() => requests.addressIn({ ...head, headers: { ...token, ...headers } }), {
      status: 400,
      message: /more than 60 s apart/
    })
  }
})
