import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { runSync } from '../../lib/base/concurrency.js'
import { ServiceError } from '../../lib/base/errors.js'
import { MAX_DEPTH, parseStrict, parsingStrict } from '../../lib/http/strict-json.js'

const bytes = (text: string) => Buffer.from(text, 'utf8')
const nested = (depth: number, open = '[', close = ']') => open.repeat(depth) + close.repeat(depth)

/** A test's name in which TAP sees neither an end of line nor the beginning of a subtest. */
const title = (body: string) =>
  `body ${JSON.stringify(body)
    .slice(0, 60)
    .replace(/[^ -~]/g, '?')}...`

function refusal(body: Uint8Array): ServiceError | undefined {
  try {
    parseStrict(body)
  } catch (error) {
    if (error instanceof ServiceError && error.status === 400) return error
    throw error
  }
  return undefined
}

// rules 1.7
t.test('what is not strict JSON is refused with its place', async t => {
  const table: [body: string | Buffer, place: [line: number, column: number], what: RegExp][] = [
    ['', [1, 1], /empty/],
    [' \n\t\r\n ', [1, 1], /empty/],
    ['\ufeff{}', [1, 1], /byte order mark/],
    ['{} x', [1, 4], /end of the body is expected, not x/],
    ['{}{}', [1, 3], /end of the body/],
    ['1 2', [1, 3], /end of the body/],
    ['{"a":1,}', [1, 8], /no comma may follow/],
    ['[1,\n2,\n]', [3, 1], /no comma may follow/],
    ['[,1]', [1, 2], /a value is expected, not ,/],
    ['[1,,2]', [1, 4], /a value is expected/],
    ['{,}', [1, 2], /a key/],
    ['[1 2]', [1, 4], /"," or "]"/],
    ['{"a":1 "b":2}', [1, 8], /"," or "}"/],
    ['{"a" 1}', [1, 6], /":"/],
    ['{"a":}', [1, 6], /a value is expected, not }/],
    ['{"a"}', [1, 5], /":"/],
    ['{a:1}', [1, 2], /a key in double quotes/],
    ["{'a':1}", [1, 2], /a key in double quotes/],
    ["['a']", [1, 2], /a value/],
    ['{1:1}', [1, 2], /a key in double quotes/],
    ['[1}', [1, 3], /"," or "]"/],
    ['{"a":1]', [1, 7], /"," or "}"/],
    [']', [1, 1], /a value/],
    ['{', [1, 2], /the body ends/],
    ['{"a":1', [1, 7], /the body ends/],
    ['{"a":', [1, 6], /the body ends/],
    ['{"a"', [1, 5], /the body ends/],
    ['{"a":1,', [1, 8], /the body ends/],
    ['[1,', [1, 4], /the body ends/],
    ['[1', [1, 3], /the body ends/],
    ['// x\n{}', [1, 1], /comments/],
    ['{} // x', [1, 4], /comments/],
    ['{"a": /* x */ 1}', [1, 7], /comments/],
    ['{"a":1, // x\n"b":2}', [1, 9], /comments|a key/],
    ['[1 /* no end', [1, 4], /comments/],
    ['# x\n{}', [1, 1], /a value is expected/],
    ['{"a":1,"b":2,"a":3}', [1, 14], /the key "a" stands twice/],
    ['{"a":1,\n "\\u0061":3}', [2, 2], /stands twice/],
    ['{"x":{"a":1,"a":1}}', [1, 13], /stands twice/],
    ['[{"":1,"":1}]', [1, 8], /the key "" stands twice/],
    ['{"__proto__":{"admin":true}}', [1, 2], /__proto__/],
    ['{"a":{"\\u005f_proto__":1}}', [1, 7], /__proto__/],
    ['["\\ud800"]', [1, 3], /lone surrogate/],
    ['["\\udc00"]', [1, 3], /lone surrogate/],
    ['["ab\\ud800x"]', [1, 5], /lone surrogate/],
    ['["\\ud800\\ud800"]', [1, 3], /lone surrogate/],
    ['["\\ud800\\u0041"]', [1, 3], /lone surrogate/],
    ['["\\ud83d\\\\ude00"]', [1, 3], /lone surrogate/],
    ['{"\\udfff":1}', [1, 3], /lone surrogate/],
    ['NaN', [1, 1], /a value is expected, not NaN/],
    ['[-Infinity]', [1, 2], /a value/],
    ['[Infinity]', [1, 2], /a value/],
    ['undefined', [1, 1], /a value/],
    ['True', [1, 1], /a value/],
    ['nul', [1, 1], /a value/],
    ['[truex]', [1, 2], /a value/],
    ['[01]', [1, 2], /begin with 0/],
    ['[-01]', [1, 2], /begin with 0/],
    ['[00]', [1, 2], /begin with 0/],
    ['[1.]', [1, 2], /a value/],
    ['[.5]', [1, 2], /a value/],
    ['[+1]', [1, 2], /a value/],
    ['[1e]', [1, 2], /a value/],
    ['[1e+]', [1, 2], /a value/],
    ['[-]', [1, 2], /a value/],
    ['[- 1]', [1, 2], /a value/],
    ['[0x10]', [1, 3], /"," or "]"/],
    ['[1_000]', [1, 3], /"," or "]"/],
    ['[1e400]', [1, 2], /too large/],
    ['[-1e999]', [1, 2], /too large/],
    [`[${'9'.repeat(400)}]`, [1, 2], /too large/],
    ['["a\nb"]', [1, 4], /control character/],
    ['["a\tb"]', [1, 4], /control character/],
    ['["a\u0000b"]', [1, 4], /control character/],
    ['["\u001f"]', [1, 3], /control character/],
    ['["abc]', [1, 2], /no end/],
    ['"', [1, 1], /no end/],
    ['"\\', [1, 2], /escape/],
    ['"\\"', [1, 1], /no end/],
    ['["\\x41"]', [1, 3], /escape/],
    ["['\\'']", [1, 2], /a value/],
    ['["\\\'"]', [1, 3], /escape/],
    ['["\\u12"]', [1, 3], /four hexadecimal/],
    ['["\\u12g4"]', [1, 3], /four hexadecimal/],
    ['["\\u+123"]', [1, 3], /four hexadecimal/],
    ['["\\U0041"]', [1, 3], /escape/],
    ['{}\u0000', [1, 3], /end of the body/],
    ['\u00a0{}', [1, 1], /a value/],
    ['{}\u2028', [1, 3], /end of the body/],
    ['[1]\u000c', [1, 4], /end of the body/],
    ['["ü€😀", x]', [1, 9], /a value is expected, not x/],
    ['{\r\n"a":1,\r"b":2,\n"c":x}', [4, 5], /a value/],
    [nested(MAX_DEPTH + 1), [1, MAX_DEPTH + 1], /deeper than 64/],
    [nested(200_000), [1, MAX_DEPTH + 1], /deeper than 64/],
    ['['.repeat(200_000), [1, MAX_DEPTH + 1], /deeper than 64/],
    ['{"a":'.repeat(200_000), [1, MAX_DEPTH * 5 + 1], /deeper than 64/],
    [Buffer.from([0x22, 0xff, 0x22]), [1, 2], /UTF-8/],
    [Buffer.from([0x5b, 0x0a, 0x22, 0xc3, 0xa9, 0xc3, 0x22]), [2, 3], /UTF-8/],
    [Buffer.from([0x22, 0xc0, 0xaf, 0x22]), [1, 2], /UTF-8/],
    [Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]), [1, 2], /UTF-8/],
    [Buffer.concat([bytes('"\ufffd\ufffd'), Buffer.from([0x80, 0x22])]), [1, 4], /UTF-8/],
    [Buffer.concat([bytes('"\ufffd'), Buffer.from([0xe2])]), [1, 3], /UTF-8/],
    [Buffer.from('{"a":1}', 'utf16le'), [1, 2], /a key/]
  ]
  t.ok(table.length > 40)
  for (const [body, [line, column], what] of table) {
    const name = title(body.toString())
    const message = refusal(typeof body === 'string' ? bytes(body) : body)?.message ?? 'taken'
    t.match(message, new RegExp(`^the body is not valid JSON: line ${line}, column ${column}: `), name)
    t.match(message, what, name)
  }
})

