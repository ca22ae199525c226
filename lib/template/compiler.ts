import type { For, Include, Statement, Target } from './ast.js'
import { ExpressionCompiler } from './compile-expression.js'
import { Failure, Source, TemplateError } from './errors.js'
import type { CustomFilter, Filter } from './filter.js'
import { FILTERS } from './filters.js'
import { parse } from './parser.js'
import type { Evaluate, Execute, Finder, Frame, Template } from './runtime.js'
import { Scope } from './scope.js'
import { defined, Float, iterate, Loop, label, text, toArray, Undefined } from './values.js'

const DEEPEST_INCLUDE = 32

export interface CompileOptions {
  /** Filters besides the built-in ones, of which they replace those of the same name. */
  readonly filters?: Readonly<Record<string, CustomFilter>>
  /** Finds included templates; without it every include fails. */
  readonly find?: Finder
}

/** Compiles the text of `file`. Throws the TemplateError of its first error. Costs milliseconds; done once. */
export function compileTemplate(text: string, file: string, options: CompileOptions = {}): Template {
  const source = new Source(file, text)
  const filters = new Map(FILTERS)
  for (const [name, run] of Object.entries(options.filters ?? {})) filters.set(name, custom(run))
  return new Compiler(source, filters, options.find ?? (() => undefined)).template(parse(source))
}

function custom(run: CustomFilter): Filter {
  const plain = (value: unknown): unknown => {
    if (value instanceof Undefined) throw value.failure()
    return value instanceof Float ? value.value : value
  }
  return {
    params: [],
    needs: 0,
    variadic: true,
    run: (value, args, { named }) => {
      if (named.size > 0) throw new Failure('this filter takes no named arguments')
      return run(plain(value), ...args.map(plain))
    }
  }
}

class Compiler extends ExpressionCompiler {
  readonly #find: Finder
  readonly #includes: { name: string; error: () => TemplateError }[] = []

  constructor(source: Source, filters: ReadonlyMap<string, Filter>, find: Finder) {
    super(source, filters)
    this.#find = find
  }

  template(body: readonly Statement[]): Template {
    const scope = new Scope()
    scope.analyse(body)
    const enter = this.#enter(scope)
    const run = this.#body(body, scope)
    const renderWithin: Template['renderWithin'] = (data, inherited, depth) => {
      const slots = new Array<unknown>(this.slotCount)
      const frame: Frame = { data, inherited, slots, out: '', at: 0, depth }
      try {
        enter(frame)
        run(frame)
      } catch (error) {
        throw this.#placed(error, frame.at)
      }
      return frame.out
    }
    return { render: data => renderWithin(data, undefined, 0), renderWithin, includes: this.#includes }
  }

  /** Any error as a TemplateError: those of filters, and an exhausted stack or string length, happened at `at`. */
  #placed(error: unknown, at: number): TemplateError {
    if (error instanceof TemplateError) return error
    const origin = error instanceof Failure ? error.origin : undefined
    const reason = error instanceof Error ? error.message : String(error)
    return (origin?.source ?? this.source).error(origin?.at ?? at, reason)
  }

