import t from 'tap'
import {
  badRequest,
  forbidden,
  notFound,
  ServiceError,
  unauthorized,
  unavailable
} from '../../lib/base/errors.js'
import type { Answer } from '../../lib/http/route.js'
import { inject } from '../support/inject.js'
import { until } from '../support/until.js'
import { deferred, isRefusal, RawClient, route, start } from './helpers.js'

const get = (path: string, more = '') => `GET ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`

// rules 2.3
t.test('the order of checks, and what each one sees', async t => {
  const calls: string[] = []
  const { server } = await start(
    t,
    [
      route('POST', '/thing/{name}', ({ caller, params, body, query }) => {
        calls.push(`handler ${caller} ${params.name} ${JSON.stringify(body)} ${query.get('q')}`)
        return { status: 201, body: { message: 'made' } }
      })
    ],
    {
      maxBody: 100,
      authorize: async ({ path }, { headers, params, source }) => {
        calls.push(`authorize ${path} ${params.name} ${source.address}`)
        if (headers['x-who'] === undefined) throw unauthorized('no token')
        if (headers['x-who'] !== 'admin') throw forbidden('not for you')
        return 'admin'
      },
      param: (name, value) => {
        calls.push(`param ${name}=${value}`)
        if (value.includes('.')) throw badRequest('the name must have no dots')
        if (value === 'none') throw notFound('there is no none')
        return value.toLowerCase()
      }
    }
  )
  const long = `"${'x'.repeat(200)}"`
  const table: [path: string, who: string | undefined, body: string, status: number, calls: string[]][] = [
    ['/nothing/%zz', undefined, long, 400, []],
    ['/nothing/a%2fb', undefined, long, 404, []],
    ['/nothing', undefined, long, 404, []],
    ['/thing/X', undefined, long, 401, ['authorize']],
    ['/thing/X', 'viewer', long, 403, ['authorize']],
    ['/thing/..', 'admin', long, 400, ['authorize', 'param']],
    ['/thing/none', 'admin', long, 404, ['authorize', 'param']],
    ['/thing/X', 'admin', long, 413, ['authorize', 'param']],
    ['/thing/X', 'admin', '{"a":}', 400, ['authorize', 'param', 'authorize']],
    ['/thing/%58%C3%A9?q=a%20b', 'admin', '{"a":1}', 201, ['authorize', 'param', 'authorize', 'handler']]
  ]
  for (const [path, who, body, status, expected] of table) {
    calls.length = 0
    const headers = who === undefined ? {} : { 'X-Who': who }
    const response = await inject(server, { method: 'POST', path, headers, body })
    t.equal(response.status, status, `${path} ${who}`)
    t.same(
      calls.map(call => call.split(' ')[0]),
      expected,
      `${path} ${who}`
    )
  }
  t.same(calls, [
    'authorize /thing/{name} Xé 127.0.0.1',
    'param name=Xé',
    'authorize /thing/{name} xé 127.0.0.1',
    'handler admin xé {"a":1} a b'
  ])
  const wrongMethod = await inject(server, { method: 'DELETE', path: '/thing/X' })
  t.equal(wrongMethod.status, 405)
  t.equal(wrongMethod.headers.allow, 'POST')
})

t.test('answers of every kind', async t => {
  const parts = Array.from({ length: 2000 }, (_, i) => `${i ? ',' : '['}${JSON.stringify('é😀'.repeat(100))}`)
  const table: [name: string, answer: Answer, status: number, type: string | undefined, body: string][] = [
    ['body', { status: 200, body: { a: 'é' } }, 200, 'application/json', '{"a":"é"}\n'],
    ['null', { status: 200, body: null }, 200, 'application/json', 'null\n'],
    ['json', { status: 200, json: '{"a":1}' }, 200, 'application/json', '{"a":1}\n'],
    ['parts', { status: 200, json: ['[', '1', ']'] }, 200, 'application/json', '[1]\n'],
    ['no-parts', { status: 200, json: [] }, 200, 'application/json', '\n'],
    ['many-parts', { status: 200, json: [...parts, ']'] }, 200, 'application/json', `${parts.join('')}]\n`],
    ['text', { status: 200, text: 'é\n' }, 200, 'text/plain; charset=utf-8', 'é\n'],
    ['empty-text', { status: 200, text: '' }, 200, 'text/plain; charset=utf-8', ''],
    ['typed', { status: 200, text: '<a>', type: 'text/html' }, 200, 'text/html', '<a>'],
    ['empty', { status: 204 }, 204, undefined, ''],
    ['204-with-body', { status: 204, body: { message: 'deleted' } }, 204, undefined, ''],
    ['created', { status: 201, body: 1, headers: { 'X-Own': 'y' } }, 201, 'application/json', '1\n'],
    [
      'own-length',
      { status: 200, body: 1, headers: { 'content-length': '99' } },
      200,
      'application/json',
      '1\n'
    ]
  ]
  const { server, port } = await start(
    t,
    table.map(([name, answer]) => route('GET', `/${name}`, () => answer))
  )
  const client = new RawClient(port)
  for (const [name, , status, type, body] of table) {
    const response = await client.send(get(`/${name}`)).response()
    t.equal(response.status, status, name)
    t.equal(response.headers['content-type'], type, name)
    t.equal(
      response.headers['content-length'],
      status === 204 ? undefined : String(Buffer.byteLength(body)),
      name
    )
    t.ok(response.body === body, name)
  }
  client.socket.destroy()
  t.equal((await inject(server, { method: 'GET', path: '/created' })).headers['x-own'], 'y')
})