// rules 1.7
t.test('what is strict JSON comes through as it is', async t => {
  const table: [body: string, value: unknown][] = [
    ['{}', {}],
    [' \r\n\t[ ] \n', []],
    ['null', null],
    ['true', true],
    [' false ', false],
    ['0', 0],
    ['-0', -0],
    ['-0.5e-3', -0.5e-3],
    ['1E+2', 100],
    ['1e-400', 0],
    ['1.7976931348623157e308', Number.MAX_VALUE],
    ['""', ''],
    ['"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9"', '"\\/\b\f\n\r\tAé'],
    ['"\\ud83d\\ude00 \\uD83D\\uDE00 😀"', '😀 😀 😀'],
    ['"\\u0000\\u007f\u007f\u2028"', '\u0000\u007f\u007f\u2028'],
    ['"\\\\ud800"', '\\ud800'],
    ['"\\ufeff\ufeff\ufffd"', '\ufeff\ufeff\ufffd'],
    ['{"a":{"a":{"a":[1]}},"b":{"a":1}}', { a: { a: { a: [1] } }, b: { a: 1 } }],
    ['{"A":1,"a":2}', { A: 1, a: 2 }],
    ['{"é":1,"e\u0301":2}', { é: 1, 'e\u0301': 2 }],
    ['{"constructor":1,"prototype":2,"toString":3}', { constructor: 1, prototype: 2, toString: 3 }],
    ['{"comment":"a // b /* c */ \'d\' , } # \\n"}', { comment: "a // b /* c */ 'd' , } # \n" }],
    ['["__proto__"]', ['__proto__']],
    [`[${'1,'.repeat(9999)}1]`, Array.from({ length: 10_000 }, () => 1)]
  ]
  for (const [body, value] of table) t.strictSame(parseStrict(bytes(body)), value, title(body))
  t.equal(refusal(bytes(nested(MAX_DEPTH))), undefined, 'the deepest nesting')
  const half = MAX_DEPTH / 2
  t.equal(refusal(bytes(nested(half, '{"a":[', ']}'))), undefined, 'objects and lists count alike')
  t.match(refusal(bytes(nested(half, '{"a":[', ']}').replace('[]', '[[]]')))?.message, /deeper/)
  const view = Buffer.from('xx{"a":1}xx').subarray(2, 9)
  t.same(parseStrict(view), { a: 1 }, 'a part of a larger buffer')
  t.same(parseStrict(new Uint8Array(view)), { a: 1 }, 'a plain Uint8Array')
})

