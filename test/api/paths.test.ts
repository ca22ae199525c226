import t from 'tap'
import { bodyOf, complaints, parameters, pathOf, populated, table } from '../support/routes.js'
import { stored } from '../support/state.js'

const c = await populated(t)
const headers = { 'x-access-tokens': c.token, 'content-type': 'application/json' }

/** As they are sent → why no object has such a name: 404 where it decodes to a slash or a NUL, else 400. */
const tricks: Readonly<Record<string, 400 | 404>> = {
  '..': 400,
  '.': 400,
  '...': 400,
  '%2e': 400,
  '%2e%2e': 400,
  '%2E.': 400,
  '%2f': 404,
  'a%2fb': 404,
  '..%2f..%2fetc%2fpasswd': 404,
  '%2e%2e%2Fstate%2Ftoken.key': 404,
  '%00': 404,
  'n1%00': 404,
  'compute%00.json': 404,
  '%zz': 400,
  '%': 400,
  'a%2': 400,
  '%c0%ae': 400,
  '%c0%ae%c0%ae%c0%af': 400,
  '%ff': 400,
  '%ed%a0%80': 400,
  '\u00e9': 400,
  '%c3%a9': 400,
  '%e2%80%ae1n': 400,
  '%ef%bc%8e%ef%bc%8e': 400,
  '%20': 400,
  'n1%20': 400,
  'n1%0a': 400,
  'n1%0d%0aX-Evil:%201': 400,
  '%5c..%5c': 400,
  '..\\..': 400,
  'a:b;c': 400,
  'a%3fb': 400,
  'a%23b': 400,
  '%252e%252e': 400,
  '$(id)': 400,
  "';--": 400,
  [`n${'x'.repeat(300)}`]: 400
}

// rules 3.1
t.test('a path that is no name is refused on every route, over a socket, and changes nothing', async t => {
  const before = await stored(c)
  for (const route of table)
    for (const parameter of parameters(route)) {
      const wrong: string[] = []
      const isFile = ['file', 'tarball', 'sha256', 'pagefile', 'request_id'].includes(parameter)
      for (const [trick, reason] of Object.entries(tricks)) {
        const path = pathOf(route, { [parameter]: trick })
        const body = route.body === 'json' ? JSON.stringify(bodyOf(route)) : undefined
        const { status, body: answer, headers: got } = await c.raw(route.method, path, body, headers)
        const undecodable = reason === 400 && /%(?![\da-f]{2})|%c0|%ff|%ed|\u00e9/i.test(trick)
        const expected = isFile && !undecodable ? 404 : reason
        const { message, code, ...rest } = answer ?? {}
        if (status !== expected) wrong.push(`${trick}: ${status}`)
        if (got['content-type'] !== 'application/json') wrong.push(`${trick}: ${got['content-type']}`)
        const isWhole = typeof message === 'string' && message !== '' && typeof code === 'string'
        if (!isWhole || Object.keys(rest).length > 0 || 'x-evil' in got)
          wrong.push(`${trick}: ${JSON.stringify(answer)}`)
      }
      t.same(wrong, [], `${route.method} ${route.path}: {${parameter}}`)
    }
  t.same(await stored(c), before)
  t.same(complaints(c), [])
})

// rules 3.1
t.test('no path climbs out of its route', async t => {
  const before = await stored(c)
  const unknown = [
    '/config/../config/node/n1',
    '/config/node/x/../n1',
    '/config/node/x/..%2fn1',
    '/%2e/config/node/n1',
    '/config%2fnode%2fn1',
    '/files/../state/token.key',
    '/files/..%2f..%2fstate%2ftoken.key',
    '/boot/../files/compute.tar.gz',
    '/boot/roles/../../state/admin-password',
    '/boot/./disk',
    '/config/node/n1/_delete/..',
    '/CONFIG/node/n1',
    '/config/node/n1/_DELETE',
    '/config/Node/n1'
  ]
  for (const path of unknown) {
    const { status, body } = await c.raw('GET', path, undefined, headers)
    t.equal(status, 404, path)
    t.type(body.message, 'string')
  }
  t.same(await stored(c), before)
  t.equal((await c.get('/config/node/n1')).status, 200)
})

const types = [
  'group',
  'node',
  'network',
  'osimage',
  'bmcsetup',
  'switch',
  'otherdev',
  'filename',
  'disklayout'
]

/** The path with its slashes doubled, and three at its end; the query as it is. */
const doubled = (path: string) => path.replace(/^[^?]*/, bare => `/${bare.replaceAll('/', '//')}///`)

// rules 3.1
t.test('slashes are folded: the answer is that of the path without them', async t => {
  for (const route of table) {
    const body = route.body === 'json' ? JSON.stringify(bodyOf(route)) : undefined
    // What changes something is asked of objects that are not there.
    const none = Object.fromEntries(types.map(type => [type, 'none']))
    none.request_id = '0'.repeat(32)
    const harmless = route.effect === 'reads' || route.body === 'json' ? {} : { ...none, groupname: 'none' }
    const given = route.path.endsWith('_clone') ? none : harmless
    const path = pathOf(route, given)
    const plain = await c.raw(route.method, path, body, headers)
    const folded = await c.raw(route.method, doubled(path), body, headers)
    // Its counters count the first of the two requests.
    const masked = (text: string) => (route.path === '/metrics' ? '' : text.replace(/ey[\w.-]+/g, 'TOKEN'))
    t.same(
      [folded.status, masked(folded.text)],
      [plain.status, masked(plain.text)],
      `${route.method} ${route.path}`
    )
  }
  t.same(complaints(c), [])
})
