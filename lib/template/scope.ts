import { type Expression, operands, type Statement, type Target } from './ast.js'

/**
 * What a name that a scope assigns to holds before the first assignment:
 * - `context`: what the data holds
 * - `outer`: what the scope around holds
 * - `nothing`: it is undefined, even where the data has such a name
 * - `given`: the loop's value
 */
export type Start = 'context' | 'outer' | 'nothing' | 'given'

/**
 * The names of a template, a loop's body or another block with names of its own. Which variable a name
 * means is settled before anything runs, by jinja2's rules, among them the surprising one that a name which
 * is only assigned further down is undefined in a loop above, whatever the data holds.
 */
export class Scope {
  readonly parent: Scope | undefined
  /** Names that this scope reads or assigns itself. */
  #starts = new Map<string, Start>()
  #assigned = new Set<string>()

  constructor(parent?: Scope) {
    this.parent = parent
  }

  /** Names assigned here, with what they hold at the start. */
  assigned(): [name: string, start: Start][] {
    return Array.from(this.#assigned, name => [name, this.#starts.get(name) ?? 'nothing'])
  }

  /** The scope whose variable `name` means here; undefined: the data's. */
  owner(name: string): Scope | undefined {
    if (!this.#starts.has(name)) return this.parent?.owner(name)
    return this.#assigned.has(name) ? this : undefined
  }

  /** Names that the loop gives a value. */
  give(target: Target): void {
    if (target.kind === 'tuple') for (const item of target.items) this.give(item)
    else this.giveName(target.name)
  }

  giveName(name: string): void {
    this.#assigned.add(name)
    this.#starts.set(name, 'given')
  }

  /** Takes in the names that an expression reads. */
  read(e: Expression): void {
    if (e.kind === 'name' && !Scope.#known(this, e.name)) this.#starts.set(e.name, 'context')
    for (const part of operands(e)) this.read(part)
  }

  /** Does `scope`, or one around it, use the name? */
  static #known(scope: Scope | undefined, name: string): boolean {
    return scope !== undefined && (scope.#starts.has(name) || Scope.#known(scope.parent, name))
  }

  #assign(target: Target): void {
    if (target.kind === 'tuple') {
      for (const item of target.items) this.#assign(item)
      return
    }
    this.#assigned.add(target.name)
    if (this.#starts.has(target.name)) return
    this.#starts.set(target.name, Scope.#known(this.parent, target.name) ? 'outer' : 'nothing')
  }

  /** Takes in the names of statements, not of the blocks among them that have a scope of their own. */
  analyse(body: readonly Statement[]): void {
    for (const statement of body) {
      switch (statement.kind) {
        case 'print':
          this.read(statement.value)
          break
        case 'include':
          this.read(statement.name)
          break
        case 'for':
          this.read(statement.over)
          break
        case 'set':
          this.read(statement.value)
          this.#assign(statement.target)
          break
        case 'capture':
          this.#assign(statement.target)
          break
        case 'if':
          this.#analyseIf(statement)
          break
      }
    }
  }

  #analyseIf(statement: Statement & { kind: 'if' }): void {
    const [first, ...others] = statement.branches
    if (first === undefined) return
    this.read(first.test)
    const yes = this.#copy()
    yes.analyse(first.body)
    const elifs = this.#copy()
    for (const branch of others) elifs.#analyseIf({ kind: 'if', branches: [branch], otherwise: [] })
    const no = this.#copy()
    no.analyse(statement.otherwise)
    this.#merge([yes, elifs, no])
  }

  #copy(): Scope {
    const copy = new Scope(this.parent)
    copy.#starts = new Map(this.#starts)
    copy.#assigned = new Set(this.#assigned)
    return copy
  }

  /** A name that only a branch assigns has its former value where that branch is not taken. */
  #merge(branches: readonly Scope[]): void {
    const before = new Set(this.#assigned)
    for (const branch of branches) {
      for (const [name, start] of branch.#starts) this.#starts.set(name, start)
      for (const name of branch.#assigned) this.#assigned.add(name)
    }
    for (const name of this.#assigned) {
      if (!before.has(name)) this.#starts.set(name, Scope.#known(this.parent, name) ? 'outer' : 'context')
    }
  }
}