// rules 1.5, 2.5
t.test('a handler that fails or returns nonsense: 500 without its inside, logged once', async t => {
  const circular: Record<string, unknown> = {}
  circular.self = circular
  const thrown = (value: unknown) => () => {
    throw value
  }
  const trap = new Proxy(new Error('x'), {
    get() {
      throw new Error('trap')
    }
  })
  const table: [name: string, handler: () => unknown, logged: RegExp][] = [
    ['an error', thrown(new Error('secret inside')), /secret inside\n +at /],
    [
      'an error with a cause',
      thrown(new Error('outer', { cause: new Error('inner cause') })),
      /caused by .*inner/
    ],
    ['a rejection', () => Promise.reject(new TypeError('secret later')), /secret later/],
    ['a string', thrown('secret text'), /secret text/],
    ['nothing', thrown(undefined), /type undefined/],
    ['an object', thrown({ password: 'hunter2' }), /type object/],
    ['an error that cannot be read', thrown(trap), /cannot be described/],
    [
      'a ServiceError of no error status',
      thrown(new ServiceError(302, 'secret elsewhere')),
      /secret elsewhere/
    ],
    ['a ServiceError of no status', thrown(new ServiceError(Number.NaN, 'secret')), /secret/],
    ['a ServiceError with a bad header', thrown(new ServiceError(400, 'x', { 'X-A': 'a\r\nb' })), /./],
    ['no answer', () => undefined, /status undefined/],
    ['a number', () => 7, /status undefined/],
    ['no status', () => ({ body: 1 }), /status undefined/],
    ['a status in text', () => ({ status: '200' }), /status 200/],
    ['a redirect', () => ({ status: 302, headers: { Location: '/' } }), /status 302/],
    ['an informational status', () => ({ status: 101 }), /status 101/],
    ['a status beyond', () => ({ status: 600 }), /status 600/],
    ['a circular body', () => ({ status: 200, body: circular }), /circular/],
    ['a BigInt', () => ({ status: 200, body: 1n }), /BigInt/],
    ['a function', () => ({ status: 200, body: () => 1 }), /not JSON/],
    ['text that is none', () => ({ status: 200, text: 5 }), /no string/],
    ['JSON that is none', () => ({ status: 200, json: {} }), /no text/],
    [
      'a header that splits',
      () => ({ status: 200, body: 1, headers: { 'X-A': 'a\r\nSet-Cookie: b' } }),
      /X-A/
    ]
  ]
  const { server, log } = await start(
    t,
    table.map(([, handler], i) => route('GET', `/${i}`, handler as () => Answer))
  )
  for (const [i, [name, , logged]] of table.entries()) {
    log.lines.length = 0
    const response = await inject(server, { method: 'GET', path: `/${i}` })
    t.equal(response.status, 500, name)
    t.equal(response.headers['content-type'], 'application/json', name)
    t.match(JSON.parse(response.body.toString()), { message: /internal error/ }, name)
    t.notMatch(response.body.toString(), /secret|hunter2/, name)
    await until(() => log.lines.some(line => line.startsWith('info')), 'the access line is written')
    const errors = log.lines.filter(line => line.startsWith('error'))
    if (!name.includes('bad header')) {
      t.equal(errors.length, 1, name)
      t.match(errors[0], logged, name)
      t.match(errors[0], new RegExp(`^error GET /${i}: `), name)
    }
    t.notMatch(log.lines.join(), /hunter2/, name)
  }
})