t.test(
  'the judge agrees with JSON.parse on damaged texts, but for what strict JSON refuses beyond it',
  async t => {
    const seeds = [
      '{"config":{"node":{"n1":{"comment":"a \\"b\\" \\\\ \\n é😀","switchport":-12.5e+3,"list":[1,true,null,{}]}}}}',
      '[0,"\\u0041\\ud83d\\ude00",{"a":[],"b":{"c":""}},false,1e5,10,0.25]'
    ]
    const alphabet = '{}[]",:\\/u0123e+-.tfn \n\t*aA\u0000\u001f\ud83dé'
    let state = 12345
    const random = (below: number) => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0
      return (state >>> 8) % below
    }
    let taken = 0
    for (let round = 0; round < 30_000; round++) {
      let text = seeds[round % seeds.length] as string
      for (let edits = 1 + random(3); edits > 0; edits--) {
        const at = random(text.length)
        const insert = random(3) === 0 ? '' : (alphabet[random(alphabet.length)] as string)
        text = text.slice(0, at) + insert + text.slice(at + random(3))
      }
      // A lone half that an edit made is not UTF-8 and becomes U+FFFD here, the same for both judges.
      const body = bytes(text)
      let parsed: unknown
      let valid = true
      try {
        parsed = JSON.parse(body.toString())
      } catch {
        valid = false
      }
      const message = refusal(body)?.message
      if (message === undefined) {
        taken++
        if (!valid || JSON.stringify(parseStrict(body)) !== JSON.stringify(parsed)) t.fail(`taken: ${text}`)
      } else if (valid && !/stands twice|lone surrogate|too large|deeper/.test(message))
        t.fail(`${message}: ${text}`)
    }
    t.ok(taken > 1000, 'enough of the texts are still valid')
  }
)

