import { attribute, item, slice } from './access.js'
import type { Arguments, Expression } from './ast.js'
import { Failure, type Source, type TemplateError } from './errors.js'
import type { Filter, FilterContext } from './filter.js'
import { call } from './methods.js'
import { arithmetic, compare, signed } from './operators.js'
import type { Evaluate, Frame } from './runtime.js'
import type { Scope } from './scope.js'
import { TESTS, type Test } from './tests.js'
import { BLANK, Dict, defined, Tuple, text, truth, Undefined } from './values.js'

type Node<K extends Expression['kind']> = Expression & { readonly kind: K }

const NO_ARGUMENTS: readonly unknown[] = []
const NO_NAMES: ReadonlyMap<string, unknown> = new Map()

/** Makes functions of expressions. Throws the TemplateError of an unknown filter or test, or wrong arguments. */
export class ExpressionCompiler {
  readonly #source: Source
  readonly #filters: ReadonlyMap<string, Filter>
  readonly #slots = new Map<Scope, Map<string, number>>()
  #slotCount = 0

  constructor(source: Source, filters: ReadonlyMap<string, Filter>) {
    this.#source = source
    this.#filters = filters
  }

  /** Variables that a frame has to hold. */
  get slotCount(): number {
    return this.#slotCount
  }

  /** Where a frame keeps the variable `name` of `scope`. */
  slot(scope: Scope, name: string): number {
    const names = this.#slots.get(scope) ?? new Map<string, number>()
    this.#slots.set(scope, names)
    const slot = names.get(name) ?? this.#slotCount++
    names.set(name, slot)
    return slot
  }

  protected fail(at: number, reason: string): TemplateError {
    return this.#source.error(at, reason)
  }

  protected get source(): Source {
    return this.#source
  }

  expression(e: Expression, scope: Scope): Evaluate {
    switch (e.kind) {
      case 'constant':
        return constant(e.value)
      case 'name':
        return this.#name(e, scope)
      case 'list':
        return this.#items(e.items, scope)
      case 'tuple': {
        const items = this.#items(e.items, scope)
        return frame => Tuple.from(items(frame))
      }
      case 'map':
        return this.#map(e, scope)
      case 'concat':
        return this.#concat(e, scope)
      case 'attribute':
        return this.#attribute(e, scope)
      case 'item':
        return this.#item(e, scope)
      case 'slice':
        return this.#slice(e, scope)
      case 'call':
        return this.#call(e, scope)
      case 'filter':
        return this.#filter(e, scope)
      case 'test':
        return this.#test(e, scope)
      case 'unary':
        return this.#unary(e, scope)
      case 'arithmetic':
        return this.#arithmetic(e, scope)
      case 'logic':
        return this.#logic(e, scope)
      case 'compare':
        return this.#compare(e, scope)
      case 'choice':
        return this.#choice(e, scope)
    }
  }

  /** The truth of an expression. */
  condition(e: Expression, scope: Scope): (frame: Frame) => boolean {
    const value = this.expression(e, scope)
    return frame => {
      const found = value(frame)
      if (typeof found === 'boolean') return found
      frame.at = e.at
      return truth(found)
    }
  }

  /** Reads a name of the including template or of the data. */
  protected fromContext(name: string, otherwise: unknown): Evaluate {
    return ({ data, inherited }) => {
      const found = inherited?.get(name)
      if (found !== undefined) return found
      return Object.hasOwn(data, name) ? (data[name] ?? (data[name] === null ? null : otherwise)) : otherwise
    }
  }

  #undefined(at: number, reason: string): Undefined {
    return new Undefined(reason, { source: this.#source, at })
  }

  #name(e: Node<'name'>, scope: Scope): Evaluate {
    const nothing = this.#undefined(e.at, `'${e.name}' is undefined`)
    const owner = scope.owner(e.name)
    if (owner === undefined) return this.fromContext(e.name, nothing)
    const slot = this.slot(owner, e.name)
    return frame => {
      const value = frame.slots[slot]
      return value === undefined ? nothing : value
    }
  }