// rules 2.7
t.test('an error of another room goes out as it is; a 502 or 503 is no defect', async t => {
  class ReadOnly extends ServiceError {
    override readonly name = 'ReadOnly'
    constructor(reason: string) {
      super(503, reason)
    }
  }
  const { server, log } = await start(t, [
    route('GET', '/full', () => {
      throw new ReadOnly('the disk is full')
    }),
    route('GET', '/busy', () => {
      throw unavailable('the tracker is away', 'unavailable', new Error('ECONNREFUSED'))
    }),
    route('GET', '/told', () => {
      throw unavailable('the tracker: ECONNREFUSED', 'unavailable', new Error('ECONNREFUSED'))
    }),
    route('GET', '/refused', () => {
      throw new ServiceError(404, 'there is no node n1', { 'X-Why': 'y' })
    }),
    route('GET', '/gateway', () => {
      throw new ServiceError(502, 'the other controller gave no answer')
    }),
    route('GET', '/other', () => {
      throw new ServiceError(507, 'something else')
    })
  ])
  const ask = async (path: string) => {
    const response = await inject(server, { method: 'GET', path })
    return [response.status, JSON.parse(response.body.toString()).message, response.headers['x-why']]
  }
  t.same(await ask('/full'), [503, 'the disk is full', undefined])
  t.same(await ask('/busy'), [503, 'the tracker is away', undefined])
  t.same(await ask('/told'), [503, 'the tracker: ECONNREFUSED', undefined])
  t.same(await ask('/refused'), [404, 'there is no node n1', 'y'])
  for (let i = 0; i < 3; i++)
    t.same(await ask('/gateway'), [502, 'the other controller gave no answer', undefined])
  t.same(await ask('/other'), [507, 'something else', undefined])
  const loud = log.lines.filter(line => /^(warn|error)/.test(line))
  t.match(loud, [
    'warn GET /full: the disk is full',
    'warn GET /busy: the tracker is away: ECONNREFUSED',
    /^warn GET \/told: the tracker: ECONNREFUSED$/,
    // One line a minute: whoever is handed on may cause it.
    'warn GET /gateway: the other controller gave no answer',
    /^error GET \/other: ServiceError: something else\n/
  ])
  t.equal(loud.length, 5)
})

// rules 2.7
t.test(
  'a 503 that anybody can cause does not fill the log; that of a known caller is told each time',
  async t => {
    const broken = (path: string) =>
      route('GET', path, ({ path }) => {
        throw unavailable(`template x.cfg:1:1: it knows no ${path}`)
      })
    const { server, log } = await start(t, [broken('/boot/{mac}'), broken('/other')], {
      authorize: (_, { headers }) => String(headers['x-who']),
      isKnown: caller => caller === 'admin'
    })
    const ask = async (path: string, who: string) =>
      (await inject(server, { method: 'GET', path, headers: { 'x-who': who } })).status
    const told = (path: string) => `warn GET ${path}: template x.cfg:1:1: it knows no ${path}`
    const loud = () => log.lines.splice(0).filter(line => line.startsWith('warn'))
    for (let i = 0; i < 20; i++) t.equal(await ask(`/boot/${i}`, 'stranger'), 503)
    t.equal(await ask('/other', 'stranger'), 503)
    t.same(loud(), [told('/boot/0'), told('/other')], 'the first of each route is told at once')
    for (let i = 0; i < 3; i++) await ask(`/boot/${i}`, 'admin')
    t.same(
      loud(),
      [0, 1, 2].map(i => told(`/boot/${i}`))
    )
  }
)

