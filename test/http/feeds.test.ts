import { get, type IncomingMessage } from 'node:http'
import t from 'tap'
import type { Feed } from '../../lib/http/route.js'
import { until } from '../support/until.js'
import { route, start } from './helpers.js'

const ask = (port: number, headers = {}, path = '/feed') =>
  new Promise<IncomingMessage>((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, agent: false, headers }, resolve).on('error', reject)
  })

/** A feed that gives these texts, and how it is woken. */
function feed(texts: string[] = ['begin\n']) {
  const wakes = new Set<() => void>()
  let given = 0
  const made: Feed = {
    keepAlive: ':\n',
    next: () => {
      given++
      return texts.shift() ?? ''
    },
    follow: wake => {
      wakes.add(wake)
      return () => wakes.delete(wake)
    }
  }
  return { made, wakes, given: () => given, wake: () => [...wakes].map(wake => wake()) }
}

const answered = (made: () => Feed) => route('GET', '/feed', () => ({ status: 200, feed: made() }))

// rules 2.20
t.test('streams are bounded in all and for one address, and their places come back', async t => {
  const { port } = await start(t, [answered(() => feed().made)], {
    trustedProxies: ['127.0.0.1'],
    limits: { feeds: 3, feedsPerAddress: 2 }
  })
  const from = (address: string) => ask(port, { 'X-Forwarded-For': address })
  const open = [await from('192.0.2.1'), await from('192.0.2.1')]
  const third = await from('192.0.2.1')
  t.equal(third.statusCode, 503, 'one more of the same address')
  t.match(third.headers['retry-after'], /^\d+$/)
  third.resume()
  open.push(await from('192.0.2.2'))
  const fourth = await from('192.0.2.3')
  t.equal(fourth.statusCode, 503, 'one more in all')
  fourth.resume()
  for (const each of open) {
    t.equal(each.statusCode, 200)
    each.on('error', () => undefined).destroy()
  }
  await until(async () => {
    const again = await from('192.0.2.1')
    again.on('error', () => undefined).destroy()
    return again.statusCode === 200
  })
})

// rules 2.20
t.test(
  'one user, or one network of IPv6, cannot take the places of others; some are kept for admins',
  async t => {
    const { port } = await start(
      t,
      [
        route('GET', '/feed', ({ query }) => {
          const [name, first] = [query.get('user'), query.get('first') !== null]
          return { status: 200, feed: feed().made, ...(name === null ? {} : { subscriber: { name, first } }) }
        })
      ],
      { trustedProxies: ['127.0.0.1'], limits: { feeds: 32, feedsPerAddress: 8, feedsPerUser: 10 } }
    )
    let asked = 0
    /** The statuses of so many streams that are opened and stay open, each from another address. */
    const opened = async (count: number, query: string, address = () => `192.0.2.${++asked}`) => {
      const statuses: (number | undefined)[] = []
      for (let i = 0; i < count; i++) {
        const answer = await ask(port, { 'X-Forwarded-For': address() }, `/feed${query}`)
        t.teardown(() => answer.on('error', () => undefined).destroy())
        answer.resume()
        statuses.push(answer.statusCode)
      }
      return statuses
    }
    const times = (count: number, status: number) => Array.from({ length: count }, () => status)
    t.same(await opened(11, '?user=alice'), [...times(10, 200), 503], 'one more of the same user')
    t.same(
      await opened(9, '', () => `2001:db8::${++asked}`),
      [...times(8, 200), 503],
      'one more of the same 64 bits'
    )
    t.same(await opened(10, '?user=bob'), times(10, 200))
    t.same(await opened(3, '?user=carol'), [200, 200, 503], 'the last places')
    t.same(await opened(3, '?user=root&first'), [200, 200, 503], 'are kept for those who come first')
  }
)

// rules 2.20
t.test('a stream with nothing new is sent beats', async t => {
  const { port } = await start(t, [answered(() => feed().made)], { limits: { feedBeatMs: 20 } })
  const answer = await ask(port)
  let text = ''
  answer.setEncoding('utf8').on('data', piece => {
    text += piece
  })
  await until(() => /^begin\n(?::\n){2}/.test(text))
  answer.on('error', () => undefined).destroy()
})

// rules 2.20
t.test('a stream ends when who asked may no more, and sends nothing after that', async t => {
  let may = true
  const texts = ['begin\n']
  const { made } = feed(texts)
  const { port } = await start(t, [answered(() => made)], {
    authorize: () => {
      if (!may) throw new Error('void')
      return 'caller'
    },
    limits: { feedBeatMs: 20 }
  })
  const answer = await ask(port)
  let text = ''
  answer.setEncoding('utf8').on('data', piece => {
    text += piece
  })
  await until(() => text.startsWith('begin\n:'))
  may = false
  texts.push('secret\n')
  await until(() => answer.complete)
  t.notMatch(text, /secret/)
})

// rules 2.20
t.test('what a client does not read is not made', async t => {
  const big = 'x'.repeat(256 * 1024)
  const { made, given, wake } = feed(Array.from({ length: 1000 }, () => big))
  const { port } = await start(t, [answered(() => made)])
  const answer = await ask(port)
  answer.pause()
  for (let i = 0; i < 2000; i++) {
    wake()
    await new Promise(resolve => setImmediate(resolve))
  }
  t.ok(given() < 200, `${given()} pieces of 1,000 were made`)
  answer.on('error', () => undefined).destroy()
})

// rules 2.20
t.test('a HEAD opens none', async t => {
  const { made, given } = feed()
  const { port } = await start(t, [answered(() => made)])
  const status = await new Promise(resolve =>
    get({ host: '127.0.0.1', port, path: '/feed', method: 'HEAD', agent: false }, answer =>
      resolve(answer.statusCode)
    )
  )
  t.equal(status, 200)
  t.equal(given(), 0)
})
