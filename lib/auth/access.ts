import { forbidden, unauthorized } from '../errors.js'
import type { RequestHead } from '../http/route.js'
import { looksLikeAddress } from '../model/names.js'
import type { Role } from './roles.js'
import type { Tokens } from './tokens.js'

/** Who sends a request. */
export type Caller =
  | { readonly kind: 'anonymous' }
  | { readonly kind: 'user'; readonly user: string; readonly role: Role }
  | { readonly kind: 'node'; readonly node: string }

/** What an access word says: who may call, and how the documents put it. */
interface Meaning {
  /** For the documents: what a caller needs. */
  readonly says: string
  /** The same for a route that changes something, where that is more. */
  readonly saysOfChanges?: string
  /** `needed`: 401 without one; `optional`: a handler serves nobody too; `unread`: a token is not even looked at. */
  readonly token: 'needed' | 'optional' | 'unread'
  /** Which routes a viewer may call. */
  readonly viewer: 'all' | 'reads' | 'none'
  /** Whose node's token is good: any node's, that of the node in the path (any where it names none), no node's. */
  readonly node: 'any' | 'own' | 'none'
  /** A token that is not valid counts as none, where it would be 401. */
  readonly lenient?: true
}

/**
 * Who may call a route (rules 5.7). The check and the documents are made from this table. Where the source address
 * decides as well, the handler looks at it.
 */
const meanings = {
  anyone: { says: 'no token', token: 'unread', viewer: 'all', node: 'any' },
  minimal: {
    says: 'token; without one names only',
    token: 'optional',
    viewer: 'reads',
    node: 'none'
  },
  /** As `minimal` where the path names an address in the place of a network, else as `user`. */
  address: {
    says: 'token for a network; an address is told without one',
    token: 'optional',
    viewer: 'reads',
    node: 'none'
  },
  /** For a GET that notes what it has told: a change that a viewer may make. */
  reader: { says: 'token', token: 'needed', viewer: 'all', node: 'none' },
  user: { says: 'token', saysOfChanges: "an admin's token", token: 'needed', viewer: 'reads', node: 'none' },
  admin: { says: "an admin's token", token: 'needed', viewer: 'none', node: 'none' },
  node: {
    says: 'token, also that of the node itself',
    saysOfChanges: "an admin's token, or that of the node itself",
    token: 'needed',
    viewer: 'reads',
    node: 'own'
  },
  source: {
    says: 'by source address; a token that is sent must be valid',
    token: 'optional',
    viewer: 'all',
    node: 'any'
  },
  files: {
    says: 'from a configured network, or with a token',
    token: 'optional',
    viewer: 'all',
    node: 'any',
    lenient: true
  }
} as const satisfies Record<string, Meaning>

export type Access = keyof typeof meanings

/** What the check and the documents look at in a route. */
interface Guarded {
  readonly path: string
  readonly access: string
  readonly effect: 'reads' | 'changes'
}

const meaningOf = (access: string): Meaning => meanings[access as Access]

/** What a caller of a route needs, whether it is a token, and the codes of those who are refused. */
export function accessOf({ path, access, effect }: Guarded) {
  const { says, saysOfChanges = says, token, viewer, node } = meaningOf(access)
  const changes = effect === 'changes'
  const refusesSome =
    node === 'none' ||
    (node === 'own' && path.includes('{node}')) ||
    viewer === 'none' ||
    (viewer === 'reads' && changes)
  const codes = token === 'unread' ? [] : refusesSome ? [401, 403] : [401]
  return { says: changes ? saysOfChanges : says, token, codes }
}

const anonymous: Caller = { kind: 'anonymous' }

/** What the check needs of the rest of the daemon. */
export interface AccessOptions {
  readonly tokens: Pick<Tokens, 'verify'>
  /** The role a user has now, undefined when the ini names the user no more. */
  readonly roleOf: (user: string) => Role | undefined
  /** Whether a token issued to this node at that time (ms) still stands for it. */
  readonly standsFor: (node: string, issuedAt: number) => boolean
}

/** The caller of a request, or 401 for who is not known and 403 for who may not (rules 2.3, 5.2, 5.3). */
export function authorize(options: AccessOptions, route: Guarded, head: RequestHead): Caller {
  const meaning = meaningIn(route, head)
  if (meaning.token === 'unread') return anonymous
  const token = head.headers['x-access-tokens']
  if (token === undefined || token === '') {
    if (meaning.token === 'needed') throw unauthorized('the header x-access-tokens holds no token')
    return anonymous
  }
  const caller = typeof token === 'string' ? identify(options, token) : undefined
  if (!caller) {
    if (meaning.lenient) return anonymous
    throw unauthorized('the token in x-access-tokens is not valid')
  }
  if (caller.kind === 'node') checkNode(caller.node, meaning, head)
  if (caller.kind === 'user' && caller.role !== 'admin') checkViewer(caller, meaning, route)
  return caller
}

function meaningIn({ access }: Guarded, head: RequestHead): Meaning {
  if (access !== 'address') return meaningOf(access)
  return looksLikeAddress(head.params.network ?? '') ? meanings.minimal : meanings.user
}

function identify(options: AccessOptions, token: string): Caller | undefined {
  const claims = options.tokens.verify(token)
  if (claims?.kind === 'user') {
    const role = options.roleOf(claims.user)
    return role && { kind: 'user', user: claims.user, role }
  }
  if (claims?.kind === 'node' && options.standsFor(claims.node, claims.issuedAt))
    return { kind: 'node', node: claims.node }
  return undefined
}

function checkNode(node: string, meaning: Meaning, head: RequestHead): void {
  if (meaning.node === 'none') throw forbidden(`the token of node ${node} does not reach this`)
  const named = head.params.node
  if (meaning.node === 'own' && named !== undefined && named !== node)
    throw forbidden(`the token of node ${node} is not one for node ${named}`)
}

function checkViewer(
  { user, role }: { user: string; role: Role },
  { viewer }: Meaning,
  { effect }: Guarded
): void {
  if (viewer === 'none') throw forbidden(`user ${user} (${role}) may not see this`)
  if (viewer === 'reads' && effect === 'changes')
    throw forbidden(`user ${user} (${role}) may not change anything`)
}

/** Whether the caller may do everything (rules 5.2). */
export const isAdmin = (caller: Caller) => caller.kind === 'user' && caller.role === 'admin'

/**
 * Bytes of a body that this caller may post, where a user may post `most`: parsing takes the event loop, and a node, or
 * who sends no token, has little to say (rules 2.11).
 */
export const largestBody = (caller: Caller, most: number) =>
  caller.kind === 'user' ? most : Math.min(most, 65_536)
