import { isUtf8 } from 'node:buffer'
import { badRequest, methodNotAllowed, notFound } from '../base/errors.js'
import type { Route } from './route.js'

interface Entry<C> {
  readonly route: Route<C>
  /** The segment of each parameter by its name. */
  readonly parameters: ReadonlyMap<string, number>
}

class Node<C> {
  readonly fixed = new Map<string, Node<C>>()
  parameter: Node<C> | undefined
  get: Entry<C> | undefined
  post: Entry<C> | undefined
}

/** The route of a request, with its decoded path parameters. */
export interface Match<C> {
  readonly route: Route<C>
  readonly params: Record<string, string>
}

/**
 * Finds routes in a tree of segments, at a cost that depends on the path alone. A fixed segment precedes a
 * parameter, whatever the method; the parameter is tried when the fixed one leads nowhere.
 */
export class Router<C> {
  readonly #root = new Node<C>()

  /** Throws Error for a path that is not `/`, `/fixed` or `/{parameter}` segments, or a duplicate. */
  constructor(routes: readonly Route<C>[]) {
    for (const route of routes) this.#add(route)
  }

  /** Throws 404, or 405 with `Allow`. HEAD finds a GET route that only reads (rules 2.5). */
  find(method: string, segments: readonly string[]): Match<C> {
    const node = descend(this.#root, segments, 0)
    if (!node) throw notFound(`there is no route /${segments.join('/').slice(0, 200)}`, 'no-route')
    const entry = entryFor(node, method)
    if (!entry) {
      const allow = ['GET', 'HEAD', 'POST'].filter(known => entryFor(node, known))
      const only = allow.join(', ').replace(/, (?=\w+$)/, ' and ')
      const path = `/${segments.map(encodeURIComponent).join('/')}`
      throw methodNotAllowed(
        `${method} is not allowed here, only ${only}${wayOut(node, method, path)}`,
        allow
      )
    }
    const params: Record<string, string> = {}
    for (const [name, index] of entry.parameters) params[name] = segments[index] as string
    return { route: entry.route, params }
  }

  #add(route: Route<C>): void {
    const where = `route ${route.method} ${route.path}`
    if (!/^(?:\/|(?:\/[^/{}]+|\/\{\w+\})+)$/.test(route.path)) throw new Error(`${where}: malformed path`)
    const parameters = new Map<string, number>()
    let node = this.#root
    for (const [index, segment] of route.path.split('/').filter(Boolean).entries()) {
      if (segment.startsWith('{')) {
        const name = segment.slice(1, -1)
        if (parameters.has(name)) throw new Error(`${where}: {${name}} stands there twice`)
        parameters.set(name, index)
        node.parameter ??= new Node()
        node = node.parameter
      } else {
        const next = node.fixed.get(segment) ?? new Node<C>()
        node.fixed.set(segment, next)
        node = next
      }
    }
    const slot = route.method === 'GET' ? 'get' : 'post'
    const taken = node[slot]
    if (taken) throw new Error(`${where}: the same shape as ${taken.route.path}`)
    node[slot] = { route, parameters }
  }
}

function descend<C>(node: Node<C>, segments: readonly string[], depth: number): Node<C> | undefined {
  if (depth === segments.length) return node.get || node.post ? node : undefined
  const fixed = node.fixed.get(segments[depth] as string)
  const found = fixed && descend(fixed, segments, depth + 1)
  if (found) return found
  return node.parameter && descend(node.parameter, segments, depth + 1)
}

function entryFor<C>({ get, post }: Node<C>, method: string): Entry<C> | undefined {
  if (method === 'POST') return post
  return method === 'GET' || (method === 'HEAD' && get?.route.effect === 'reads') ? get : undefined
}

/** Names the route for what the client wanted with a method that is not used here (rules 2.5). */
function wayOut<C>(node: Node<C>, method: string, path: string): string {
  const name = [...(node.parameter?.get?.parameters.keys() ?? [])].at(-1)
  const member = name && `${path}/{${name}}`
  if (method === 'DELETE') {
    if (node.fixed.get('_delete')?.get) return `; to delete it: GET ${path}/_delete`
    return member && node.parameter?.fixed.has('_delete') ? `; to delete one: GET ${member}/_delete` : ''
  }
  if (!['PUT', 'PATCH', 'POST'].includes(method)) return ''
  if (node.post) return `; to change it: POST ${path}`
  return member && node.parameter?.post ? `; to change one: POST ${member}` : ''
}

/** A parsed request target. */
export interface Target {
  /** The path as the client sent it, still encoded. */
  readonly path: string
  /** The encoded text behind the first `?`, or ''. */
  readonly query: string
  /** The path's segments, percent-decoded once, without empty ones (`//`, a trailing slash). */
  readonly segments: readonly string[]
}

const SLASH = 0x2f

/**
 * Parses a request target, in origin or absolute form. By hand, as `new URL` would fold `%2e%2e` and so ask
 * for another object than the client named (rules 3.1). `target` holds one character per byte, as node:http
 * gives it. Throws 400 for any other form, a malformed `%` and invalid UTF-8; 404 for a segment with a slash
 * or a NUL, since no object has such a name.
 */
export function parseTarget(target: string): Target {
  const start = pathStart(target)
  const mark = target.indexOf('?', start)
  const end = mark < 0 ? target.length : mark
  const path = target.slice(start, end) || '/'
  return { path, query: mark < 0 ? '' : target.slice(mark + 1), segments: splitPath(path) }
}

function pathStart(target: string): number {
  if (target.charCodeAt(0) === SLASH) return 0
  const scheme = /^https?:\/\/[^/?]+/i.exec(target)
  if (!scheme) throw badRequest('the request target must be a path that begins with a slash', 'invalid-http')
  return scheme[0].length
}

function splitPath(path: string): string[] {
  const segments = path.split('/').filter(Boolean)
  return /[%\u0080-\uffff]/.test(path) ? segments.map(decodeSegment) : segments
}

function decodeSegment(raw: string): string {
  if (/%(?![\da-f]{2})/i.test(raw))
    throw badRequest('a % in the path must be followed by two hexadecimal digits', 'invalid-http')
  const text = raw.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
  const bytes = Buffer.from(text, 'latin1')
  if (!isUtf8(bytes)) throw badRequest('the path is not valid UTF-8', 'invalid-http')
  if (bytes.includes(SLASH) || bytes.includes(0)) throw notFound('no name holds a slash or a NUL', 'no-route')
  return bytes.toString('utf8')
}