  #items(items: readonly Expression[], scope: Scope): (frame: Frame) => unknown[] {
    const values = items.map(each => this.expression(each, scope))
    return frame => values.map(value => value(frame))
  }

  #map(e: Node<'map'>, scope: Scope): Evaluate {
    const keys = this.#items(e.keys, scope)
    const values = this.#items(e.values, scope)
    return frame => {
      const map = new Dict()
      const found = values(frame)
      const names = keys(frame)
      frame.at = e.at
      names.forEach((key, i) => {
        map.set(key, found[i])
      })
      return map
    }
  }

  #concat(e: Node<'concat'>, scope: Scope): Evaluate {
    const parts = e.items.map(part => ({ value: this.expression(part, scope), at: part.at }))
    return frame => {
      let out = ''
      for (const { value, at } of parts) {
        const found = value(frame)
        frame.at = at
        out += text(found)
      }
      return out
    }
  }

  #attribute({ at, target, name }: Node<'attribute'>, scope: Scope): Evaluate {
    const value = this.expression(target, scope)
    const missing = (reason: string): Undefined => this.#undefined(at, reason)
    return frame => {
      const found = value(frame)
      frame.at = at
      return attribute(found, name, missing)
    }
  }

  #item({ at, target, key }: Node<'item'>, scope: Scope): Evaluate {
    const value = this.expression(target, scope)
    const index = this.expression(key, scope)
    const missing = (reason: string): Undefined => this.#undefined(at, reason)
    return frame => {
      const found = value(frame)
      const which = index(frame)
      frame.at = at
      return item(found, which, missing)
    }
  }

  #slice(e: Node<'slice'>, scope: Scope): Evaluate {
    const value = this.expression(e.target, scope)
    const bounds = e.bounds.map(bound =>
      bound === undefined ? constant(null) : this.expression(bound, scope)
    )
    return frame => {
      const found = value(frame)
      const given = bounds.map(bound => bound(frame))
      frame.at = e.at
      return slice(found, given)
    }
  }

  #named({ named }: Arguments, scope: Scope): (frame: Frame) => ReadonlyMap<string, unknown> {
    if (named.length === 0) return () => NO_NAMES
    const values = named.map(({ name, value }) => ({ name, value: this.expression(value, scope) }))
    return frame => new Map(values.map(({ name, value }) => [name, value(frame)]))
  }

  #call(e: Node<'call'>, scope: Scope): Evaluate {
    const callee = this.expression(e.target, scope)
    const args = this.#items(e.args, scope)
    const named = this.#named(e, scope)
    return frame => {
      const method = callee(frame)
      const given = args(frame)
      const names = named(frame)
      frame.at = e.at
      return call(method, given, names)
    }
  }

  #filter(e: Node<'filter'>, scope: Scope): Evaluate {
    const filter = this.#filters.get(e.name)
    if (filter === undefined) throw this.fail(e.at, `unknown filter ${e.name}`)
    const value = this.expression(e.target, scope)
    const given = this.#filterArguments(e, filter, scope)
    const named = this.#named(filter.variadic ? e : { args: [], named: [] }, scope)
    const context = this.#context(NO_NAMES)
    return frame => {
      const found = value(frame)
      const args = given(frame)
      const names = named(frame)
      frame.at = e.at
      return defined(filter.run(found, args, names === NO_NAMES ? context : this.#context(names)))
    }
  }

  /** The arguments in the order of the filter's parameters. */
  #filterArguments(e: Node<'filter'>, filter: Filter, scope: Scope): (frame: Frame) => readonly unknown[] {
    const args: (Expression | undefined)[] = [...e.args]
    for (const { name, value } of filter.variadic ? [] : e.named) {
      const index = filter.params.indexOf(name)
      if (index < 0) throw this.fail(value.at, `the filter ${e.name} has no argument ${name}`)
      if (args[index] !== undefined) throw this.fail(value.at, `the argument ${name} is given twice`)
      args[index] = value
    }
    const wrong = this.#wrongCount(filter, args)
    if (wrong !== undefined) throw this.fail(e.at, `the filter ${e.name} ${wrong}`)
    if (args.length === 0) return () => NO_ARGUMENTS
    const values = Array.from(args, arg =>
      arg === undefined ? constant(undefined) : this.expression(arg, scope)
    )
    return frame => values.map(value => value(frame))
  }

  #wrongCount(filter: Filter, args: readonly unknown[]): string | undefined {
    const lacking = filter.params.slice(0, filter.needs).find((_, i) => args[i] === undefined)
    if (lacking !== undefined) return `needs the argument ${lacking}`
    if (filter.variadic || args.length <= filter.params.length) return undefined
    return `takes at most ${filter.params.length} arguments`
  }

  #context(named: ReadonlyMap<string, unknown>): FilterContext {
    const context: FilterContext = {
      named,
      filter: (name, value, args) => {
        const filter = typeof name === 'string' ? this.#filters.get(name) : undefined
        if (filter === undefined) throw new Failure(`unknown filter ${String(name)}`)
        const wrong = this.#wrongCount(filter, args)
        if (wrong !== undefined) throw new Failure(`the filter ${name} ${wrong}`)
        return defined(filter.run(value, args, this.#context(NO_NAMES)))
      },
      test: (name, value, args) => {
        const test = typeof name === 'string' ? TESTS.get(name) : undefined
        if (test === undefined) throw new Failure(`unknown test ${String(name)}`)
        if (args.length !== test.args) throw new Failure(`the test ${name} takes ${count(test)}`)
        return test.run(value, args[0])
      }
    }
    return context
  }

  #test(e: Node<'test'>, scope: Scope): Evaluate {
    const test = TESTS.get(e.name)
    if (test === undefined) throw this.fail(e.at, `unknown test ${e.name}`)
    if (e.args.length !== test.args || e.named.length > 0) {
      throw this.fail(e.at, `the test ${e.name} takes ${count(test)}`)
    }
    const value = this.expression(e.target, scope)
    const [only] = e.args
    const argument = only === undefined ? constant(null) : this.expression(only, scope)
    return frame => {
      const found = value(frame)
      const other = argument(frame)
      frame.at = e.at
      return test.run(found, other)
    }
  }

  #unary({ at, operator, operand }: Node<'unary'>, scope: Scope): Evaluate {
    if (operator === 'not') {
      const condition = this.condition(operand, scope)
      return frame => !condition(frame)
    }
    const value = this.expression(operand, scope)
    return frame => {
      const found = value(frame)
      frame.at = at
      return signed(operator, found)
    }
  }

  #arithmetic(e: Node<'arithmetic'>, scope: Scope): Evaluate {
    const left = this.expression(e.left, scope)
    const right = this.expression(e.right, scope)
    return frame => {
      const a = left(frame)
      const b = right(frame)
      frame.at = e.at
      return arithmetic(e.operator, a, b)
    }
  }

  #logic(e: Node<'logic'>, scope: Scope): Evaluate {
    const left = this.expression(e.left, scope)
    const right = this.expression(e.right, scope)
    const stopsAt = e.operator === 'or'
    return frame => {
      const found = left(frame)
      frame.at = e.left.at
      return truth(found) === stopsAt ? found : right(frame)
    }
  }

  #compare(e: Node<'compare'>, scope: Scope): Evaluate {
    const first = this.expression(e.first, scope)
    const steps = e.rest.map(({ operator, right }) => ({ operator, right: this.expression(right, scope) }))
    return frame => {
      let left = first(frame)
      for (const { operator, right } of steps) {
        const other = right(frame)
        frame.at = e.at
        if (!compare(operator, left, other)) return false
        left = other
      }
      return true
    }
  }

  #choice(e: Node<'choice'>, scope: Scope): Evaluate {
    const test = this.condition(e.test, scope)
    const yes = this.expression(e.yes, scope)
    const no = e.no === undefined ? constant(BLANK) : this.expression(e.no, scope)
    return frame => (test(frame) ? yes(frame) : no(frame))
  }
}

function constant(value: unknown): Evaluate {
  return () => value
}

function count(test: Test): string {
  return test.args === 0 ? 'no argument' : 'one argument'
}
