import t from 'tap'
import { literal, refused } from '../support/refused.js'
import { bodyOf, complaints, pathOf, populated, table } from '../support/routes.js'
import { read, stored } from '../support/state.js'

const maxBody = 64 * 1024
const c = await populated(t, 'http.max_body=64k')
/** Refused for their address before their body is read: test/trust has theirs. */
const isOfMachine = ({ path }: { readonly path: string }) => path.startsWith('/trust/')
const posts = table.filter(route => route.body === 'json' && !isOfMachine(route))

const malformed: readonly (string | Buffer)[] = [
  '',
  ' ',
  '\n\t',
  '{',
  '}',
  '[',
  '{"comment"',
  '{"comment":',
  '{"comment":}',
  '{"comment":"x"',
  '{"comment":"x}',
  '{"comment":"x",}',
  '{,}',
  '{"comment" "x"}',
  '{comment:"x"}',
  "{'comment':'x'}",
  '{"comment":x}',
  '{"comment":undefined}',
  '{"comment":NaN}',
  '{"comment":Infinity}',
  '{"comment":-Infinity}',
  '{"comment":1e999}',
  '{"comment":01}',
  '{"comment":+1}',
  '{"comment":.5}',
  '{"comment":1.}',
  '{"comment":0x10}',
  '{"comment":True}',
  '{"comment":"a\tb"}',
  '{"comment":"a\nb"}',
  '{"comment":"a\0b"}',
  '{"comment":"\\x41"}',
  '{"comment":"\\u12"}',
  '{"comment":"\\ud800"}',
  '{"comment":"\\udc00\\ud800"}',
  '{"comment":"x"}}',
  '{"comment":"x"} {}',
  '{"comment":"x"}//',
  '/* x */{"comment":"x"}',
  '{"comment":"x","comment":"x"}',
  '{"comment":"x","\\u0063omment":"y"}',
  '{"config":{"group":{}},"config":{}}',
  '\ufeff{"comment":"x"}',
  '{"comment":"x"}\0',
  '{"comment":[1,]}',
  '{"comment":[,1]}',
  `{"comment":${'['.repeat(64)}${']'.repeat(64)}}`,
  `{"comment":${'['.repeat(20_000)}`,
  `${'{"a":'.repeat(65)}1${'}'.repeat(65)}`,
  'comment=x&name=y',
  '<xml/>',
  Buffer.from([0x7b, 0x22, 0x61, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
  Buffer.from('{"comment":"\u00e9"}', 'latin1'),
  Buffer.from([...Buffer.from('{"comment":"'), 0xed, 0xa0, 0x80, 0x22, 0x7d]),
  Buffer.from([...Buffer.from('{"comment":"'), 0xc0, 0xaf, 0x22, 0x7d]),
  Buffer.from('\ufeff{"comment":"x"}', 'utf16le')
]

// rules 1.7
t.test('malformed JSON: 400 with line and column on every route that takes a body', async t => {
  t.equal(new Set(malformed.map(String)).size >= 30, true)
  const fits = (route: (typeof posts)[number]) => (body: string | Buffer) =>
    body.length <= (route.maxBody ?? maxBody)
  // One parser reads the bodies of all: one route gets every text, each of the others one of them.
  const whole = posts.find(route => malformed.every(fits(route)))
  t.ok(whole)
  for (const [i, route] of posts.entries()) {
    const some = malformed.filter(fits(route))
    const bodies = route === whole ? some : some.slice(i % some.length, (i % some.length) + 1)
    await refused(
      t,
      c,
      pathOf(route),
      bodies.map(body => [body, /line \d+, column \d+/])
    )
  }
})

t.test('well-formed JSON that is no such body', async t => {
  const bodies = [
    null,
    5,
    true,
    'x',
    [],
    [{}],
    { config: null },
    { config: [] },
    { config: 5 },
    { config: {} }
  ]
  const keys = [
    'nonsense',
    'constructor',
    'toString',
    'hasOwnProperty',
    'valueOf',
    '',
    'Name',
    ' comment',
    'x\ny'
  ]
  for (const route of posts) {
    await refused(
      t,
      c,
      pathOf(route),
      // No secret at all is a list like any other, and one secret may stand in a list.
      bodies
        .filter(body => !(route.path.startsWith('/config/secrets') && Array.isArray(body)))
        .map(body => [JSON.stringify(body)])
    )
    const fields = bodyOf(route) as object
    await refused(
      t,
      c,
      pathOf(route),
      keys.map(key => [{ ...fields, [key]: 'x' }, literal(key)])
    )
    await refused(t, c, pathOf(route), [[`{"__proto__":{"comment":"x"}}`], [`{"config":{"__proto__":{}}}`]])
  }
  t.equal(({} as { comment?: string }).comment, undefined)
})

// rules 2.5
t.test('a body over [http] max_body is 413, on routes that drop it too', async t => {
  const before = await stored(c)
  const big = JSON.stringify({ comment: 'x'.repeat(maxBody) })
  for (const route of table.filter(route => route.method === 'POST' && !isOfMachine(route))) {
    const { status, body } = await c.post(pathOf(route), big)
    t.equal(status, 413, `${route.method} ${route.path}`)
    t.match(body.message, new RegExp(` ${Math.min(route.maxBody ?? maxBody, maxBody)} bytes`))
    const chunked = await c.raw('POST', pathOf(route), big, {
      'x-access-tokens': c.token,
      'transfer-encoding': 'chunked'
    })
    t.equal(chunked.status, 413, `${route.method} ${route.path}, chunked`)
  }
  t.same(await stored(c), before)
  const comment = 'x'.repeat(maxBody - '{"comment":""}'.length)
  t.equal((await c.post('/config/group/large', { comment })).status, 201)
  t.equal((await read(c, 'group', 'large')).comment, comment)
  t.same(complaints(c), [])
})
