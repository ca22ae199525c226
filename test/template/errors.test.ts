import t from 'tap'
import { compile, TemplateError } from '../../lib/template/templates.js'

function errorOf(source: string, data: Record<string, unknown> = {}): TemplateError | undefined {
  try {
    compile(source, 'x.cfg')(data)
  } catch (error) {
    if (error instanceof TemplateError) return error
    throw error
  }
  return undefined
}

const DATA = { name: 'n', list: [1], map: { a: 1 } }

/** Source, where the error is, and a word that the message holds. */
const PLACES: readonly [source: string, line: number, column: number, says: string][] = [
  ['text\n{{ nope }}', 2, 4, "'nope'"],
  ['{{ name ~ nope }}', 1, 11, "'nope'"],
  ['é😀 {{ nope }}', 1, 7, "'nope'"],
  ['a\r\nb\r\n{{ nope }}', 3, 4, "'nope'"],
  ['\n{{ map.b }}', 2, 8, "'b'"],
  ['\n{{ map["b"] }}', 2, 8, "'b'"],
  ['{% if\n  nope\n%}{% endif %}', 2, 3, "'nope'"],
  ['{% for x in\n nope %}{% endfor %}', 2, 2, "'nope'"],
  ['{% set x = nope %}\n{{ x }}', 1, 12, "'nope'"],
  ['{{ list }}', 1, 4, 'list'],
  ['{{ 1 +\n list }}', 1, 4, 'integer'],
  ['{{ name|upper|abs }}', 1, 15, 'abs'],
  ['{{ name|\n nosuch }}', 2, 2, 'nosuch'],
  ['{{ name is nosuch }}', 1, 12, 'nosuch'],
  ['{{ name|replace("a") }}', 1, 9, 'new'],
  ['\n\n{% nosuch %}', 3, 4, 'nosuch'],
  ['{% endif %}', 1, 4, 'endif'],
  ['{% for x in list %}\n{% endif %}', 2, 4, 'for'],
  ['x\n {% if name %}\n{% for x in list %}{% endfor %}\n', 2, 5, 'endif'],
  ['{% if name %}{% else %}', 1, 4, 'endif'],
  ['{% for x in list %}{% if x %}', 1, 23, 'endif'],
  ['\n{{ name\n', 2, 1, '}}'],
  ['\n {% if name\n', 2, 2, '%}'],
  ['\n {# x', 2, 2, '#}'],
  ['a\n{% raw %}{{', 2, 1, 'endraw'],
  ["{{ 'abc }}", 1, 4, 'string'],
  ['{{ a ? b }}', 1, 6, '?'],
  ['{{ (1] }}', 1, 6, ')'],
  ['{{ }}', 1, 4, 'expression'],
  ['{% set loop.x = 1 %}', 1, 12, 'expected'],
  ['{% include\n"nosuch" %}', 1, 4, 'nosuch']
]

// rules 4.20, 4.11
t.test('every error stands at its place and says what is wrong', async t => {
  for (const [source, line, column, says] of PLACES) {
    const error = errorOf(source, DATA)
    t.match(error, { file: 'x.cfg', line, column }, source)
    t.match(error?.reason, says, source)
    t.equal(error?.message, `x.cfg:${line}:${column}: ${error?.reason}`)
  }
})

t.test('depth and length have an end: an error, not a crash', async t => {
  const many = 50_000
  const hostile = {
    parentheses: `{{ ${'('.repeat(many)}1${')'.repeat(many)} }}`,
    lists: `{{ ${'['.repeat(many)}${']'.repeat(many)} }}`,
    maps: `{{ ${'{1:'.repeat(many)}1${'}'.repeat(many)} }}`,
    minus: `{{ ${'-'.repeat(many)}1 }}`,
    not: `{{ ${'not '.repeat(many)}1 }}`,
    sum: `{{ 1${' + 1'.repeat(many)} }}`,
    or: `{{ 0${' or 0'.repeat(many)} }}`,
    choices: `{{ 1${' if 0 else 1'.repeat(many)} }}`,
    filters: `{{ 1${'|string'.repeat(many)} }}`,
    attributes: `{{ map${'.a'.repeat(many)} }}`,
    calls: `{{ name${'()'.repeat(many)} }}`,
    ifs: '{% if 1 %}'.repeat(many) + '{% endif %}'.repeat(many),
    loops: '{% for x in [1] %}'.repeat(many) + '{% endfor %}'.repeat(many),
    targets: `{% set ${'('.repeat(many)}x${')'.repeat(many)} = 1 %}`,
    text: '{{ "a" * 1000000000 }}',
    doubled: `{% set x = "aaaaaaaaaaaaaaaa" %}${'{% set x = x ~ x %}'.repeat(60)}{{ x|length }}`,
    list: '{{ ([1] * 1000000000)|length }}',
    indent: '{{ "a\nb"|indent(10000000000) }}'
  }
  for (const [what, source] of Object.entries(hostile)) t.ok(errorOf(source, DATA), what)
  t.equal(compile(`{{ 0${' ~ 0'.repeat(5000)} }}`, 'x')({}).length, 5001, 'a long row is not deep')
  t.equal(compile(`{% if 0 %}${'{% elif 0 %}'.repeat(5000)}{% else %}x{% endif %}`, 'x')({}), 'x')
})

