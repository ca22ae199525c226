import {
  type Arguments,
  type Arithmetic,
  type Comparison,
  type Expression,
  operands,
  type Unplaced
} from './ast.js'
import type { Source, TemplateError } from './errors.js'
import type { Token } from './lexer.js'
import { float } from './values.js'

const DEEPEST_EXPRESSION = 200
const CONSTANTS = new Map<string, unknown>([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null]
])
const COMPARISONS: readonly Comparison[] = ['==', '!=', '<', '<=', '>', '>=']

/** Reads expressions with jinja2's precedence, lowest first: if, or, and, not, comparison, + -, ~, * / // %, **, unary. */
export class ExpressionParser {
  /** Loops that are open. */
  protected loops = 0
  /** Times that the variable `loop` was read so far. */
  protected loopReads = 0
  readonly #source: Source
  readonly #tokens: readonly Token[]
  #position = 0
  #depth = 0

  constructor(source: Source, tokens: readonly Token[]) {
    this.#source = source
    this.#tokens = tokens
  }

  protected get current(): Token {
    return this.#look(0)
  }

  #look(ahead: number): Token {
    const token = this.#tokens[Math.min(this.#position + ahead, this.#tokens.length - 1)]
    if (token === undefined) throw this.#source.error(0, 'the template has no end')
    return token
  }

  protected next(): Token {
    const token = this.current
    this.#position++
    return token
  }

  protected is(kind: Token['kind'], text?: string, ahead = 0): boolean {
    const token = this.#look(ahead)
    return token.kind === kind && (text === undefined || token.text === text)
  }

  protected skip(kind: Token['kind'], text: string): boolean {
    const isThere = this.is(kind, text)
    if (isThere) this.#position++
    return isThere
  }

  protected expect(kind: Token['kind'], text?: string): Token {
    if (this.is(kind, text)) return this.next()
    const wanted = text ?? (kind === 'name' ? 'a name' : kind)
    throw this.fail(this.current, `expected ${wanted}, found ${describe(this.current)}`)
  }

  protected fail(place: { readonly at: number }, reason: string): TemplateError {
    return this.#source.error(place.at, reason)
  }

  /** An expression, or a tuple where commas follow. */
  protected tupleOrExpression(withIf: boolean): Expression {
    const { at } = this.current
    const items: Expression[] = []
    let isTuple = false
    while (!this.is('}}') && !this.is('%}') && !this.is('operator', ')')) {
      items.push(withIf ? this.expression() : this.nested(() => this.#or()))
      if (!this.skip('operator', ',')) break
      isTuple = true
    }
    if (isTuple) return this.#place(at, { kind: 'tuple', items })
    const only = items[0]
    if (only === undefined)
      throw this.fail(this.current, `expected an expression, found ${describe(this.current)}`)
    return only
  }

  protected expression(): Expression {
    return this.nested(() => {
      let value = this.#or()
      while (this.skip('name', 'if')) {
        const test = this.#or()
        const no = this.skip('name', 'else') ? this.expression() : undefined
        value = this.#place(value.at, { kind: 'choice', test, yes: value, no })
      }
      return value
    })
  }

  /** Bounds the parser's own depth; #place() bounds the tree's. */
  protected nested<T>(read: () => T): T {
    if (++this.#depth > DEEPEST_EXPRESSION) throw this.#tooDeep(this.current.at)
    const value = read()
    this.#depth--
    return value
  }

  #place(at: number, e: Unplaced): Expression {
    const height = 1 + operands(e).reduce((highest, part) => Math.max(highest, part.height), 0)
    if (height > DEEPEST_EXPRESSION) throw this.#tooDeep(at)
    return { ...e, at, height }
  }

  #tooDeep(at: number): TemplateError {
    return this.fail({ at }, `the expression is nested over ${DEEPEST_EXPRESSION} deep`)
  }

  #or(): Expression {
    let left = this.#and()
    while (this.skip('name', 'or')) {
      left = this.#place(left.at, { kind: 'logic', operator: 'or', left, right: this.#and() })
    }
    return left
  }

  #and(): Expression {
    let left = this.#not()
    while (this.skip('name', 'and')) {
      left = this.#place(left.at, { kind: 'logic', operator: 'and', left, right: this.#not() })
    }
    return left
  }

  #not(): Expression {
    const { at } = this.current
    if (!this.skip('name', 'not')) return this.#comparison()
    return this.#place(at, { kind: 'unary', operator: 'not', operand: this.nested(() => this.#not()) })
  }

  #comparison(): Expression {
    const first = this.#sum()
    const rest: { operator: Comparison; right: Expression }[] = []
    for (let operator = this.#comparator(); operator !== undefined; operator = this.#comparator()) {
      rest.push({ operator, right: this.#sum() })
    }
    return rest.length === 0 ? first : this.#place(first.at, { kind: 'compare', first, rest })
  }

  #comparator(): Comparison | undefined {
    if (this.skip('name', 'in')) return 'in'
    if (this.is('name', 'not') && this.is('name', 'in', 1)) {
      this.next()
      this.next()
      return 'not in'
    }
    return COMPARISONS.find(operator => this.skip('operator', operator))
  }

  #arithmetic(operators: readonly Arithmetic[], part: () => Expression): Expression {
    let left = part()
    for (;;) {
      const operator = operators.find(candidate => this.skip('operator', candidate))
      if (operator === undefined) return left
      left = this.#place(left.at, { kind: 'arithmetic', operator, left, right: part() })
    }
  }

  #sum(): Expression {
    return this.#arithmetic(['+', '-'], () => this.#concat())
  }

  #concat(): Expression {
    const first = this.#product()
    const items = [first]
    while (this.skip('operator', '~')) items.push(this.#product())
    return items.length === 1 ? first : this.#place(first.at, { kind: 'concat', items })
  }

  #product(): Expression {
    return this.#arithmetic(['*', '/', '//', '%'], () => this.#arithmetic(['**'], () => this.#unary(true)))
  }

  #unary(withFilters: boolean): Expression {
    const { at } = this.current
    const operator = (['-', '+'] as const).find(sign => this.skip('operator', sign))
    const value =
      operator === undefined
        ? this.#primary()
        : this.#place(at, { kind: 'unary', operator, operand: this.nested(() => this.#unary(false)) })
    return withFilters ? this.#filters(this.#postfix(value)) : this.#postfix(value)
  }

  #primary(): Expression {
    const token = this.next()
    const { at } = token
    if (token.kind === 'name') return this.#name(token)
    if (token.kind === 'number') {
      return this.#place(at, { kind: 'constant', value: token.isFloat ? float(token.number) : token.number })
    }
    if (token.kind === 'string') {
      let value = token.text
      while (this.is('string')) value += this.next().text
      return this.#place(at, { kind: 'constant', value })
    }
    if (token.kind === 'operator' && token.text === '(') return this.#parenthesised(at)
    if (token.kind === 'operator' && token.text === '[') {
      const items: Expression[] = []
      this.#sequence(']', () => items.push(this.expression()))
      return this.#place(at, { kind: 'list', items })
    }
    if (token.kind === 'operator' && token.text === '{') {
      const keys: Expression[] = []
      const values: Expression[] = []
      this.#sequence('}', () => {
        keys.push(this.expression())
        this.expect('operator', ':')
        values.push(this.expression())
      })
      return this.#place(at, { kind: 'map', keys, values })
    }
    throw this.fail(token, `expected an expression, found ${describe(token)}`)
  }

  #name(token: Token): Expression {
    const { text, at } = token
    if (CONSTANTS.has(text)) return this.#place(at, { kind: 'constant', value: CONSTANTS.get(text) })
    if (text === 'loop') this.loopReads++
    return this.#place(at, { kind: 'name', name: text })
  }

  #parenthesised(at: number): Expression {
    if (this.skip('operator', ')')) return this.#place(at, { kind: 'tuple', items: [] })
    const value = this.tupleOrExpression(true)
    this.expect('operator', ')')
    return value
  }

  /** Items with commas between, and perhaps one at the end, up to `close`. */
  #sequence(close: string, item: () => void): void {
    while (!this.skip('operator', close)) {
      item()
      if (!this.is('operator', close)) this.expect('operator', ',')
    }
  }

  #postfix(start: Expression): Expression {
    let value = start
    for (;;) {
      const { at } = this.current
      if (this.skip('operator', '.')) value = this.#member(value)
      else if (this.skip('operator', '[')) value = this.#subscript(value)
      else if (this.is('operator', '(')) {
        value = this.#place(at, { kind: 'call', target: value, ...this.#arguments() })
      } else return value
    }
  }

  #member(target: Expression): Expression {
    const token = this.next()
    if (token.kind === 'name') return this.#place(token.at, { kind: 'attribute', target, name: token.text })
    if (token.kind !== 'number' || token.isFloat)
      throw this.fail(token, 'expected a name or a number after the point')
    const key = this.#place(token.at, { kind: 'constant', value: token.number })
    return this.#place(token.at, { kind: 'item', target, key })
  }

  #subscript(target: Expression): Expression {
    const { at } = this.current
    const bounds: (Expression | undefined)[] = []
    let colons = 0
    while (!this.is('operator', ']')) {
      if (this.skip('operator', ':')) colons++
      else if (bounds[colons] === undefined && colons < 3) bounds[colons] = this.expression()
      else this.expect('operator', ']')
    }
    const close = this.next()
    const key = bounds[0]
    if (colons > 2) throw this.fail({ at }, 'a slice has at most two colons')
    if (colons > 0) return this.#place(at, { kind: 'slice', target, bounds: [key, bounds[1], bounds[2]] })
    if (key === undefined) throw this.fail(close, 'expected an index')
    return this.#place(at, { kind: 'item', target, key })
  }

  #filters(start: Expression): Expression {
    let value = start
    for (;;) {
      const { at } = this.current
      if (this.skip('operator', '|')) {
        const name = this.expect('name')
        const given = this.is('operator', '(') ? this.#arguments() : { args: [], named: [] }
        value = this.#place(name.at, { kind: 'filter', target: value, name: name.text, ...given })
      } else if (this.skip('name', 'is')) value = this.#test(value)
      else if (this.is('operator', '(')) {
        value = this.#place(at, { kind: 'call', target: value, ...this.#arguments() })
      } else return value
    }
  }

  #test(target: Expression): Expression {
    const isNegated = this.skip('name', 'not')
    const name = this.expect('name')
    const given = this.is('operator', '(') ? this.#arguments() : { args: this.#testOperand(), named: [] }
    const test = this.#place(name.at, { kind: 'test', target, name: name.text, ...given })
    return isNegated ? this.#place(name.at, { kind: 'unary', operator: 'not', operand: test }) : test
  }

  /** `is divisibleby 3`: one operand may follow without parentheses. */
  #testOperand(): Expression[] {
    const token = this.current
    if (token.kind === 'name' && ['else', 'or', 'and'].includes(token.text)) return []
    if (token.kind === 'name' && token.text === 'is') throw this.fail(token, 'tests cannot be chained')
    const isBracket = token.kind === 'operator' && (token.text === '[' || token.text === '{')
    return isBracket || ['name', 'string', 'number'].includes(token.kind)
      ? [this.#postfix(this.#primary())]
      : []
  }

  #arguments(): Arguments {
    this.expect('operator', '(')
    const args: Expression[] = []
    const named: { name: string; value: Expression }[] = []
    this.#sequence(')', () => {
      const token = this.current
      if (token.kind === 'name' && this.is('operator', '=', 1)) {
        this.next()
        this.next()
        if (named.some(other => other.name === token.text))
          throw this.fail(token, `${token.text} is given twice`)
        named.push({ name: token.text, value: this.expression() })
      } else if (named.length > 0)
        throw this.fail(token, 'arguments without a name stand before those with one')
      else args.push(this.expression())
    })
    return { args, named }
  }
}

function describe(token: Token): string {
  if (token.kind === 'end') return 'the end of the template'
  if (token.kind === 'text') return 'text'
  return token.kind === 'string' ? 'a string' : token.text
}
