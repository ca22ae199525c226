/**
 * Writes random templates over DATA from a grammar: mostly well typed, now and then not, so that both what
 * is rendered and what is refused is compared. What svcd refuses on purpose (STRICTER) is not written.
 */
export class Generator {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  /** One template. */
  template(): string {
    return this.#body(3)
  }

  /** Mulberry32: the same numbers from the same seed, everywhere. */
  #random(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let x = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state)
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32
  }

  #chance(probability: number): boolean {
    return this.#random() < probability
  }

  #pick<T>(choices: readonly T[]): T {
    const choice = choices[Math.floor(this.#random() * choices.length)]
    if (choice === undefined) throw new Error('nothing to pick from')
    return choice
  }

  /** Calls one of the writers. */
  #one(...writers: (() => string)[]): string {
    return this.#pick(writers)()
  }

  #body(depth: number): string {
    let out = ''
    for (let i = Math.floor(this.#random() * 4) + 1; i > 0; i--) out += this.#statement(depth)
    return out
  }

  #statement(depth: number): string {
    const simple = [() => this.#text(), () => this.#print(), () => this.#print(), () => this.#set(depth)]
    if (depth === 0) return this.#one(...simple)
    return this.#one(
      ...simple,
      () => this.#if(depth),
      () => this.#for(depth),
      () => this.#tag('raw') + this.#pick(['{{ x }}', ' {% if %} ', '']) + this.#tag('endraw'),
      () => this.#tag('autoescape false') + this.#body(depth - 1) + this.#tag('endautoescape')
    )
  }

  #text(): string {
    return this.#pick([
      ' ',
      '\n',
      '  \n  ',
      'text',
      'a b\n',
      '$x',
      '"',
      '{',
      '}',
      '{#- c -#}',
      '{# {{ #}',
      '\t-\t',
      'é😀'
    ])
  }

  #tag(inside: string): string {
    const open = this.#pick(['{%', '{%', '{%', '{%-', '{%+'])
    // only raw does not take a plus before its end
    const close = this.#pick(inside === 'raw' ? ['%}', '-%}'] : ['%}', '%}', '%}', '-%}', '+%}'])
    return `${open} ${inside} ${close}`
  }

  #print(): string {
    const value = this.#one(
      () => this.#string(2),
      () => this.#number(2),
      () => this.#boolean(2),
      () => this.#any(2),
      () => `${this.#list(2)}|tojson`,
      () => `${this.#string(1)}|quote`,
      () => `${this.#string(1)} if ${this.#condition(1)}`
    )
    return `${this.#pick(['{{', '{{', '{{-'])} ${value} ${this.#pick(['}}', '}}', '-}}'])}`
  }

  #set(depth: number): string {
    const name = this.#pick(['x', 'y', 'name', 'seven', 'words'])
    if (depth > 0 && this.#chance(0.2))
      return this.#tag(`set ${name}`) + this.#body(depth - 1) + this.#tag('endset')
    if (name === 'words') return this.#tag(`set words = ${this.#list(1)}`)
    if (this.#chance(0.1)) return this.#tag(`set x, y = ${this.#any(1)}, ${this.#any(1)}`)
    return this.#tag(`set ${name} = ${name === 'seven' ? this.#number(1) : this.#any(2)}`)
  }

  #if(depth: number): string {
    let out = this.#tag(`if ${this.#condition(2)}`) + this.#body(depth - 1)
    // two ways at most: releases of jinja2 differ on what is set in all of if, elif and else
    if (this.#chance(0.2)) out += this.#tag(`elif ${this.#condition(2)}`) + this.#body(depth - 1)
    else if (this.#chance(0.5)) out += this.#tag('else') + this.#body(depth - 1)
    return out + this.#tag('endif')
  }

  #for(depth: number): string {
    const [target, over] = this.#pick([
      ['i', this.#list(2)],
      ['i', this.#list(1)],
      ['x', this.#list(1)],
      ['i, x', 'pairs'],
      ['i, x', 'map.items()'],
      ['(i, x)', this.#list(1)]
    ] as const)
    const filter = this.#chance(0.15) ? ` if ${this.#condition(1)}` : ''
    const first = this.#chance(0.6) ? `{{ loop.${this.#pick(LOOP)} }}` : ''
    const otherwise = this.#chance(0.3) ? this.#tag('else') + this.#body(depth - 1) : ''
    return (
      this.#tag(`for ${target} in ${over}${filter}`) +
      first +
      this.#body(depth - 1) +
      otherwise +
      this.#tag('endfor')
    )
  }

  /** Sometimes in parentheses, so that precedence matters in the rest. */
  #grouped(text: string): string {
    return this.#chance(0.5) ? `(${text})` : text
  }

  #condition(depth: number): string {
    return this.#chance(0.7) ? this.#boolean(depth) : this.#any(depth)
  }

  #any(depth: number): string {
    if (this.#chance(0.05))
      return this.#pick(['nope', 'map.nope', 'numbers[7]', 'nope|default("d")', 'none', 'i', 'loop.index'])
    return this.#one(
      () => this.#string(depth),
      () => this.#number(depth),
      () => this.#boolean(depth),
      () => this.#pick(['x', 'y', 'name', 'seven', 'nothing'])
    )
  }

  #number(depth: number): string {
    if (depth === 0 || this.#chance(0.2)) {
      return this.#pick([
        '0',
        '1',
        '2',
        '7',
        '1.5',
        '0.25',
        '10',
        'zero',
        'one',
        'seven',
        'negative',
        'half',
        'third',
        '2 ** 3',
        '-1',
        'true'
      ])
    }
    const next = depth - 1
    return this.#grouped(
      this.#one(
        () => `${this.#number(next)} ${this.#pick(['+', '-', '*', '/', '//', '%'])} ${this.#number(next)}`,
        () => `${this.#number(next)} ${this.#pick(['+', '-', '*'])} ${this.#number(next)}`,
        () => `-${this.#number(next)}`,
        () => `${this.#list(next)}|length`,
        () => `${this.#string(next)}|length`,
        () => `${this.#any(next)}|int`,
        () => `${this.#number(next)}|abs`,
        () => `${this.#number(next)}|round(${this.#pick(['', '1', '2', '-1', "0, 'floor'", "1, 'ceil'"])})`,
        () => `numbers[${this.#pick(['0', '-1', '1', '5'])}]`,
        () => `map.${this.#pick(['a', 'b', 'c', 'nope'])}`,
        () => `${this.#number(next)} if ${this.#condition(next)} else ${this.#number(next)}`,
        () => `${this.#any(next)} ${this.#pick(['+', '*', '-', 'and', 'or'])} ${this.#any(next)}`
      )
    )
  }

  #string(depth: number): string {
    if (depth === 0 || this.#chance(0.2)) {
      return this.#pick([
        "'a'",
        '"b c"',
        'name',
        'text',
        'unicode',
        'lines',
        'padded',
        'mixed',
        'empty',
        'digits',
        "'x' 'y'",
        "'\\n'"
      ])
    }
    const next = depth - 1
    const string = (): string => this.#string(next)
    return this.#grouped(
      this.#one(
        () => `${string()} ~ ${this.#any(next)}`,
        () => `${string()} + ${string()}`,
        () => `${string()} * ${this.#pick(['0', '1', '2', 'seven'])}`,
        () => `${string()}|${this.#pick(TEXT_FILTERS)}`,
        () => `${string()}|${this.#pick(TEXT_FILTERS)}`,
        () => `${this.#any(next)}|${this.#pick(TEXT_FILTERS)}`,
        () => `(${string()}).${this.#pick(TEXT_METHODS)}`,
        () => `${string()}|replace(${string()}, ${string()})`,
        () => `(${string()})[${this.#pick(SLICES)}]`,
        () => `${this.#words(next)}|join(${this.#pick(['', "','", "'-'"])})`,
        () => `${this.#words(next)}|${this.#pick(['first', 'last'])}`,
        () =>
          `interfaces[${this.#pick(['0', '1', '-1', '9'])}].${this.#pick(['interface', 'network', 'mtu', 'vlan'])}`,
        () =>
          `${this.#pick(['nope', 'name', 'empty', 'nothing'])}|default(${this.#any(next)}${this.#pick(['', ', true'])})`,
        () => `${string()} if ${this.#condition(next)} else ${this.#any(next)}`,
        () => `${this.#any(next)} ${this.#pick(['and', 'or'])} ${string()}`
      )
    )
  }

  #boolean(depth: number): string {
    if (depth === 0) return this.#pick(['yes', 'no', 'true', 'false', 'one', 'empty', 'nothing', 'noitems'])
    const next = depth - 1
    const compare = (): string => this.#pick(['==', '!=', '<', '<=', '>', '>='])
    return this.#grouped(
      this.#one(
        () => `${this.#number(next)} ${compare()} ${this.#number(next)}`,
        () => `${this.#number(next)} ${compare()} ${this.#number(next)} ${compare()} ${this.#number(next)}`,
        () => `${this.#string(next)} ${compare()} ${this.#string(next)}`,
        () => `${this.#any(next)} ${this.#pick(['==', '!='])} ${this.#any(next)}`,
        () => `${this.#words(next)}|list ${compare()} ${this.#words(next)}|list`,
        () => `${this.#list(next)} ${this.#pick(['==', '!='])} ${this.#list(next)}`,
        () => `${this.#any(next)} ${this.#pick(['in', 'not in'])} ${this.#list(next)}`,
        () => `${this.#string(next)} in ${this.#string(next)}`,
        () => `${this.#string(next)} in map`,
        () => `not ${this.#condition(next)}`,
        () => `${this.#condition(next)} ${this.#pick(['and', 'or'])} ${this.#condition(next)}`,
        () => `((${this.#any(next)}) is ${this.#pick(['', 'not '])}${this.#pick(TESTS)})`,
        () =>
          `(${this.#pick(['nope', 'name', 'x', 'y', 'map.nope', 'map.a'])} is ${this.#pick(['defined', 'undefined', 'none'])})`,
        () => `((${this.#list(next)}) is ${this.#pick(['sequence', 'mapping', 'iterable', 'string'])})`,
        () =>
          `((${this.#number(next)}) is ${this.#pick(['divisibleby 3', 'eq 1', 'lt(5)', 'gt seven', 'ne 0'])})`
      )
    )
  }

  /** A list whose items can be printed. */
  #words(depth: number): string {
    if (depth === 0 || this.#chance(0.3)) {
      return this.#pick([
        'words',
        'numbers',
        'noitems',
        'map',
        '["q", 1, none]',
        '(1, 2)',
        'map.keys()',
        'name',
        '"a,b".split(",")'
      ])
    }
    const next = depth - 1
    return this.#grouped(
      this.#one(
        () => `[${this.#any(next)}, ${this.#any(next)}]`,
        () =>
          `${this.#words(next)}|${this.#pick(['sort', 'list', 'reverse', 'unique', 'sort(reverse=true)', 'unique(true)', 'sort(case_sensitive=true)'])}`,
        () => `${this.#words(next)}|map('${this.#pick(['upper', 'string', 'length', 'int', 'default'])}')`,
        () =>
          `interfaces|map(attribute='${this.#pick(['interface', 'mtu', 'vlan', 'provision'])}'${this.#pick(['', ', default=0'])})`,
        () =>
          `interfaces|${this.#pick(['selectattr', 'rejectattr'])}(${this.#pick(["'provision'", "'mtu', 'gt', 1500", "'vlan', 'defined'", "'vlan'"])})|map(attribute='network')`,
        () => `(${this.#words(next)}|list)[${this.#pick(SLICES)}]`,
        () => `(${this.#string(next)}).split(${this.#pick(['', "' '", "'o', 1", 'none, 2'])})`,
        () => `(${this.#words(next)}|list) + [${this.#number(next)}]`
      )
    )
  }

  #list(depth: number): string {
    if (this.#chance(0.7)) return this.#words(depth)
    return this.#pick([
      'nested',
      'pairs',
      'interfaces',
      'map.items()',
      'bare',
      'nested[0]',
      '[[], {}]',
      'pairs|sort',
      '{"k": [1]}',
      '()'
    ])
  }
}

const LOOP = ['index', 'index0', 'first', 'last', 'length', 'revindex', 'revindex0']
const SLICES = ['0', '-1', ':2', '1:', '::2', '::-1', '-3:-1', '5:1:-2', ':']
const TESTS = [
  'defined',
  'none',
  'string',
  'number',
  'integer',
  'float',
  'boolean',
  'true',
  'false',
  'odd',
  'even',
  'iterable',
  'sequence'
]
const TEXT_FILTERS = [
  'upper',
  'lower',
  'title',
  'capitalize',
  'trim',
  "trim('ab')",
  'string',
  'reverse',
  'quote',
  'b64encode',
  'indent',
  'indent(2, true)',
  "indent('> ', blank=true)",
  'first',
  'last',
  'default(1)'
]
const TEXT_METHODS = [
  'upper()',
  'lower()',
  'title()',
  'capitalize()',
  'strip()',
  "lstrip('ab ')",
  'rstrip()',
  "replace('e', 'E')",
  "replace('', '-', 3)",
  "split('o')[0]",
  "startswith('n')",
  "endswith(('1', 'b'))",
  'join(["1", "2"])'
]
