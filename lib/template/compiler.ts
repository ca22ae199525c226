import { OperationError, TemplateError, TemplateSource } from './errors.js'
import { type Expression, ExpressionCompiler, isConstant, isTrue } from './expression-compiler.js'
import type { Token } from './lexer.js'
import { Scope } from './scope.js'
import type { Execute, Frame, IncludeResolver, Inherited, Template } from './template.js'
import { defined, Loop, label, Pairs, text, toList } from './values.js'

const DEEPEST_BLOCK = 50
const DEEPEST_INCLUDE = 16
const INNER_TAGS = ['elif', 'else', 'endif', 'endfor', 'endset', 'endautoescape', 'endraw']

/** Compiles a text. `file` names it in errors, `find` finds includes. Throws its first TemplateError. */
export function compileTemplate(
  text: string,
  file: string,
  find: IncludeResolver = () => undefined
): Template {
  return new Compiler(new TemplateSource(file, text), find).template()
}

/** Compiles statements to functions. */
class Compiler extends ExpressionCompiler {
  readonly #includes: { file: string; error: TemplateError }[] = []
  /** Tags of the open blocks, innermost last. */
  readonly #open: Token[] = []

  constructor(
    source: TemplateSource,
    readonly find: IncludeResolver
  ) {
    super(source)
  }

  template(): Template {
    const run = this.#statements([])
    const render: Template['render'] = (data, inherited, depth = 0) => {
      const slots = new Array<unknown>(this.slotCount)
      const frame: Frame = { data, inherited, slots, out: '', at: 0, depth }
      try {
        run(frame)
      } catch (error) {
        throw this.#placed(error, frame.at)
      }
      return frame.out
    }
    return { render, includes: this.#includes }
  }

  /** Turns any error into a TemplateError; one without a place gets the offset `at`. */
  #placed(error: unknown, at: number): TemplateError {
    if (error instanceof TemplateError) return error
    if (error instanceof OperationError && error.origin)
      return error.origin.source.error(error.origin.at, error.message)
    // JavaScript's error for a string that is too long.
    if (error instanceof RangeError) return this.source.error(at, 'the text becomes too long')
    return this.source.error(at, error instanceof Error ? error.message : String(error))
  }

  /** Reads statements up to a tag in `ends`, which becomes the current token, or to the template's end. */
  #statements(ends: readonly string[]): Execute {
    const body: Execute[] = []
    for (;;) {
      const token = this.next()
      if (token.kind === 'end') {
        const block = this.#open.at(-1)
        if (block === undefined) return sequence(body)
        throw this.fail(block, `the block ${block.text} is not closed: ${ends.at(-1)} is missing`)
      }
      if (token.kind === 'text') body.push(write(token.text))
      else if (token.text === '{{') {
        body.push(this.#print())
        this.expect('}}')
      } else {
        if (ends.some(end => this.is(end))) return sequence(body)
        body.push(this.#statement())
        this.expect('%}')
      }
    }
  }

  #print(): Execute {
    const { evaluate, at } = this.expression()
    return frame => {
      const found = evaluate(frame)
      if (typeof found === 'string') frame.out += found
      else {
        frame.at = at
        frame.out += text(found)
      }
    }
  }