t.test('hostile sizes end in an answer, in linear time and memory', async t => {
  const size = 16 * 1024 * 1024
  const table: [name: string, body: Buffer, what: RegExp][] = [
    ['white space', Buffer.alloc(size, ' '), /empty/],
    [
      'white space and rubbish',
      Buffer.concat([Buffer.alloc(size, '\n'), bytes('x')]),
      /line 16777217, column 1/
    ],
    ['an open string of escapes', Buffer.from(`"${'\\n'.repeat(size / 2)}`), /no end/],
    ['digits', Buffer.alloc(size, '1'), /too large/],
    ['a comment', Buffer.from(`/*${' '.repeat(size)}`), /comments/],
    ['a word', Buffer.alloc(size, 'x'), /a value is expected, not x{20}$/],
    [
      'a bad byte at the end',
      Buffer.concat([bytes(`"${'\ufffd'.repeat(size / 4)}`), Buffer.from([0xff])]),
      /UTF-8/
    ],
    [
      'many keys, the last again',
      Buffer.from(`{${Array.from({ length: 500_000 }, (_, i) => `"k${i}":0,`).join('')}"k7":0}`),
      /"k7" stands twice/
    ]
  ]
  for (const [name, body, what] of table) t.match(refusal(body)?.message, what, name)
})

t.test('a value takes no more memory than JSON.parse gives it', async t => {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  const heldBy = (parse: () => unknown) => {
    collect()
    const before = process.memoryUsage().heapUsed
    const value = parse()
    collect()
    const held = process.memoryUsage().heapUsed - before
    t.ok(value)
    return held
  }
  const many = (member: string) => `[${Array(50_000).fill(member).join()}]`
  const members = [
    '{"320":0}',
    '{"a":0,"499":0}',
    '{"9":{"300":0}}',
    '[0]',
    '[[],[0]]',
    '{"1023":0,"7":0}',
    '{}'
  ]
  for (const member of members) {
    const body = bytes(many(member))
    parseStrict(body)
    const [own, known] = [() => parseStrict(body), () => JSON.parse(body.toString())].map(heldBy)
    t.ok(Number(own) < 1.5 * Number(known) + 2 ** 20, `${member}: ${own} bytes, JSON.parse ${known}`)
  }
})

t.test('an object with many fields is the same as JSON.parse makes it', async t => {
  const keys = [...Array(200).keys()].map(i => (i % 3 === 0 ? `k${i}` : String(i * 37)))
  for (const count of [1, 63, 64, 65, 66, 200]) {
    const text = `{${keys.slice(0, count).map((key, i) => `"${key}":${i}`)}}`
    t.equal(JSON.stringify(parseStrict(bytes(text))), JSON.stringify(JSON.parse(text)), `${count} fields`)
    const twice = `${text.slice(0, -1)},"${keys[0]}":1}`
    t.match(refusal(bytes(twice))?.message, /stands twice/)
  }
})

t.test('a long text is parsed in steps, to the same value with the same order of keys', async t => {
  const long = (count: number) =>
    Object.fromEntries(
      Array.from({ length: count }, (_, i) => [
        i % 3 ? `k"${i}` : String(i),
        [[i, 'a,]}"\\', {}, []], { x: 'y,'.repeat(i % 7) }, null, true, -1.5e3][i % 5]
      ])
    )
  const values = [
    long(20_000),
    [long(5_000), 1, [], long(5_000), 'x'],
    { a: 1, large: long(5_000), b: [Array.from({ length: 50_000 }, (_, i) => i)], c: { d: long(5_000) } },
    { only: { one: { inside: long(5_000) } } },
    'x'.repeat(300_000),
    {}
  ]
  for (const value of values)
    for (const space of [0, 1]) {
      const text = JSON.stringify(value, null, space)
      const work = parsingStrict(bytes(` ${text}\n`))
      let steps = 0
      let step = work.next()
      for (; !step.done; step = work.next()) steps++
      t.ok(
        typeof value === 'string' || text.length < 100_000 || steps >= text.length / 70_000,
        `${steps} steps`
      )
      // The text tells the order of the keys too.
      t.ok(JSON.stringify(step.value) === JSON.stringify(value), 'the same value')
    }
  const broken = `[${JSON.stringify(long(5_000))},]`
  t.throws(() => runSync(parsingStrict(bytes(broken))), /no comma may follow the last one/)
})
