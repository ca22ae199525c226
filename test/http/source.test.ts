import t from 'tap'
import type { RequestSource } from '../../lib/base/request-source.js'
import { sourceReader } from '../../lib/http/source.js'

const none: string[] = []
const local = ['127.0.0.1', '::1']
const front = ['10.9.0.0/16', '2001:db8:f::/48']

// rules 4.5
t.test('where a request comes from', async t => {
  const table: [trusted: string[], peer: string, forwardedFor: string | undefined, source: RequestSource][] =
    [
      // No header: the peer.
      [none, '10.0.0.5', undefined, { address: '10.0.0.5', loopback: false }],
      [none, '127.0.0.1', undefined, { address: '127.0.0.1', loopback: true }],
      [none, '127.9.9.9', undefined, { address: '127.9.9.9', loopback: true }],
      [none, '::1', undefined, { address: '::1', loopback: true }],
      [none, '::ffff:10.0.0.5', undefined, { address: '10.0.0.5', loopback: false }],
      [none, '::ffff:127.0.0.1', undefined, { address: '127.0.0.1', loopback: true }],
      [none, '2001:DB8:0:0::5', undefined, { address: '2001:db8::5', loopback: false }],
      [none, 'fe80::1%eth0', undefined, { address: 'fe80::1', loopback: false }],
      [local, '127.0.0.1', undefined, { address: '127.0.0.1', loopback: true }],
      // A header that nobody vouches for: the peer, and no longer loopback.
      [none, '10.0.0.5', '127.0.0.1', { address: '10.0.0.5', loopback: false }],
      [none, '127.0.0.1', '10.0.0.5', { address: '127.0.0.1', loopback: false }],
      [none, '127.0.0.1', '127.0.0.1', { address: '127.0.0.1', loopback: false }],
      [none, '127.0.0.1', '', { address: '127.0.0.1', loopback: false }],
      [none, '::ffff:127.0.0.1', 'rubbish', { address: '127.0.0.1', loopback: false }],
      [front, '10.8.0.1', '10.0.0.5', { address: '10.8.0.1', loopback: false }],
      // From a trusted proxy: the right-most that is not one.
      [local, '127.0.0.1', '10.0.0.5', { address: '10.0.0.5', loopback: false }],
      [local, '::ffff:127.0.0.1', '10.0.0.5', { address: '10.0.0.5', loopback: false }],
      [local, '::1', '10.0.0.5', { address: '10.0.0.5', loopback: false }],
      [local, '127.0.0.1', '10.0.0.1, 10.0.0.5', { address: '10.0.0.5', loopback: false }],
      [local, '127.0.0.1', 'rubbish,, 10.0.0.5', { address: '10.0.0.5', loopback: false }],
      [local, '127.0.0.1', '127.0.0.1,10.0.0.5', { address: '10.0.0.5', loopback: false }],
      [local, '127.0.0.1', '10.0.0.5, 127.0.0.1', { address: '10.0.0.5', loopback: false }],
      [front, '10.9.0.1', '10.0.0.5, 10.9.3.4', { address: '10.0.0.5', loopback: false }],
      [front, '10.9.0.1', '10.0.0.5, ::ffff:10.9.3.4', { address: '10.0.0.5', loopback: false }],
      [front, '2001:db8:f::9', '2001:DB8::0:7', { address: '2001:db8::7', loopback: false }],
      [front, '10.9.0.1', '::ffff:10.0.0.5', { address: '10.0.0.5', loopback: false }],
      [front, '10.9.0.1', '10.0.0.5:4711', { address: '10.0.0.5', loopback: false }],
      [front, '10.9.0.1', '[2001:db8::7]', { address: '2001:db8::7', loopback: false }],
      [front, '10.9.0.1', '[2001:db8::7]:443', { address: '2001:db8::7', loopback: false }],
      [['::ffff:10.9.0.0/112'], '10.9.0.1', '10.0.0.5', { address: '10.0.0.5', loopback: false }],
      [['10.9.0.1'], '10.9.0.2', '10.0.0.5', { address: '10.9.0.2', loopback: false }],
      [['0.0.0.0/0'], '10.9.0.2', '10.0.0.5, 10.0.0.6', { address: '10.0.0.5', loopback: false }],
      // Loopback stays loopback only if every hop is ours.
      [local, '127.0.0.1', '127.0.0.1', { address: '127.0.0.1', loopback: true }],
      [local, '127.0.0.1', '127.0.0.2', { address: '127.0.0.2', loopback: true }],
      [front, '10.9.0.1', '127.0.0.1', { address: '127.0.0.1', loopback: false }],
      [[...local, ...front], '127.0.0.1', '127.0.0.1, 10.9.0.1', { address: '127.0.0.1', loopback: false }]
    ]
  for (const [trusted, peer, forwardedFor, source] of table) {
    t.same(sourceReader(trusted)(peer, forwardedFor), source, `${trusted} ${peer} ${forwardedFor}`)
  }
})

t.test('a trusted proxy that sends rubbish is refused', async t => {
  const read = sourceReader(local)
  for (const value of [
    '',
    ',',
    'unknown',
    '10.0.0.5,',
    '10.0.0',
    '10.0.0.256',
    '0x7f.0.0.1',
    '010.0.0.1.2',
    '2130706433',
    '10.0.0.5:',
    '10.0.0.5:123456',
    '[10.0.0.5',
    '[]',
    'fe80::1%eth0',
    '10.0.0.5/24',
    'host.example'
  ]) {
    t.throws(() => read('127.0.0.1', value), { message: /X-Forwarded-For/ }, value)
  }
})

t.test('a trusted proxy that is no address or network is refused at the start', async t => {
  for (const text of [
    '',
    'localhost',
    '10.0.0.0/33',
    '10.0.0.0/',
    '10.0.0.0/8/8',
    '10.0.0.0/-1',
    '::1/129',
    '10/8'
  ]) {
    t.throws(() => sourceReader([text]), Error, text)
  }
})
