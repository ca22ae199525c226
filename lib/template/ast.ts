interface Place {
  /** Offset in the source. */
  readonly at: number
  /** Levels of expressions below this one; bounded by the parser. */
  readonly height: number
}

export type Arithmetic = '+' | '-' | '*' | '/' | '//' | '%' | '**'
export type Comparison = '==' | '!=' | '<' | '<=' | '>' | '>=' | 'in' | 'not in'

/** Arguments of a call, filter or test. */
export interface Arguments {
  readonly args: readonly Expression[]
  readonly named: readonly { readonly name: string; readonly value: Expression }[]
}

export type Expression = Place &
  (
    | { readonly kind: 'constant'; readonly value: unknown }
    | { readonly kind: 'name'; readonly name: string }
    | { readonly kind: 'list' | 'tuple'; readonly items: readonly Expression[] }
    | { readonly kind: 'concat'; readonly items: readonly Expression[] }
    | { readonly kind: 'map'; readonly keys: readonly Expression[]; readonly values: readonly Expression[] }
    | { readonly kind: 'attribute'; readonly target: Expression; readonly name: string }
    | { readonly kind: 'item'; readonly target: Expression; readonly key: Expression }
    | {
        readonly kind: 'slice'
        readonly target: Expression
        /** First, end and step; undefined where left out. */
        readonly bounds: readonly (Expression | undefined)[]
      }
    | ({ readonly kind: 'call'; readonly target: Expression } & Arguments)
    | ({ readonly kind: 'filter'; readonly target: Expression; readonly name: string } & Arguments)
    | ({ readonly kind: 'test'; readonly target: Expression; readonly name: string } & Arguments)
    | { readonly kind: 'unary'; readonly operator: 'not' | '-' | '+'; readonly operand: Expression }
    | {
        readonly kind: 'arithmetic'
        readonly operator: Arithmetic
        readonly left: Expression
        readonly right: Expression
      }
    | {
        readonly kind: 'logic'
        readonly operator: 'and' | 'or'
        readonly left: Expression
        readonly right: Expression
      }
    | {
        readonly kind: 'compare'
        readonly first: Expression
        readonly rest: readonly { readonly operator: Comparison; readonly right: Expression }[]
      }
    | {
        readonly kind: 'choice'
        readonly test: Expression
        readonly yes: Expression
        readonly no: Expression | undefined
      }
  )

/** An expression before the parser has put it in its place. */
export type Unplaced = Expression extends infer E ? (E extends Place ? Omit<E, keyof Place> : never) : never

/** What `set` and `for` assign to. */
export type Target =
  | { readonly kind: 'name'; readonly name: string; readonly at: number }
  | { readonly kind: 'tuple'; readonly items: readonly Target[]; readonly at: number }

export interface Branch {
  readonly test: Expression
  readonly body: readonly Statement[]
}

export interface For {
  readonly kind: 'for'
  readonly at: number
  readonly target: Target
  readonly over: Expression
  /** `for … in … if test` */
  readonly test: Expression | undefined
  readonly body: readonly Statement[]
  readonly otherwise: readonly Statement[]
  /** The body reads `loop`. */
  readonly usesLoop: boolean
}

export interface Include {
  readonly kind: 'include'
  readonly at: number
  readonly name: Expression
  readonly ignoreMissing: boolean
  readonly withContext: boolean
}

export type Statement =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'print'; readonly value: Expression }
  | { readonly kind: 'if'; readonly branches: readonly Branch[]; readonly otherwise: readonly Statement[] }
  | For
  | Include
  | { readonly kind: 'set'; readonly target: Target; readonly value: Expression }
  | { readonly kind: 'capture'; readonly target: Target; readonly body: readonly Statement[] }
  | { readonly kind: 'scope'; readonly body: readonly Statement[] }

/** The expressions directly below one. */
export function operands(e: Expression | Unplaced): readonly Expression[] {
  switch (e.kind) {
    case 'constant':
    case 'name':
      return []
    case 'list':
    case 'tuple':
    case 'concat':
      return e.items
    case 'map':
      return [...e.keys, ...e.values]
    case 'attribute':
      return [e.target]
    case 'item':
      return [e.target, e.key]
    case 'slice':
      return [e.target, ...e.bounds.filter(bound => bound !== undefined)]
    case 'call':
    case 'filter':
    case 'test':
      return [e.target, ...e.args, ...e.named.map(argument => argument.value)]
    case 'unary':
      return [e.operand]
    case 'arithmetic':
    case 'logic':
      return [e.left, e.right]
    case 'compare':
      return [e.first, ...e.rest.map(step => step.right)]
    case 'choice':
      return e.no === undefined ? [e.test, e.yes] : [e.test, e.yes, e.no]
  }
}