  #statement(): Execute {
    const tag = this.expectName()
    switch (tag.text) {
      case 'if':
        return this.#block(tag, () => this.#if())
      case 'for':
        return this.#block(tag, () => this.#for())
      case 'set':
        return this.#set(tag)
      case 'include':
        return this.#include(tag)
      case 'autoescape':
        return this.#block(tag, () => this.#autoescape())
    }
    if (!INNER_TAGS.includes(tag.text)) throw this.unsupported(tag, `the tag ${tag.text}`)
    const block = this.#open.at(-1)
    const where = block === undefined ? 'no block is open' : `the block ${block.text} is open`
    throw this.fail(tag, `unexpected tag ${tag.text}: ${where}`)
  }

  #block(tag: Token, read: () => Execute): Execute {
    if (this.#open.length >= DEEPEST_BLOCK)
      throw this.fail(tag, `blocks are nested over ${DEEPEST_BLOCK} deep`)
    this.#open.push(tag)
    const run = read()
    this.#open.pop()
    return run
  }

  /** Reads the rest of the opening tag and the statements up to one of `ends`, the new current token. */
  #bodyUpTo(...ends: readonly string[]): Execute {
    this.skip(':')
    this.expect('%}')
    return this.#statements(ends)
  }

  #body(end: string): Execute {
    const run = this.#bodyUpTo(end)
    this.next()
    return run
  }

  /** Begins a block with its own variables. */
  #beginScope(): void {
    this.scope = new Scope(this.scope, () => this.slotCount++)
  }

  /** Ends the block that `run` executes. Its variables are unset whenever it begins. */
  #endScope(run: Execute): Execute {
    const { resets, parent } = this.scope
    this.scope = parent ?? this.scope
    if (resets.length === 0) return run
    return frame => {
      for (const slot of resets) frame.slots[slot] = undefined
      run(frame)
    }
  }

  #if(): Execute {
    const branches: { readonly test?: Expression; readonly run: Execute }[] = []
    const { scope } = this
    let tag: string
    scope.branches++
    do {
      const test = this.plainExpression()
      branches.push({ test, run: this.#bodyUpTo('elif', 'else', 'endif') })
      tag = this.next().text
    } while (tag === 'elif')
    if (tag === 'else') branches.push({ run: this.#body('endif') })
    scope.branches--
    return frame => {
      for (const { test, run } of branches)
        if (test === undefined || isTrue(test, frame)) {
          run(frame)
          return
        }
    }
  }

  #for(): Execute {
    const targets = [this.#target()]
    while (this.skip(',')) targets.push(this.#target())
    this.expect('in')
    const { evaluate, at } = this.plainExpression()
    this.#beginScope()
    const slots = targets.map(({ text: name }) => this.scope.give(name))
    // `loop` is assigned after the test, which reads the outer one.
    const test = this.skip('if') ? this.expression() : undefined
    const loopSlot = this.scope.give('loop')
    const before = this.loopReads
    const run = this.#endScope(this.#bodyUpTo('else', 'endfor'))
    const usesLoop = this.loopReads > before
    this.#beginScope()
    const otherwise = this.#endScope(this.next().text === 'else' ? this.#body('endfor') : sequence([]))
    const isWanted = (frame: Frame, item: unknown): boolean => {
      assign(frame, item, slots)
      return test === undefined || isTrue(test, frame)
    }
    return frame => {
      const value = evaluate(frame)
      frame.at = at
      const all = value instanceof Pairs && slots.length > 1 ? value.entries : toList(value)
      const items = test === undefined ? all : all.filter(item => isWanted(frame, item))
      const loop = new Loop(items.length)
      // An included template sees `loop` only if the body reads it, as in jinja2.
      if (usesLoop) frame.slots[loopSlot] = loop
      for (const item of items) {
        assign(frame, item, slots)
        run(frame)
        loop.index0++
      }
      if (items.length === 0) otherwise(frame)
    }
  }

  #set(tag: Token): Execute {
    const name = this.#target()
    if (this.skip('=')) {
      const { evaluate } = this.expression()
      const slot = this.#variable(name)
      return frame => {
        frame.slots[slot] = defined(evaluate(frame))
      }
    }
    return this.#block(tag, () => this.#capture(name))
  }

  /** `{% set name %}…{% endset %}` */
  #capture(name: Token): Execute {
    this.#beginScope()
    const run = this.#endScope(this.#body('endset'))
    const slot = this.#variable(name)
    return frame => {
      const before = frame.out
      frame.out = ''
      run(frame)
      frame.slots[slot] = frame.out
      frame.out = before
    }
  }

  /** Reads a name to assign to. */
  #target(): Token {
    const token = this.expectName()
    if (isConstant(token.text)) throw this.fail(token, `cannot assign to ${token.text}`)
    if (token.text === 'loop' && this.#open.some(({ text: tag }) => tag === 'for'))
      throw this.fail(token, 'cannot assign to loop inside a loop')
    return token
  }

  /** Returns the slot of a variable. */
  #variable(name: Token): number {
    const slot = this.scope.set(name.text)
    if (slot === undefined)
      throw this.fail(name, `${name.text} is set below a block that reads it: set it above, or rename it`)
    return slot
  }

  #include({ at }: Token): Execute {
    const { evaluate, literal: file } = this.expression()
    const ignoreMissing = this.skip('ignore', 'missing')
    this.skip('with', 'context')
    const { scope } = this
    if (file !== undefined && !ignoreMissing)
      this.#includes.push({ file, error: this.fail({ at }, `there is no template ${file}`) })
    return frame => {
      const value = evaluate(frame)
      frame.at = at
      const name = text(value)
      const template = this.find(name)
      if (template === undefined) {
        if (ignoreMissing) return
        throw new OperationError(`there is no template ${name}`)
      }
      if (frame.depth >= DEEPEST_INCLUDE)
        throw new OperationError(`includes are nested over ${DEEPEST_INCLUDE} deep`)
      const inherited: Inherited = variable => {
        const slot = scope.slotsOf(variable).find(each => frame.slots[each] !== undefined)
        return slot === undefined ? frame.inherited?.(variable) : frame.slots[slot]
      }
      frame.out += template.render(frame.data, inherited, frame.depth + 1)
    }
  }

  /** Nothing is escaped, whatever the tag says. */
  #autoescape(): Execute {
    if (!this.skip('true') && !this.skip('false'))
      throw this.unsupported(this.current, 'autoescape with anything but true or false')
    this.#beginScope()
    return this.#endScope(this.#body('endautoescape'))
  }
}

function write(text: string): Execute {
  return frame => {
    frame.out += text
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

/** Assigns an item to a loop's variable, or its parts to several. */
function assign(frame: Frame, item: unknown, slots: readonly number[]): void {
  const parts = slots.length > 1 ? item : [item]
  if (!Array.isArray(parts))
    throw new OperationError(`${label(item)} cannot be taken apart for ${slots.length} names`)
  if (parts.length !== slots.length)
    throw new OperationError(
      `a list of ${parts.length} items cannot be taken apart for ${slots.length} names`
    )
  slots.forEach((slot, i) => {
    frame.slots[slot] = parts[i]
  })
}
