import { type TemplateError, type TemplateSource, unsupported } from './errors.js'
import { FILTERS, METHODS, type Operation, type Run, TESTS } from './filters.js'
import { type Token, tokenize } from './lexer.js'
import { Scope } from './scope.js'
import type { Evaluate, Frame } from './template.js'
import {
  attribute,
  COMPARISONS,
  defined,
  item,
  label,
  MISSING_ELSE,
  OPERATORS,
  signed,
  slice,
  truth,
  Undefined,
  wrongUse
} from './values.js'

const DEEPEST = 100
const CONSTANTS = { true: true, True: true, false: false, False: false, none: null, None: null }
/** Constructs of jinja2 that the subset lacks, by the token where an expression or tag should end. */
const OTHERS = new Map([
  [',', 'a tuple, unlike a list,'],
  ['/', 'the operator /'],
  ['**', 'the operator **'],
  ['(', 'a call of anything but a method'],
  ['.', 'set with anything but a name'],
  ['recursive', 'a recursive loop'],
  ['without', 'include without context']
])
/** Operators by precedence, lowest first; `not` is just above the comparisons. */
const LEVELS = [['or'], ['and'], Object.keys(COMPARISONS), ['+', '-'], ['~'], ['*', '//', '%']]
const COMPARISON = 2
const OPERATIONS = { filter: FILTERS, test: TESTS, method: METHODS }

/** A compiled expression. */
export interface Expression {
  /** Offset in the source. */
  readonly at: number
  /** Levels of expressions below this one. */
  readonly height: number
  readonly evaluate: Evaluate
  /** The text, if the expression is a plain string. */
  readonly literal?: string
}

/** An argument of a filter, a test or a method. */
interface Argument {
  readonly name: string | undefined
  readonly value: Expression
}

/** An operator with its right operand. */
interface Step {
  readonly operator: string
  readonly right: Expression
}

/** The place of an error that has no token. */
type Place = Pick<Token, 'at'>

/** Compiles expressions. The precedence is jinja2's: LEVELS between the inline if and the unary signs. */
export class ExpressionCompiler {
  /** The variables of the present block. */
  protected scope: Scope
  /** How often the variable `loop` has been read. */
  protected loopReads = 0
  /** Variables that a frame holds. */
  protected slotCount = 0
  readonly #tokens: readonly Token[]
  #position = 0
  #depth = 0

  constructor(protected readonly source: TemplateSource) {
    this.#tokens = tokenize(source)
    this.scope = new Scope(undefined, () => this.slotCount++)
  }

  protected get current(): Token {
    return this.#tokens[this.#position] ?? { kind: 'end', text: '', at: this.source.text.length }
  }

  protected next(): Token {
    const token = this.current
    this.#position++
    return token
  }

  /** Whether the token `ahead` of the current one is this name or sign. */
  protected is(text: string, ahead = 0): boolean {
    const token = this.#tokens[this.#position + ahead]
    return (token?.kind === 'name' || token?.kind === 'sign') && token.text === text
  }

  /** Skips these names or signs if they all follow. */
  protected skip(...texts: readonly string[]): boolean {
    const areThere = texts.every((text, ahead) => this.is(text, ahead))
    if (areThere) this.#position += texts.length
    return areThere
  }

  protected expect(text: string): void {
    if (this.skip(text)) return
    const other = this.is(this.current.text) ? OTHERS.get(this.current.text) : undefined
    throw other === undefined ? this.unexpected(text) : this.unsupported(this.current, other)
  }

  protected expectName(): Token {
    if (this.current.kind !== 'name') throw this.unexpected('a name')
    return this.next()
  }

  protected fail(place: Place, reason: string): TemplateError {
    return this.source.error(place.at, reason)
  }

  /** Makes the error for a construct that is not in the subset. */
  protected unsupported(place: Place, what: string): TemplateError {
    return this.source.error(place.at, unsupported(what))
  }

  protected unexpected(wanted: string): TemplateError {
    const { kind, text } = this.current
    return this.fail(this.current, `expected ${wanted}, found ${kind === 'string' ? 'a string' : text}`)
  }

