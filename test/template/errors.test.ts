import t from 'tap'
import { compileTemplate } from '../../lib/template/compiler.js'
import { TemplateError } from '../../lib/template/errors.js'
import type { Template } from '../../lib/template/template.js'

const compile = (source: string, file: string) => compileTemplate(source, file).render

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
  ['{{ list|first|selectattr(1)|join }}', 1, 29, 'cannot iterate over an integer'],
  ['{{ name|upper|xmlattr }}', 1, 15, 'the filter xmlattr is not part of'],
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
  ['{% set loop.x = 1 %}', 1, 12, 'set with anything but a name'],
  ['{% set a = 1 %}\n{{ a }}{{ 1 + {} }}', 2, 11, 'a map'],
  ['{{ "abc\\u0041" }}', 1, 8, 'the escape \\u'],
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
    maps: `{{ ${'{"a":'.repeat(many)}1${'}'.repeat(many)} }}`,
    minus: `{{ ${'-'.repeat(many)}1 }}`,
    not: `{{ ${'not '.repeat(many)}1 }}`,
    choices: `{{ 1${' if 0 else 1'.repeat(many)} }}`,
    'choices without else': `{{ 1${' if 0'.repeat(many)} }}`,
    filters: `{{ 1${'|string'.repeat(many)} }}`,
    attributes: `{{ map${'.a'.repeat(many)} }}`,
    items: `{{ map${'[0]'.repeat(many)} }}`,
    methods: `{{ name${'.upper()'.repeat(many)} }}`,
    ifs: '{% if 1 %}'.repeat(many) + '{% endif %}'.repeat(many),
    loops: '{% for x in [1] %}'.repeat(many) + '{% endfor %}'.repeat(many),
    captures: '{% set x %}'.repeat(many) + '{% endset %}'.repeat(many)
  }
  for (const [what, source] of Object.entries(hostile))
    t.match(errorOf(source, DATA)?.reason, /nested over \d+ deep$/, what)

  const long = {
    doubled: `{% set x = "aaaaaaaaaaaaaaaa" %}${'{% set x = x ~ x %}'.repeat(60)}{{ x|length }}`,
    indent: '{{ "a\nb"|indent(10000000000) }}'
  }
  for (const [what, source] of Object.entries(long))
    t.match(errorOf(source, DATA)?.reason, 'the text becomes too long', what)
  t.match(errorOf('{{ "a" * 1000000000 }}')?.reason, 'a string * an integer')
  t.match(errorOf(`{{ name|join(${'1,'.repeat(many)}) }}`, DATA)?.reason, 'too many arguments')
})

t.test('a long row is not deep', async t => {
  const many = 5000
  t.equal(compile(`{{ 0${' ~ 0'.repeat(many)} }}`, 'x')({}).length, many + 1)
  t.equal(compile(`{{ 1${' + 1'.repeat(many)} }}`, 'x')({}), String(many + 1))
  t.equal(compile(`{{ 0${' or 0'.repeat(many)} }}`, 'x')({}), '0')
  t.equal(compile(`{{ [${'1,'.repeat(many * 40)}]|length }}`, 'x')({}), String(many * 40))
  t.equal(compile(`{% if 0 %}${'{% elif 0 %}'.repeat(many)}{% else %}x{% endif %}`, 'x')({}), 'x')
  t.equal(compile(`{{ "${'\\n'.repeat(many * 40)}"|length }}`, 'x')({}), String(many * 40))
})

t.test('blocks as deep as they may be, in includes as deep as they may be, fit the stack', async t => {
  const blocks: readonly [open: string, close: string][] = [
    ['x{% if 0 %}{% elif 1 %}y', 'y{% endif %}z'],
    ['x{% for i in [1] %}{% set y = 1 %}', '{{ loop.index }}{% endfor %}z'],
    ['x{% set y %}{% set z = 1 %}a', 'b{% endset %}{{ y }}'],
    ['x{% autoescape true %}{% set z = 1 %}', '{% endautoescape %}z']
  ]
  for (const [open, close] of blocks) {
    const within = (depth: number): string =>
      `${open.repeat(depth)}{% include "main" %}${close.repeat(depth)}`
    let depth = 1
    while (errorOf(within(depth + 1))?.reason !== 'blocks are nested over 50 deep') depth++
    t.equal(depth, 50)
    const main: Template = compileTemplate(within(depth), 'main', () => main)
    t.throws(() => main.render({}), /: includes are nested over 16 deep$/, open)
  }
})

