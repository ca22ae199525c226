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

/**
 * Who may call a route (rules 5.7):
 * `anyone`: no token is looked at; `minimal`: without a token the handler answers the minimal response;
 * `address`: as `minimal` where the path names an address in the place of a network, else as `user`;
 * `reader`: any user's token, also for a GET that notes what it has told;
 * `user`: a user's token, and an admin's for what changes something; `admin`: an admin's; `node`: as `user`,
 * or the token of the node that the path names (of any node where it names none); `source`: the handler
 * decides by the source address, a token that is sent must be valid; `files`: as `source`, but a stale token
 * is as good as none.
 */
export type Access =
  | 'anyone'
  | 'minimal'
  | 'address'
  | 'reader'
  | 'user'
  | 'admin'
  | 'node'
  | 'source'
  | 'files'

/** Where a token is needed, and a node's does not do. */
const forUsers: ReadonlySet<Access> = new Set(['reader', 'user', 'admin'])

const anonymous: Caller = { kind: 'anonymous' }

/** What the check needs of the rest of the daemon. */
export interface AccessOptions {
  readonly tokens: Pick<Tokens, 'verify'>
  /** The role a user has now, undefined when the ini names the user no more. */
  readonly roleOf: (user: string) => Role | undefined
  /** Whether a token issued to this node at that time (ms) still stands for it. */
  readonly standsFor: (node: string, issuedAt: number) => boolean
}

interface Guarded {
  readonly access: string
  readonly effect: 'reads' | 'changes'
}

/** The caller of a request, or 401 for who is not known and 403 for who may not (rules 2.3, 5.2, 5.3). */
export function authorize(options: AccessOptions, route: Guarded, head: RequestHead): Caller {
  const access = accessOf(route, head)
  if (access === 'anyone') return anonymous
  const token = head.headers['x-access-tokens']
  if (token === undefined || token === '') {
    if (forUsers.has(access) || access === 'node')
      throw unauthorized('the header x-access-tokens holds no token')
    return anonymous
  }
  const caller = typeof token === 'string' ? identify(options, token) : undefined
  if (!caller) {
    if (access === 'files') return anonymous
    throw unauthorized('the token in x-access-tokens is not valid')
  }
  if (caller.kind === 'node') checkNode(caller.node, access, head)
  if (caller.kind === 'user' && caller.role !== 'admin') checkViewer(caller, access, route)
  return caller
}

function checkViewer({ user, role }: { user: string; role: Role }, access: Access, route: Guarded): void {
  if (access === 'admin') throw forbidden(`user ${user} (${role}) may not see this`)
  if (route.effect === 'changes' && access !== 'source' && access !== 'reader')
    throw forbidden(`user ${user} (${role}) may not change anything`)
}

function accessOf(route: Guarded, head: RequestHead): Exclude<Access, 'address'> {
  const access = route.access as Access
  if (access !== 'address') return access
  return looksLikeAddress(head.params.network ?? '') ? 'minimal' : 'user'
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

function checkNode(node: string, access: Access, head: RequestHead): void {
  if (access === 'minimal' || forUsers.has(access))
    throw forbidden(`the token of node ${node} does not reach this`)
  const named = head.params.node
  if (access === 'node' && named !== undefined && named !== node)
    throw forbidden(`the token of node ${node} is not one for node ${named}`)
}

/** Whether the caller may do everything (rules 5.2). */
export const isAdmin = (caller: Caller) => caller.kind === 'user' && caller.role === 'admin'
