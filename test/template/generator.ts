/**
 * Writes random templates over DATA from a grammar: mostly well typed, now and then not, so that both what
 * is rendered and what is refused is compared. What svcd refuses on purpose (STRICTER) is not written.
 */
export class Generator {
  #state: number
  #withIncludes = false

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  /** A template, `main`, and one that it may include. */
  files(): { main: string; part: string } {
    const part = this.#body(1)
    return { main: this.#body(3, true), part }
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

  #body(depth: number, withIncludes = this.#withIncludes): string {
    this.#withIncludes = withIncludes
    let out = ''
    for (let i = Math.floor(this.#random() * 4) + 1; i > 0; i--) out += this.#statement(depth)
    return out
  }

  #statement(depth: number): string {
    const simple = [() => this.#text(), () => this.#print(), () => this.#print(), () => this.#set(depth)]
    if (this.#withIncludes && this.#chance(0.08)) return this.#tag(this.#pick(INCLUDES))
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
    if (name === 'words') return this.#tag(`set words = (${this.#list(1)})|list`)
    const value = name === 'seven' ? this.#number(1) : this.#any(2)
    return this.#tag(`set ${name} = ${this.#chance(0.9) ? `(${value})|default("u")` : value}`)
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
      ['i, x', '{"k": name, "l": 2}.items()'],
      ['i, x', this.#list(1)]
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
      return this.#pick(['0', '1', '2', '7', '10', 'zero', 'one', 'seven', 'negative', 'big', '-1', 'true'])
    }
    const next = depth - 1
    return this.#grouped(
      this.#one(
        () => `${this.#number(next)} ${this.#pick(['+', '-', '*', '//', '%'])} ${this.#number(next)}`,
        () => `${this.#number(next)} ${this.#pick(['+', '-', '*'])} ${this.#number(next)}`,
        () => `-${this.#number(next)}`,
        () => `${this.#list(next)}|length`,
        () => `${this.#string(next)}|length`,
        () => `${this.#any(next)}|int`,
        () => `map.get(${this.#string(0)}, ${this.#number(0)})`,
        () => `map.values()|first`,
        () => `${this.#list(next)}|count`,
        () => `{'a': ${this.#number(0)}, name: 2}[${this.#string(0)}]`,
        () => `numbers[${this.#pick(['0', '-1', '1', '5'])}]`,
        () => `map.${this.#pick(['a', 'b', 'c', 'nope'])}`,
        () => `${this.#number(next)} if ${this.#condition(next)} else ${this.#number(next)}`,
        () => `${this.#any(next)} ${this.#pick(['+', '-', 'and', 'or'])} ${this.#any(next)}`
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
        "'\\n'"
      ])
    }
    const next = depth - 1
    const string = (): string => this.#string(next)
    return this.#grouped(
      this.#one(
        () => `${string()} ~ ${this.#any(next)}`,
        () => `${string()} + ${string()}`,
        () => `${string()} ~ ${string()} ~ ${this.#number(0)}`,
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
        () => `${this.#string(next)} ${compare()} ${this.#string(next)}`,
        () => `${this.#any(next)} ${this.#pick(['==', '!='])} ${this.#any(next)}`,
        () => `${this.#words(next)}|list ${this.#pick(['==', '!='])} ${this.#words(next)}|list`,
        () => `${this.#list(next)} ${this.#pick(['==', '!='])} ${this.#list(next)}`,
        () => `${this.#any(next)} ${this.#pick(['in', 'not in'])} ${this.#list(next)}`,
        () => `${this.#string(next)} in ${this.#string(next)}`,
        () => `${this.#string(next)} in map`,
        () => `not ${this.#condition(next)}`,
        () => `${this.#condition(next)} ${this.#pick(['and', 'or'])} ${this.#condition(next)}`,
        () => `((${this.#any(next)}) is ${this.#pick(['', 'not '])}${this.#pick(TESTS)})`,
        () =>
          `(${this.#pick(['nope', 'name', 'x', 'y', 'map.nope', 'map.a'])} is ${this.#pick(['defined', 'undefined', 'none'])})`,
        () => `((${this.#list(next)}) is ${this.#pick(['mapping', 'string', 'defined'])})`,
        () =>
          `((${this.#number(next)}) is ${this.#pick(['divisibleby 3', 'eq 1', 'equalto(2)', 'lt(5)', 'le 7', 'gt seven', 'ge 2', 'ne 0', 'in numbers'])})`
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
        '[1, 2,]',
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
        () => `interfaces|map(attribute='${this.#pick(['interface', 'mtu', 'vlan', 'provision'])}')`,
        () =>
          `interfaces|sort(attribute='${this.#pick(['interface', 'mtu', 'provision'])}')|map(attribute='mtu')`,
        () => `interfaces|unique(attribute='${this.#pick(['interface', 'mtu'])}')|map(attribute='network')`,
        () => `pairs|map(attribute=${this.#pick(['0', '1', '"0"'])})`,
        () =>
          `interfaces|${this.#pick(['selectattr', 'rejectattr'])}(${this.#pick(["'provision'", "'mtu', 'gt', 1500", "'mtu', '==', 9000", "'vlan', 'defined'", "'vlan'"])})|map(attribute='network')`,
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
      'bare',
      'nested[0]',
      'nested[1:]',
      '[[], {}]',
      '{"k": [1]}'
    ])
  }
}

const LOOP = ['index', 'index0', 'first', 'last', 'length', 'revindex', 'revindex0']
const SLICES = ['0', '-1', ':2', '1:', '-3:-1', '5:1', ':', 'one:seven', '-2:']
const INCLUDES = [
  'include "part"',
  "include 'part' with context",
  'include "part" ignore missing',
  'include "no" ignore missing'
]
const TESTS = [
  'defined',
  'none',
  'string',
  'number',
  'integer',
  'boolean',
  'true',
  'false',
  'odd',
  'even',
  'undefined',
  'mapping'
]
const TEXT_FILTERS = [
  'upper',
  'lower',
  'trim',
  'string',
  'replace("a", "1", 1)',
  'reverse',
  'quote',
  'b64encode',
  'indent',
  'indent(2, true)',
  "indent('> ', blank=true)",
  'first',
  'last',
  'default(1)',
  'd(1, true)'
]
const TEXT_METHODS = [
  'upper()',
  'lower()',
  'strip()',
  "strip('nN')",
  "lstrip('ab ')",
  'rstrip()',
  "replace('e', 'E')",
  "replace('o', '-', 1)",
  "split('o')[0]",
  "startswith('n')",
  "endswith('1')"
]
