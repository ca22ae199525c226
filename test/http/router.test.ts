import t from 'tap'
import type { ServiceError } from '../../lib/base/errors.js'
import type { Route } from '../../lib/http/route.js'
import { parseTarget, Router } from '../../lib/http/router.js'

type Row = readonly [method: 'GET' | 'POST', path: string, effect?: 'reads' | 'changes']

const routes = (rows: readonly Row[]): Route<null>[] =>
  rows.map(([method, path, effect = method === 'GET' ? 'reads' : 'changes']) => ({
    method,
    path,
    effect,
    access: 'any',
    body: 'ignored',
    handler: () => ({ status: 200 })
  }))

const router = new Router(
  routes([
    ['GET', '/'],
    ['GET', '/boot'],
    ['GET', '/boot/short'],
    ['GET', '/boot/{file}'],
    ['GET', '/boot/search/{mac}'],
    ['GET', '/boot/search/mac/{mac}'],
    ['GET', '/boot/manual/group/{group}/{mac}', 'changes'],
    ['GET', '/config/network'],
    ['GET', '/config/network/{networkname}'],
    ['POST', '/config/network/{networkname}'],
    ['GET', '/config/network/{networkname}/_list'],
    ['GET', '/config/network/{networkname}/_delete', 'changes'],
    ['POST', '/config/network/{networkname}/_delete'],
    ['POST', '/config/network/{networkname}/_clone'],
    ['GET', '/config/network/{networkname}/{ipaddress}'],
    ['GET', '/a/b/c'],
    ['GET', '/a/{x}/d'],
    ['GET', '/{x}/{y}/e']
  ])
)

t.test('the most specific route is found', async t => {
  const table: [method: string, path: string, route: string, params?: Record<string, string>][] = [
    ['GET', '/', '/'],
    ['GET', '//', '/'],
    ['GET', '/boot', '/boot'],
    ['GET', '/boot/', '/boot'],
    ['GET', '//boot//short/', '/boot/short'],
    ['GET', '/boot/short', '/boot/short'],
    ['GET', '/boot/sho%72t', '/boot/short'],
    ['GET', '/boot/vmlinuz', '/boot/{file}', { file: 'vmlinuz' }],
    ['GET', '/boot/search', '/boot/{file}', { file: 'search' }],
    ['GET', '/boot/search/mac', '/boot/search/{mac}', { mac: 'mac' }],
    ['GET', '/boot/search/mac/52%3A54', '/boot/search/mac/{mac}', { mac: '52:54' }],
    ['HEAD', '/boot/short', '/boot/short'],
    ['GET', '/config/network/_list', '/config/network/{networkname}', { networkname: '_list' }],
    ['GET', '/config/network/n/_list', '/config/network/{networkname}/_list', { networkname: 'n' }],
    [
      'GET',
      '/config/network/n/10.0.0.1',
      '/config/network/{networkname}/{ipaddress}',
      { networkname: 'n', ipaddress: '10.0.0.1' }
    ],
    ['POST', '/config/network/n', '/config/network/{networkname}', { networkname: 'n' }],
    ['GET', '/config/network/%2e%2e', '/config/network/{networkname}', { networkname: '..' }],
    ['GET', '/config/network/__proto__', '/config/network/{networkname}', { networkname: '__proto__' }],
    ['GET', '/a/b/c', '/a/b/c'],
    ['GET', '/a/b/d', '/a/{x}/d', { x: 'b' }],
    ['GET', '/a/b/e', '/{x}/{y}/e', { x: 'a', y: 'b' }],
    ['GET', '/boot/short/e', '/{x}/{y}/e', { x: 'boot', y: 'short' }]
  ]
  for (const [method, path, route, params = {}] of table) {
    const match = router.find(method, parseTarget(path).segments)
    t.equal(match.route.path, route, `${method} ${path}`)
    t.same(match.params, params, `${method} ${path}`)
  }
})