t.test('the access log: one line, no query, no header, no body, nothing that breaks a line', async t => {
  const { server, log, port } = await start(
    t,
    [
      route('GET', '/boot/{x}', () => ({ status: 200, text: 'script' })),
      route('POST', '/token', () => ({ status: 201, body: { token: 'hunter2' } }))
    ],
    { trustedProxies: ['127.0.0.1'] }
  )
  const headers = { 'x-access-tokens': 'hunter2', 'X-Forwarded-For': '10.0.0.5' }
  await inject(server, { method: 'GET', path: '/boot/a?token=hunter2', headers })
  await inject(server, { method: 'POST', path: '/token', headers, body: '{"password":"hunter2"}' })
  await inject(server, { method: 'POST', path: '/token', headers, body: '{"password":"hunter2",}' })
  await inject(server, { method: 'GET', path: `/boot/${'x'.repeat(5000)}/y` })
  await inject(server, { method: 'HEAD', path: '/boot/a' })
  const client = new RawClient(port).send(Buffer.from(get('/boot/\x1b[2J'), 'latin1'))
  t.equal((await client.response()).status, 400)
  client.socket.destroy()
  await until(() => log.lines.length === 6, 'all are logged')
  t.match(log.lines[0], /^info GET \/boot\/a 200 6 \d+\.\dms 10\.0\.0\.5$/)
  t.match(log.lines[1], /^info POST \/token 201 20 \d+\.\dms 10\.0\.0\.5$/)
  t.match(log.lines[2], /^info POST \/token 400 \d+ \d+\.\dms 10\.0\.0\.5$/)
  t.ok((log.lines[3] as string).length < 400)
  t.match(log.lines[4], /^info HEAD \/boot\/a 200 0 /)
  t.match(log.lines[5], /^info - - 400 - - 127\.0\.0\.1 \(the request is not valid HTTP[^\n]*\)$/)
  t.notMatch(log.lines.join('\n'), /hunter2/)
})

t.test('the source address is what the proxies vouch for', async t => {
  const { server, port } = await start(
    t,
    [route('GET', '/me', ({ source }) => ({ status: 200, body: source }))],
    { trustedProxies: ['127.0.0.1/32'] }
  )
  const me = async (more: string) => {
    const client = new RawClient(port).send(get('/me', more))
    const response = await client.response()
    client.socket.destroy()
    return response
  }
  t.same(JSON.parse((await me('')).body), { address: '127.0.0.1', loopback: true })
  t.same(JSON.parse((await me('X-Forwarded-For: 10.0.0.5\r\n')).body), {
    address: '10.0.0.5',
    loopback: false
  })
  const twice = await me('X-Forwarded-For: 10.0.0.5\r\nX-Forwarded-For: 10.0.0.6\r\n')
  t.same(JSON.parse(twice.body), { address: '10.0.0.6', loopback: false }, 'the last of several lines')
  const wrong = await me('X-Forwarded-For: rubbish\r\n')
  t.equal(wrong.status, 400)
  isRefusal(t, wrong, /X-Forwarded-For/)

  const direct = await inject(server, { method: 'GET', path: '/me', source: '10.0.0.9' })
  t.same(JSON.parse(direct.body.toString()), { address: '10.0.0.9', loopback: false })
  const plain = await start(t, [route('GET', '/me', ({ source }) => ({ status: 200, body: source }))])
  const viaProxy = { method: 'GET', path: '/me', headers: { 'X-Forwarded-For': '10.0.0.5' } }
  const answer = await inject(plain.server, viaProxy)
  t.same(JSON.parse(answer.body.toString()), { address: '127.0.0.1', loopback: false })
})

t.test('the signal fires when the client hangs up, early or late, and never otherwise', async t => {
  const [begun, lateBegun, goOn] = [deferred(), deferred(), deferred()]
  const seen: string[] = []
  const { port, log } = await start(t, [
    route('GET', '/early', async ({ signal }) => {
      begun.resolve()
      await new Promise<void>(resolve => signal.addEventListener('abort', () => resolve()))
      seen.push('early')
      return { status: 200, body: 1 }
    }),
    route('GET', '/late', async request => {
      lateBegun.resolve()
      await goOn.promise
      seen.push(`late ${request.signal.aborted}`)
      return { status: 200, body: 1 }
    }),
    route('GET', '/stays', ({ signal }) => {
      signal.addEventListener('abort', () => seen.push('stays'))
      return { status: 200, body: 1 }
    })
  ])
  const early = new RawClient(port).send(get('/early'))
  await begun.promise
  early.socket.destroy()
  await until(() => seen.includes('early'), 'the signal fires')
  const late = new RawClient(port).send(get('/late'))
  await lateBegun.promise
  late.socket.destroy()
  await until(() => log.lines.length === 2, 'the hang-up is seen')
  goOn.resolve()
  await until(() => seen.includes('late true'), 'a signal asked for later has fired already')
  const stays = new RawClient(port).send(get('/stays'))
  t.equal((await stays.response()).status, 200)
  stays.socket.destroy()
  await until(() => log.lines.length === 3, 'the last is logged')
  t.same(seen, ['early', 'late true'])
  t.notOk(log.lines.some(line => /^(error|warn)/.test(line)))
})