t.test('data that holds itself cannot be written as JSON or compared without end', async t => {
  const loop: unknown[] = []
  loop.push(loop)
  t.ok(errorOf('{{ loop|tojson }}', { loop }))
  const other: unknown[] = []
  other.push(other)
  t.ok(errorOf('{{ loop == other }}', { loop, other }))
})

t.test('names that JavaScript gives every object are undefined, unless the data has them', async t => {
  const names = ['__proto__', 'constructor', 'toString', 'valueOf', 'hasOwnProperty', 'isPrototypeOf', 'at']
  for (const name of [...names, '__defineGetter__', '__lookupGetter__', 'concat', 'prototype', 'caller']) {
    const data = { map: {}, list: [1], text: 'x', number: 1, none: null, one: '1' }
    const isDefined = (what: string): string => compile(`{{ ${what} is defined }}`, 'x')(data)
    for (const value of [
      'map',
      'list',
      'text',
      'number',
      '{}',
      "{'a': 1}",
      '[1]',
      'true',
      'map.keys()',
      'text.upper'
    ]) {
      t.equal(isDefined(`(${value}).${name}`), 'False', `(${value}).${name}`)
      t.equal(isDefined(`(${value})['${name}']`), 'False', `(${value})['${name}']`)
    }
    t.equal(isDefined(name), 'False', name)
    t.equal(compile(`{{ map.get('${name}', 'none') }}{{ '${name}' in map }}`, 'x')(data), 'noneFalse')
    t.equal(compile(`{{ [map]|map(attribute='${name}', default='none')|join }}`, 'x')(data), 'none')
    t.ok(errorOf(`{{ ${name} }}`, data), `printing ${name}`)
    t.ok(errorOf(`{{ map.${name} }}`, data), `printing map.${name}`)
    t.ok(errorOf(`{{ map.${name}() }}`, data), `calling map.${name}`)
    t.ok(errorOf(`{{ text|${name} }}`, data), `the filter ${name}`)
    t.ok(errorOf(`{{ text is ${name} }}`, data), `the test ${name}`)
    t.ok(errorOf(`{{ [text]|map('${name}')|join }}`, data), `the mapped filter ${name}`)

    const own = JSON.parse(`{"map": {"${name}": "own"}, "${name}": "top"}`)
    t.equal(compile(`{{ map.${name} }} {{ map['${name}'] }} {{ ${name} }}`, 'x')(own), 'own own top', name)
    t.equal(compile(`{% set ${name} = 5 %}{{ ${name} }}{{ {'${name}': 6}.${name} }}`, 'x')({}), '56')
  }
})

t.test('data is never changed, and never run', async t => {
  const data = {
    map: { a: [2, 1] },
    list: ['b', 'a'],
    code: '${process.exit(1)} {{ nope }} `x`',
    run: () => 'ran'
  }
  const before = JSON.stringify(data)
  const source =
    '{% set list = list|sort %}{% set map = {} %}{{ ([3] + [1])|sort|join }}{{ code }}' +
    '{% for a in list|reverse %}{{ a }}{% endfor %}{{ (list + [1])|join }}{{ run is defined }}'
  t.equal(compile(source, 'x')(data), `13${data.code}baab1True`)
  t.equal(JSON.stringify(data), before)
  t.ok(errorOf('{{ run() }}', data), 'a function in the data is not called')
  t.ok(errorOf('{{ run }}', data), 'nor printed')
  t.equal(
    compile('{{ a }}{{ b is defined }}{{ c is none }}', 'x')({ a: 1, b: undefined, c: null }),
    '1FalseTrue'
  )
})

t.test('a template can be rendered again, after an error too', async t => {
  const render = compile('{% for x in list %}{% set y = x %}{{ 10 / x }} {% endfor %}{{ y is defined }}', 'x')
  t.equal(render({ list: [1, 5] }), '10.0 2.0 False')
  t.throws(() => render({ list: [1, 0] }), TemplateError)
  t.equal(render({ list: [1, 5] }), '10.0 2.0 False')
})