  protected expression(): Expression {
    return this.#nested(() => {
      let value = this.#row(0)
      while (this.skip('if')) value = this.#choice(value)
      return value
    })
  }

  /** Reads an expression without an inline if, for the tags `if` and `for`. */
  protected plainExpression(): Expression {
    return this.#nested(() => this.#row(0))
  }

  /** Bounds the depth of the compiler itself; #place() bounds that of the functions it makes. */
  #nested<T>(read: () => T): T {
    if (++this.#depth > DEEPEST) throw this.#tooDeep(this.current)
    const value = read()
    this.#depth--
    return value
  }

  #place(at: number, operands: readonly Expression[], evaluate: Evaluate): Expression {
    const height = 1 + operands.reduce((highest, operand) => Math.max(highest, operand.height), 0)
    if (height > DEEPEST) throw this.#tooDeep({ at })
    return { at, height, evaluate }
  }

  #tooDeep(place: Place): TemplateError {
    return this.fail(place, `the expression is nested over ${DEEPEST} deep`)
  }

  #constant(at: number, value: unknown): Expression {
    return this.#place(at, [], () => value)
  }

  /** Makes an expression of its operands' values. A single operand, the usual case, needs no array. */
  #operation(at: number, operands: readonly Expression[], run: Run): Expression {
    const [first, second] = operands
    if (first !== undefined && second === undefined)
      return this.#place(at, operands, frame => {
        const value = first.evaluate(frame)
        frame.at = at
        return run(value)
      })
    return this.#place(at, operands, frame => {
      const [value, ...args] = operands.map(operand => operand.evaluate(frame))
      frame.at = at
      return run(value, ...args)
    })
  }

  /** Reads the rest of an inline if. */
  #choice(yes: Expression): Expression {
    const test = this.#row(0)
    const no = this.skip('else') ? this.expression() : this.#constant(yes.at, MISSING_ELSE)
    return this.#place(yes.at, [yes, test, no], frame =>
      isTrue(test, frame) ? yes.evaluate(frame) : no.evaluate(frame)
    )
  }

  #not(): Expression {
    const { at } = this.next()
    const operand = this.#nested(() => (this.is('not') ? this.#not() : this.#row(COMPARISON)))
    return this.#operation(at, [operand], value => !truth(value))
  }

  /** Reads operands with left-associative operators of one level between. */
  #row(level: number): Expression {
    const operators = LEVELS[level]
    if (operators === undefined) return this.#unary(true)
    if (level === COMPARISON && this.is('not')) return this.#not()
    const first = this.#row(level + 1)
    const steps: Step[] = []
    for (;;) {
      const operator = operators.find(words => this.skip(...words.split(' ')))
      if (operator === undefined) break
      steps.push({ operator, right: this.#row(level + 1) })
    }
    const [, second] = steps
    if (level === COMPARISON && second !== undefined)
      throw this.unsupported(second.right, 'a row of comparisons')
    if (steps.length === 0) return first
    const evaluate = level < COMPARISON ? logic(first, steps) : calculation(first, steps)
    return this.#place(first.at, [first, ...steps.map(step => step.right)], evaluate)
  }

  #unary(withFilters: boolean): Expression {
    const { at } = this.current
    const sign = (['-', '+'] as const).find(candidate => this.skip(candidate))
    const value = this.#postfix(
      sign === undefined
        ? this.#primary()
        : this.#operation(at, [this.#nested(() => this.#unary(false))], operand => signed(sign, operand))
    )
    return withFilters ? this.#filters(value) : value
  }

  #primary(): Expression {
    const token = this.current
    const { kind, text, at } = token
    if (kind === 'sign' && !'([{'.includes(text)) throw this.unexpected('an expression')
    this.next()
    if (kind === 'name') return this.#name(token)
    if (kind === 'integer') return this.#constant(at, Number(text))
    if (kind === 'string') return { ...this.#constant(at, text), literal: text }
    if (text === '(') {
      const value = this.expression()
      this.expect(')')
      return value
    }
    return text === '[' ? this.#list(at) : this.#map(at)
  }

  #name({ text: name, at }: Token): Expression {
    if (isConstant(name)) return this.#constant(at, CONSTANTS[name])
    if (this.is('(')) throw this.unsupported({ at }, `the function ${name}`)
    if (name === 'loop') this.loopReads++
    const slots = this.scope.read(name)
    const nothing = new Undefined(`'${name}' is undefined`, { source: this.source, at })
    const fromContext: Evaluate = ({ data, inherited }) => {
      const found = inherited?.(name)
      if (found !== undefined) return found
      const value = Object.hasOwn(data, name) ? data[name] : undefined
      return value === undefined ? nothing : value
    }
    if (slots.length === 0) return this.#place(at, [], fromContext)
    return this.#place(at, [], frame => {
      for (const slot of slots) {
        const value = frame.slots[slot]
        if (value !== undefined) return value
      }
      return fromContext(frame)
    })
  }

  #list(at: number): Expression {
    const items: Expression[] = []
    this.#sequence(']', () => items.push(this.expression()))
    return this.#place(at, items, frame => items.map(({ evaluate }) => defined(evaluate(frame))))
  }

  #map(at: number): Expression {
    const entries: (readonly [key: Expression, value: Expression])[] = []
    this.#sequence('}', () => {
      const key = this.expression()
      this.expect(':')
      entries.push([key, this.expression()])
    })
    return this.#place(at, entries.flat(), frame => {
      const map = new Map<string, unknown>()
      for (const [key, value] of entries) {
        const name = key.evaluate(frame)
        if (typeof name !== 'string')
          throw wrongUse(name, `the key of a map is a string here, not ${label(name)}`)
        map.set(name, defined(value.evaluate(frame)))
      }
      return map
    })
  }

  /** Reads items separated by commas, with an optional one at the end, up to `close`. */
  #sequence(close: string, item: () => void): void {
    while (!this.skip(close)) {
      item()
      if (!this.is(close) && !this.skip(',')) this.expect(close)
    }
  }

  #postfix(start: Expression): Expression {
    let value = start
    for (;;) {
      if (this.skip('.')) value = this.#member(value)
      else if (this.skip('[')) value = this.#subscript(value)
      else return value
    }
  }

  #member(target: Expression): Expression {
    const name = this.expectName()
    if (this.is('(')) return this.#apply('method', name, target)
    const { text, at } = name
    return this.#operation(at, [target], attribute(text, { source: this.source, at }))
  }

  /** `value[key]` or `value[from:to]` */
  #subscript(target: Expression): Expression {
    const { at } = this.current
    const from = this.is(':') ? this.#constant(at, null) : this.expression()
    const origin = { source: this.source, at }
    if (this.skip(']')) return this.#operation(at, [target, from], (value, key) => item(value, key, origin))
    this.expect(':')
    const to = this.is(']') || this.is(':') ? this.#constant(at, null) : this.expression()
    if (this.is(':')) throw this.unsupported(this.current, 'the step of a slice')
    this.expect(']')
    return this.#operation(at, [target, from, to], slice)
  }

  #filters(start: Expression): Expression {
    let value = start
    for (;;) {
      if (this.skip('|')) value = this.#apply('filter', this.expectName(), value)
      else if (this.skip('is')) value = this.#test(value)
      else return value
    }
  }

  #test(target: Expression): Expression {
    const isNegated = this.skip('not')
    const name = this.expectName()
    const test = this.#apply('test', name, target)
    if (this.is('is')) throw this.fail(this.current, 'tests cannot be chained')
    return isNegated ? this.#operation(name.at, [test], found => !found) : test
  }

  /** Reads a filter, test or method with its arguments. */
  #apply(kind: keyof typeof OPERATIONS, name: Token, target: Expression): Expression {
    const what = `the ${kind} ${name.text}`
    const found = OPERATIONS[kind].get(name.text)
    if (found === undefined) throw this.unsupported(name, what)
    const given = this.is('(') ? this.#arguments() : kind === 'test' ? this.#testOperand() : []
    return this.#operation(name.at, [target, ...this.#ordered(what, name, found, given)], found.run)
  }

  /** Sorts arguments into the order of the operation's parameters. */
  #ordered(what: string, place: Place, operation: Operation, given: readonly Argument[]): Expression[] {
    const { params, needs, isNamed } = operation
    const args: (Expression | undefined)[] = []
    given.forEach(({ name, value }, i) => {
      const index = name === undefined ? i : isNamed ? params.indexOf(name) : -1
      if (index < 0) throw this.unsupported(value, `the argument ${name} of ${what}`)
      if (index >= params.length) throw this.fail(value, `${what} has too many arguments`)
      if (args[index] !== undefined) throw this.fail(value, `${what} is given ${name} twice`)
      args[index] = value
    })
    const lacking = params.slice(0, needs).find((_, i) => args[i] === undefined)
    if (lacking !== undefined) throw this.fail(place, `${what} needs the argument ${lacking}`)
    return Array.from(args, arg => arg ?? this.#constant(place.at, undefined))
  }

  /** Reads an operand without parentheses, as in `is divisibleby 3`. */
  #testOperand(): Argument[] {
    const { kind, text } = this.current
    const ends =
      kind === 'sign' ? !'[{'.includes(text) : kind === 'name' && ['else', 'or', 'and', 'is'].includes(text)
    return ends ? [] : [{ name: undefined, value: this.#postfix(this.#primary()) }]
  }

  #arguments(): Argument[] {
    const given: Argument[] = []
    this.expect('(')
    this.#sequence(')', () => {
      const { kind, text: name } = this.current
      const isNamed = kind === 'name' && this.is('=', 1)
      if (!isNamed && given.at(-1)?.name !== undefined)
        throw this.fail(this.current, 'arguments without a name stand before those with one')
      if (isNamed) this.skip(name, '=')
      given.push({ name: isNamed ? name : undefined, value: this.expression() })
    })
    return given
  }
}

/** Whether a name is a constant, which cannot be assigned. */
export const isConstant = (name: string): name is keyof typeof CONSTANTS => Object.hasOwn(CONSTANTS, name)

/** Returns the truth of an expression. Throws OperationError as truth() does. */
export function isTrue(e: Expression, frame: Frame): boolean {
  const found = e.evaluate(frame)
  if (typeof found === 'boolean') return found
  frame.at = e.at
  return truth(found)
}

function calculation(first: Expression, steps: readonly Step[]): Evaluate {
  const operations = steps.map(({ operator, right }) => ({ run: OPERATORS[operator], right }))
  return frame => {
    let value = first.evaluate(frame)
    for (const { run, right } of operations) {
      const other = right.evaluate(frame)
      frame.at = first.at
      value = run?.(value, other)
    }
    return value
  }
}

/** Returns the first operand that decides, else the last one. */
function logic(first: Expression, steps: readonly Step[]): Evaluate {
  return frame => {
    let at = first.at
    let value = first.evaluate(frame)
    for (const { operator, right } of steps) {
      frame.at = at
      if (truth(value) === (operator === 'or')) return value
      at = right.at
      value = right.evaluate(frame)
    }
    return value
  }
}