  /** Gives the names of a scope what they hold before they are assigned. */
  #enter(scope: Scope): Execute {
    const steps: Execute[] = []
    for (const [name, start] of scope.assigned()) {
      const slot = this.slot(scope, name)
      if (start === 'given') continue
      const outer = start === 'outer' ? scope.parent?.owner(name) : undefined
      let value: Evaluate = () => undefined
      if (outer !== undefined) {
        const outerSlot = this.slot(outer, name)
        value = frame => frame.slots[outerSlot]
      } else if (start !== 'nothing') value = this.fromContext(name, undefined)
      steps.push(frame => {
        frame.slots[slot] = value(frame)
      })
    }
    return sequence(steps)
  }

  #body(body: readonly Statement[], scope: Scope): Execute {
    return sequence(body.map(statement => this.#statement(statement, scope)))
  }

  #statement(statement: Statement, scope: Scope): Execute {
    switch (statement.kind) {
      case 'text': {
        const { text } = statement
        return frame => {
          frame.out += text
        }
      }
      case 'print':
        return this.#print(statement, scope)
      case 'if':
        return this.#if(statement, scope)
      case 'for':
        return this.#for(statement, scope)
      case 'include':
        return this.#include(statement, scope)
      case 'set': {
        const value = this.expression(statement.value, scope)
        const assign = this.#assign(statement.target, scope)
        return frame => assign(frame, value(frame))
      }
      case 'capture':
        return this.#capture(statement, scope)
      case 'scope':
        return this.#inner(statement.body, scope)
    }
  }

  #print({ value }: Statement & { kind: 'print' }, scope: Scope): Execute {
    const evaluate = this.expression(value, scope)
    return frame => {
      const found = evaluate(frame)
      if (typeof found === 'string') frame.out += found
      else {
        frame.at = value.at
        frame.out += text(found)
      }
    }
  }

  #if(statement: Statement & { kind: 'if' }, scope: Scope): Execute {
    const branches = statement.branches.map(branch => ({
      test: this.condition(branch.test, scope),
      run: this.#body(branch.body, scope)
    }))
    const otherwise = this.#body(statement.otherwise, scope)
    return frame => {
      for (const { test, run } of branches) {
        if (test(frame)) {
          run(frame)
          return
        }
      }
      otherwise(frame)
    }
  }

  /** A body with a scope of its own. */
  #inner(body: readonly Statement[], parent: Scope, given?: (scope: Scope) => void): Execute {
    const scope = new Scope(parent)
    given?.(scope)
    scope.analyse(body)
    return sequence([this.#enter(scope), this.#body(body, scope)])
  }

  #for(statement: For, parent: Scope): Execute {
    const { over, target, body, otherwise, usesLoop } = statement
    const items = this.expression(over, parent)
    const wanted = this.#loopTest(statement, parent)
    const scope = new Scope(parent)
    if (usesLoop) scope.giveName('loop')
    scope.give(target)
    scope.analyse(body)
    const loopSlot = usesLoop ? this.slot(scope, 'loop') : -1
    const assign = this.#assign(target, scope)
    const run = sequence([this.#enter(scope), this.#body(body, scope)])
    const none = this.#inner(otherwise, parent)
    return frame => {
      const value = items(frame)
      frame.at = over.at
      const list = wanted === undefined ? toArray(value) : toArray(value).filter(item => wanted(frame, item))
      const loop = new Loop(list.length)
      if (usesLoop) frame.slots[loopSlot] = loop
      for (const item of list) {
        assign(frame, defined(item))
        run(frame)
        loop.index0++
      }
      if (list.length === 0) none(frame)
    }
  }

  /** `for … if test`: the test has the loop's names, but not its `loop`. */
  #loopTest({ test, target }: For, parent: Scope): ((frame: Frame, item: unknown) => boolean) | undefined {
    if (test === undefined) return undefined
    const scope = new Scope(parent)
    scope.give(target)
    scope.read(test)
    const assign = this.#assign(target, scope)
    const condition = this.condition(test, scope)
    return (frame, item) => {
      assign(frame, defined(item))
      return condition(frame)
    }
  }

  #assign(target: Target, scope: Scope): (frame: Frame, value: unknown) => void {
    if (target.kind === 'name') {
      const slot = this.slot(scope, target.name)
      return (frame, value) => {
        frame.slots[slot] = value
      }
    }
    const parts = target.items.map(item => this.#assign(item, scope))
    return (frame, value) => {
      frame.at = target.at
      const items = [...iterate(value)]
      if (items.length !== parts.length) {
        throw new Failure(`expected ${parts.length} items, ${label(value)} has ${items.length}`)
      }
      parts.forEach((assign, i) => {
        assign(frame, defined(items[i]))
      })
    }
  }

  #capture({ target, body }: Statement & { kind: 'capture' }, scope: Scope): Execute {
    const run = this.#inner(body, scope)
    const assign = this.#assign(target, scope)
    return frame => {
      const before = frame.out
      frame.out = ''
      run(frame)
      const captured = frame.out
      frame.out = before
      assign(frame, captured)
    }
  }

  #include({ at, name, ignoreMissing, withContext }: Include, scope: Scope): Execute {
    const evaluate = this.expression(name, scope)
    const variables = this.#variables(scope)
    if (name.kind === 'constant' && typeof name.value === 'string' && !ignoreMissing) {
      const file = name.value
      this.#includes.push({ name: file, error: () => this.fail(at, `there is no template ${file}`) })
    }
    return frame => {
      const wanted = evaluate(frame)
      frame.at = at
      const names = Array.isArray(wanted) ? wanted.map(text) : [text(wanted)]
      const template = this.#first(names)
      if (template === undefined) {
        if (ignoreMissing) return
        throw new Failure(`there is no template ${names.join(' or ')}`)
      }
      if (frame.depth >= DEEPEST_INCLUDE)
        throw new Failure(`includes are nested over ${DEEPEST_INCLUDE} deep`)
      const data = withContext ? frame.data : {}
      frame.out += template.renderWithin(data, withContext ? variables(frame) : undefined, frame.depth + 1)
    }
  }

  #first(names: readonly string[]): Template | undefined {
    for (const name of names) {
      const template = this.#find(name)
      if (template !== undefined) return template
    }
    return undefined
  }

  /** The variables that an included template sees: all that are assigned here and in the scopes around. */
  #variables(scope: Scope): (frame: Frame) => ReadonlyMap<string, unknown> | undefined {
    const visible = new Map<string, number>()
    for (let at: Scope | undefined = scope; at !== undefined; at = at.parent) {
      for (const [name] of at.assigned()) if (!visible.has(name)) visible.set(name, this.slot(at, name))
    }
    if (visible.size === 0) return frame => frame.inherited
    return frame => {
      const all = new Map(frame.inherited)
      for (const [name, slot] of visible)
        if (frame.slots[slot] !== undefined) all.set(name, frame.slots[slot])
      return all
    }
  }
}

function sequence(steps: readonly Execute[]): Execute {
  const [first, second] = steps
  if (first === undefined) return () => {}
  if (second === undefined) return first
  return frame => {
    for (const step of steps) step(frame)
  }
}