t.test('data that holds itself cannot be written as JSON, or compared without end', async t => {
  const loop: unknown[] = []
  loop.push(loop)
  t.match(errorOf('{{ loop|tojson }}', { loop })?.reason, 'nested over 100 deep')
  const other: unknown[] = []
  other.push(other)
  for (const test of ['loop == other', 'loop in [other]', 'loop is eq other'])
    t.match(errorOf(`{{ ${test} }}`, { loop, other })?.reason, 'nested over 100 deep', test)
})

t.test('names that JavaScript gives every object are nothing, unless the data has them', async t => {
  const names = ['__proto__', 'constructor', 'toString', 'valueOf', 'hasOwnProperty', 'isPrototypeOf', 'at']
  for (const name of [...names, '__defineGetter__', '__lookupGetter__', 'concat', 'prototype', 'caller']) {
    const data = { map: {}, list: [1], text: 'x', number: 1, none: null, one: '1' }
    const isDefined = (what: string): string => compile(`{{ ${what} is defined }}`, 'x')(data)
    for (const map of ['map', '{}', "{'a': 1}"]) {
      t.equal(isDefined(`(${map}).${name}`), 'False', `(${map}).${name}`)
      t.equal(isDefined(`(${map})['${name}']`), 'False', `(${map})['${name}']`)
    }
    for (const value of ['list', 'text', 'number', 'none', '[1]', 'true', 'map.keys()', 'map.items()']) {
      for (const read of [`(${value}).${name}`, `(${value})['${name}']`])
        t.match(
          errorOf(`{{ ${read} is defined }}`, data)?.reason,
          /the attribute|has no item for a string/,
          read
        )
    }
    t.equal(isDefined(name), 'False', name)
    t.equal(compile(`{{ map.get('${name}', 'none') }}{{ '${name}' in map }}`, 'x')(data), 'noneFalse')
    t.ok(errorOf(`{{ [map]|map(attribute='${name}')|join }}`, data), `map ${name}`)
    t.ok(errorOf(`{{ ${name} }}`, data), `printing ${name}`)
    t.ok(errorOf(`{{ map.${name} }}`, data), `printing map.${name}`)
    t.match(errorOf(`{{ map.${name}() }}`, data)?.reason, `the method ${name} is not part of`)
    t.match(errorOf(`{{ ${name}() }}`, data)?.reason, `the function ${name} is not part of`)
    t.match(errorOf(`{{ text|${name} }}`, data)?.reason, `the filter ${name} is not part of`)
    t.match(errorOf(`{{ text is ${name} }}`, data)?.reason, `the test ${name} is not part of`)
    t.match(
      errorOf(`{{ [map]|selectattr('a', '${name}')|join }}`, { map: { a: 1 } })?.reason,
      `the test ${name} is not part of`
    )

    const own = JSON.parse(`{"map": {"${name}": "own"}, "${name}": "top"}`)
    t.equal(compile(`{{ map.${name} }} {{ map['${name}'] }} {{ ${name} }}`, 'x')(own), 'own own top', name)
    t.equal(compile(`{% set ${name} = 5 %}{{ ${name} }}{{ {'${name}': 6}.${name} }}`, 'x')({}), '56')
    t.equal(compile(`{% for ${name} in [5] %}{{ ${name} }}{% endfor %}`, 'x')({}), '5')
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
  const render = compile(
    '{% for x in list %}{% set y = x %}{{ 10 // x }} {% endfor %}{{ y is defined }}',
    'x'
  )
  t.equal(render({ list: [1, 5] }), '10 2 False')
  t.throws(() => render({ list: [1, 0] }), TemplateError)
  t.equal(render({ list: [1, 5] }), '10 2 False')
})
