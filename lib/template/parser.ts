import type { Branch, Statement, Target } from './ast.js'
import type { Source, TemplateError } from './errors.js'
import { ExpressionParser } from './expression-parser.js'
import { type Token, tokenize } from './lexer.js'

const DEEPEST_BLOCK = 100
const INNER_TAGS = ['elif', 'else', 'endif', 'endfor', 'endset', 'endautoescape', 'endraw']

/** Reads a template. Throws the TemplateError of its first syntax error. */
export function parse(source: Source): Statement[] {
  return new Parser(source).template()
}

class Parser extends ExpressionParser {
  /** Tags of the blocks that are open, innermost last. */
  readonly #open: { readonly name: string; readonly at: number }[] = []

  constructor(source: Source) {
    super(source, tokenize(source))
  }

  template(): Statement[] {
    return this.#statements([])
  }

  /** Statements up to a tag named in `ends`, whose name is then the current token; or to the template's end. */
  #statements(ends: readonly string[]): Statement[] {
    const body: Statement[] = []
    for (;;) {
      const token = this.next()
      if (token.kind === 'end') {
        const block = this.#open.at(-1)
        if (block === undefined) return body
        throw this.fail(block, `the block ${block.name} is not closed: ${ends.at(-1)} is missing`)
      }
      if (token.kind === 'text') body.push({ kind: 'text', text: token.text })
      if (token.kind === '{{') {
        body.push({ kind: 'print', value: this.tupleOrExpression(true) })
        this.expect('}}')
      }
      if (token.kind === '{%') {
        if (this.current.kind === 'name' && ends.includes(this.current.text)) return body
        body.push(this.#statement())
        this.expect('%}')
      }
    }
  }

  #statement(): Statement {
    const tag = this.next()
    if (tag.kind !== 'name') throw this.fail(tag, 'expected the name of a tag')
    switch (tag.text) {
      case 'if':
        return this.#block(tag, () => this.#if())
      case 'for':
        return this.#block(tag, () => this.#for(tag.at))
      case 'set':
        return this.#set(tag)
      case 'include':
        return this.#include(tag.at)
      case 'autoescape':
        return this.#block(tag, () => {
          this.expression()
          return { kind: 'scope', body: this.#body('endautoescape') }
        })
    }
    throw this.#unknownTag(tag)
  }

  #unknownTag(tag: Token): TemplateError {
    if (!INNER_TAGS.includes(tag.text)) return this.fail(tag, `unknown tag ${tag.text}`)
    const block = this.#open.at(-1)
    const where = block === undefined ? 'no block is open' : `the block ${block.name} is open`
    return this.fail(tag, `unexpected tag ${tag.text}: ${where}`)
  }

  #block(tag: Token, read: () => Statement): Statement {
    if (this.#open.length >= DEEPEST_BLOCK)
      throw this.fail(tag, `blocks are nested over ${DEEPEST_BLOCK} deep`)
    this.#open.push({ name: tag.text, at: tag.at })
    const statement = read()
    this.#open.pop()
    return statement
  }

  /** The rest of the opening tag, and the statements to one of `ends`, which is left as the current token. */
  #bodyUpTo(ends: readonly string[]): Statement[] {
    this.skip('operator', ':')
    this.expect('%}')
    return this.#statements(ends)
  }

  #body(end: string): Statement[] {
    const body = this.#bodyUpTo([end])
    this.next()
    return body
  }

  #if(): Statement {
    const branches: Branch[] = []
    let tag: string
    do {
      const test = this.tupleOrExpression(false)
      branches.push({ test, body: this.#bodyUpTo(['elif', 'else', 'endif']) })
      tag = this.next().text
    } while (tag === 'elif')
    return { kind: 'if', branches, otherwise: tag === 'else' ? this.#body('endif') : [] }
  }

  #for(at: number): Statement {
    this.loops++
    const target = this.#target()
    this.expect('name', 'in')
    const over = this.tupleOrExpression(false)
    const test = this.skip('name', 'if') ? this.expression() : undefined
    if (this.is('name', 'recursive')) throw this.fail(this.current, 'recursive loops are not supported')
    const before = this.loopReads
    const body = this.#bodyUpTo(['else', 'endfor'])
    const usesLoop = this.loopReads > before
    const otherwise = this.next().text === 'else' ? this.#body('endfor') : []
    this.loops--
    return { kind: 'for', at, target, over, test, body, otherwise, usesLoop }
  }

  #set(tag: Token): Statement {
    const target = this.#target()
    if (this.skip('operator', '=')) return { kind: 'set', target, value: this.tupleOrExpression(true) }
    return this.#block(tag, () => ({ kind: 'capture', target, body: this.#body('endset') }))
  }

  #include(at: number): Statement {
    const name = this.expression()
    const ignoreMissing = this.#skipPair('ignore', 'missing')
    const withContext = !this.#skipPair('without', 'context')
    if (withContext) this.#skipPair('with', 'context')
    return { kind: 'include', at, name, ignoreMissing, withContext }
  }

  #skipPair(first: string, second: string): boolean {
    if (!this.is('name', first) || !this.is('name', second, 1)) return false
    this.next()
    this.next()
    return true
  }

  /** A name, or several with commas. */
  #target(): Target {
    const { at } = this.current
    const items: Target[] = []
    let isTuple = false
    while (!this.is('%}') && !this.is('operator', ')')) {
      items.push(this.#singleTarget())
      if (!this.skip('operator', ',')) break
      isTuple = true
    }
    const only = items[0]
    if (only === undefined) throw this.fail(this.current, 'expected a name to assign to')
    return isTuple ? { kind: 'tuple', items, at } : only
  }

  #singleTarget(): Target {
    const token = this.next()
    if (token.kind === 'operator' && token.text === '(') {
      const target = this.nested(() => this.#target())
      this.expect('operator', ')')
      return target
    }
    if (token.kind !== 'name' || /^(true|false|none|True|False|None)$/.test(token.text)) {
      throw this.fail(token, 'cannot assign to this')
    }
    if (token.text === 'loop' && this.loops > 0) throw this.fail(token, 'cannot assign to loop inside a loop')
    return { kind: 'name', name: token.text, at: token.at }
  }
}