// rules 2.3, 2.5
t.test('what is not there is 404, what is there for other methods 405 with Allow', async t => {
  const table: [method: string, path: string, status: number, allow?: string][] = [
    ['GET', '/bo', 404],
    ['GET', '/Boot', 404],
    ['GET', '/config', 404],
    ['GET', '/config/network/a/b/c', 404],
    ['GET', '/a/b', 404],
    ['GET', '/a/b/c/d', 404],
    ['PUT', '/nothing', 404],
    ['POST', '/boot', 405, 'GET, HEAD'],
    ['POST', '/', 405, 'GET, HEAD'],
    ['PUT', '/config/network/n', 405, 'GET, HEAD, POST'],
    ['DELETE', '/config/network/n', 405, 'GET, HEAD, POST'],
    ['OPTIONS', '/boot', 405, 'GET, HEAD'],
    ['get', '/boot', 405, 'GET, HEAD'],
    ['HEAD', '/config/network/n/_delete', 405, 'GET, POST'],
    ['HEAD', '/config/network/n/_clone', 405, 'POST'],
    ['HEAD', '/boot/manual/group/g/52:54', 405, 'GET'],
    // The fixed segment decides: `_clone` is not looked up as an address.
    ['GET', '/config/network/n/_clone', 405, 'POST']
  ]
  for (const [method, path, status, allow] of table) {
    let error: ServiceError | undefined
    try {
      router.find(method, parseTarget(path).segments)
    } catch (thrown) {
      error = thrown as ServiceError
    }
    t.equal(error?.status, status, `${method} ${path}`)
    t.equal(error?.headers.Allow, allow, `${method} ${path}`)
  }
})

t.test('a table that is ambiguous or malformed is refused', async t => {
  const table: [Row[], RegExp][] = [
    [
      [
        ['GET', '/a'],
        ['GET', '/a']
      ],
      /GET \/a: the same shape as \/a/
    ],
    [
      [
        ['GET', '/a/{x}'],
        ['GET', '/a/{y}']
      ],
      /GET \/a\/\{y\}: the same shape as \/a\/\{x\}/
    ],
    [[['GET', '/{x}/{x}']], /\{x\} stands there twice/],
    [[['GET', 'a']], /malformed path/],
    [[['GET', '/a/']], /malformed path/],
    [[['GET', '/a//b']], /malformed path/],
    [[['GET', '/a{x}']], /malformed path/],
    [[['GET', '/{x}b']], /malformed path/],
    [[['GET', '/{}']], /malformed path/]
  ]
  for (const [rows, message] of table) t.throws(() => new Router(routes(rows)), { message })
  t.doesNotThrow(
    () =>
      new Router(
        routes([
          ['GET', '/a/{x}'],
          ['POST', '/a/{y}'],
          ['GET', '/{x}/a']
        ])
      )
  )
})

t.test('a wide table and a deep path cost nothing much', async t => {
  const wide = new Router(routes(Array.from({ length: 20_000 }, (_, i): Row => ['GET', `/x${i}/{a}`])))
  t.equal(wide.find('GET', ['x19999', 'v']).params.a, 'v')
  const deep = new Router(
    routes(
      Array.from({ length: 2 ** 8 }, (_, bits): Row => {
        const segments = Array.from({ length: 8 }, (_, i) => (bits & (1 << i) ? 's' : `{p${i}}`))
        return ['GET', `/${segments.join('/')}`]
      })
    )
  )
  t.throws(
    () =>
      deep.find(
        'GET',
        Array.from({ length: 8000 }, () => 's')
      ),
    { message: /no route/ }
  )
})

// rules 2.5
t.test('a 405 names what leads there, where something does', async t => {
  const table: [method: string, path: string, says: string][] = [
    ['DELETE', '/config/network/n', 'only GET, HEAD and POST; to delete it: GET /config/network/n/_delete'],
    ['PUT', '/config/network/n', 'only GET, HEAD and POST; to change it: POST /config/network/n'],
    ['PATCH', '/config//network/n%20x/', 'only GET, HEAD and POST; to change it: POST /config/network/n%20x'],
    ['POST', '/config/network', 'only GET and HEAD; to change one: POST /config/network/{networkname}'],
    ['PUT', '/config/network', 'only GET and HEAD; to change one: POST /config/network/{networkname}'],
    [
      'DELETE',
      '/config/network',
      'only GET and HEAD; to delete one: GET /config/network/{networkname}/_delete'
    ],
    ['GET', '/config/network/n/_clone', 'only POST'],
    ['DELETE', '/boot', 'only GET and HEAD'],
    ['OPTIONS', '/config/network/n', 'only GET, HEAD and POST'],
    ['HEAD', '/config/network/n/_delete', 'only GET and POST']
  ]
  for (const [method, path, says] of table)
    t.throws(
      () => router.find(method, parseTarget(path).segments),
      { message: `${method} is not allowed here, ${says}` },
      `${method} ${path}`
    )
})
