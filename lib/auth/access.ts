import { forbidden, unauthorized } from '../base/errors.js'
import type { RequestHead } from '../http/route.js'
import { looksLikeAddress } from '../model/names.js'
import { type Grant, grantText, type Login } from './grant.js'
import type { ProgramTokens } from './program-tokens.js'
import type { Claims, Tokens } from './tokens.js'

export type Caller = { readonly kind: 'anonymous' } | UserCaller | NodeCaller

/** A user, or a program with a token of its own. */
export interface UserCaller extends Grant {
  readonly kind: 'user'
  readonly user: string
  readonly source: Login['source'] | 'token'
}

/** A node, authenticated by its token. */
interface NodeCaller {
  readonly kind: 'node'
  readonly node: string
  /** Generation of the node's name that the token was issued to. Handlers that wait compare it afterwards. */
  readonly generation: number
  readonly proof?: string
  /** Expiry of the token; milliseconds since 1970. */
  readonly expiresAt: number
}

/** The meaning of an access word: who may call, and the wording of the documents. */
interface AccessRule {
  /** For the documents: what a caller needs. */
  readonly description: string
  /** `needed`: 401 without one; `optional`: the handler also serves callers without; `unread`: ignored. */
  readonly token: 'needed' | 'optional' | 'unread'
  /** The routes that viewers, and operators as they, may call; absent: those that only read. */
  readonly viewer?: 'all' | 'none'
  /** Accepted tokens of nodes: all, or only the one of the node in the path, if any; absent: none. */
  readonly node?: 'all' | 'own'
  /** Refuses the tokens of programs: they could outlive their end otherwise. */
  readonly programs?: 'refused'
  /** An invalid token counts as none, instead of 401. */
  readonly lenient?: true
  /** Refuses browsers with 403: any web page could make one change something (rules 5.8). */
  readonly browsers?: 'refused'
}

const forAll = { viewer: 'all', node: 'all' } as const

/** Access words (rules 5.7), for check and documents. Handlers check the source address. */
const accessRules = {
  anyone: { description: 'no token', token: 'unread', ...forAll },
  machine: { description: 'no token; no browser', token: 'unread', ...forAll, browsers: 'refused' },
  minimal: { description: 'token; without one names only', token: 'optional' },
  // As `minimal` if the path has an address in place of a network, else as `user`.
  address: { description: 'token for a network, none for an address', token: 'optional' },
  // For a GET that records what it returned: a change that a viewer may make.
  reader: { description: 'token', token: 'needed', viewer: 'all' },
  // A viewer where the route reads, an admin where it changes something.
  user: { description: 'token', token: 'needed' },
  admin: { description: 'token', token: 'needed', viewer: 'none' },
  login: { description: 'token of a login', token: 'needed', viewer: 'none', programs: 'refused' },
  node: { description: 'token, or that of the node itself', token: 'needed', node: 'own' },
  source: {
    description: 'by source address, no browser; a token that is sent must be valid',
    ...{ token: 'optional', ...forAll, browsers: 'refused' }
  },
  files: {
    description: 'from a configured network, or with a token',
    ...{ token: 'optional', ...forAll, lenient: true }
  }
} as const satisfies Readonly<Record<string, AccessRule>>

export type Access = keyof typeof accessRules

/**
 * How a route respects a grant that is limited to groups (rules 5.2). `node`, `group`: its path names one of
 * them, and that is checked here. `filtered`: its handler shows and changes nodes of these groups alone.
 */
export type Limit = 'node' | 'group' | 'filtered'

/** The part of a route that decides access. */
interface RouteAccess {
  readonly path: string
  readonly access: string
  readonly effect: 'reads' | 'changes'
  /** Operators may call it too. */
  readonly operator?: true
  /** Absent: a limited caller may not call it, or counts as one without a token. */
  readonly limited?: Limit | undefined
}

const accessRuleOf = (access: string): AccessRule => accessRules[access as Access]

const refusesViewers = ({ viewer }: AccessRule, { effect }: RouteAccess) =>
  viewer === 'none' || (viewer === undefined && effect === 'changes')

/** Returns what a caller of a route needs, which users may call it, and the codes of refusals. */
export function accessOf(route: RouteAccess) {
  const meaning = accessRuleOf(route.access)
  const { description, token, node, browsers } = meaning
  const viewer = !refusesViewers(meaning, route)
  const operator = viewer || route.operator === true
  const refusesNodes = node === undefined || (node === 'own' && route.path.includes('{node}'))
  const needed = operator ? "an operator's token" : "an admin's token"
  const codes = [
    ...(token === 'unread' ? [] : [401]),
    ...(browsers || (token !== 'unread' && (!viewer || refusesNodes)) ? [403] : [])
  ]
  return {
    says: viewer ? description : description.replace(/^token/, needed),
    token,
    viewer,
    operator,
    codes
  }
}

const anonymous: Caller = { kind: 'anonymous' }

interface AccessOptions {
  readonly tokens: Pick<Tokens, 'verify'>
  readonly programs: Pick<ProgramTokens, 'verify'>
  /** Returns the present grant of a login; undefined for a user who may not log in any more. */
  readonly grantOf: (login: Login) => Grant | undefined
  /** The group of a node; undefined without one, or without such a node. */
  readonly groupOf: (node: string) => string | undefined
  /** Whether a token was issued to the node that has this name now. */
  readonly isTokenCurrent: (node: string, claims: Extract<Claims, { kind: 'node' }>) => boolean
}

/** Returns the caller of a request. Throws 401 if unauthenticated, 403 if forbidden (rules 2.3, 5.2, 5.3). */
export function authorize(options: AccessOptions, route: RouteAccess, head: RequestHead): Caller {
  const meaning = accessRuleFor(route, head)
  if (meaning.browsers) refuseBrowsers(head.headers)
  if (meaning.token === 'unread') return anonymous
  const { token, header } = tokenOf(head.headers)
  if (token === '') {
    if (meaning.token === 'needed') throw unauthorized('the header x-access-tokens holds no token')
    return anonymous
  }
  const caller = identify(options, token)
  if (!caller || (caller.kind === 'node' && header === 'Authorization')) {
    if (meaning.lenient) return anonymous
    throw unauthorized(`the token in ${header} is not valid; ask for a new one: POST /token`, 'invalid-token')
  }
  if (caller.kind === 'node') checkNode(caller.node, meaning, head)
  if (caller.kind === 'user') {
    checkRole(caller, meaning, route)
    if (caller.groups) return limitedCaller(options, caller, meaning, route, head)
  }
  return caller
}

/** Returns the token of a request, '' for none, and its header. Two different ones are no valid token. */
function tokenOf({ 'x-access-tokens': own = '', authorization = '' }: RequestHead['headers']) {
  const [, bearer = ''] = /^bearer +(.*)$/i.exec(authorization) ?? []
  const token = String(own)
  if (token !== '' && bearer !== '' && token !== bearer)
    return { token: `${token} ${bearer}`, header: 'x-access-tokens differs from that in Authorization, and' }
  return token === '' ? { token: bearer, header: 'Authorization' } : { token, header: 'x-access-tokens' }
}

/** Every browser sends at least one of these, whatever page made the request; firmware and curl send none. */
const ofBrowsers = /^(?:sec-.*|origin|accept-language|upgrade-insecure-requests)$/

/** Whether a URL in a header is of another host than Host, which front servers pass on unchanged. */
const isForeign = (url: string, host = '') => !URL.canParse(url) || new URL(url).host !== host.toLowerCase()

function refuseBrowsers(headers: RequestHead['headers']): void {
  const { host, referer = '', 'user-agent': agent = '' } = headers
  const found =
    referer !== '' && isForeign(referer, host)
      ? 'referer'
      : agent.startsWith('Mozilla/')
        ? 'user-agent'
        : undefined
  const sent = found ?? Object.keys(headers).find(name => ofBrowsers.test(name))
  if (sent === undefined) return
  throw forbidden(
    `requests of browsers are refused here (header ${sent}), as any web page could send them; use curl`,
    'browser-refused'
  )
}

/** Throws 403 for a page of another origin: failures would count against its reader. */
export function refuseForeignPage({ origin, host, 'sec-fetch-site': site }: RequestHead['headers']): void {
  if ((origin !== undefined && isForeign(origin, host)) || site === 'cross-site')
    throw forbidden('a page of another site has asked for a token', 'browser-refused')
}

function accessRuleFor({ access }: RouteAccess, head: RequestHead): AccessRule {
  if (access !== 'address') return accessRuleOf(access)
  return looksLikeAddress(head.params.network ?? '') ? accessRules.minimal : accessRules.user
}

function identify(options: AccessOptions, token: string): Caller | undefined {
  const program = options.programs.verify(token)
  if (program) return userCaller(program.name, 'token', program.grant)
  const claims = options.tokens.verify(token)
  if (claims?.kind === 'user') {
    const { user, source } = claims
    const grant = options.grantOf(claims)
    return grant && userCaller(user, source, grant)
  }
  if (claims?.kind !== 'node' || !options.isTokenCurrent(claims.node, claims)) return undefined
  // A token without a generation is valid only for a node whose tokens were never revoked.
  const { node, generation = 0, proof, expiresAt } = claims
  return { kind: 'node', node, generation, ...(proof === undefined ? {} : { proof }), expiresAt }
}

function checkNode(node: string, meaning: AccessRule, head: RequestHead): void {
  if (meaning.node === undefined)
    throw forbidden(`the token of node ${node} does not reach this`, 'node-not-permitted')
  const named = head.params.node
  if (meaning.node === 'own' && named !== undefined && named !== node)
    throw forbidden(`the token of node ${node} is not one for node ${named}`, 'node-not-permitted')
}

const userCaller = (user: string, source: UserCaller['source'], { role, groups }: Grant): UserCaller =>
  groups ? { kind: 'user', user, source, role, groups } : { kind: 'user', user, source, role }

/** The name of a caller for logs and counts: names of different sources differ, as `bob` and `ldap:bob`. */
export const accountOf = ({ user, source }: UserCaller) => (source === 'local' ? user : `${source}:${user}`)

function checkRole(caller: UserCaller, meaning: AccessRule, route: RouteAccess): void {
  if (meaning.programs && caller.source === 'token')
    throw forbidden(`the token of program ${caller.user} may not do this: log in`, 'role-not-permitted')
  const { role } = caller
  if (role === 'admin' || !refusesViewers(meaning, route) || (role === 'operator' && route.operator)) return
  const changed = role === 'operator' ? 'change this' : 'change anything'
  throw mayNot(caller, route.effect === 'changes' ? changed : 'see this')
}

/** A 403 that names the caller with its grant. */
const mayNot = (caller: UserCaller, what: string) =>
  forbidden(`user ${accountOf(caller)} (${grantText(caller)}) may not ${what}`, 'role-not-permitted')

/** Returns the caller for what its groups have. Throws 403 for the rest, and where that is not known. */
function limitedCaller(
  { groupOf }: AccessOptions,
  caller: UserCaller,
  { token }: AccessRule,
  { limited }: RouteAccess,
  { params }: RequestHead
): Caller {
  if (limited === 'filtered') return caller
  if (limited === undefined && token === 'optional') return anonymous
  if (limited === undefined) throw mayNot(caller, 'see or change this: it is not limited to groups')
  const { node = '', group = limited === 'node' ? groupOf(node) : '' } = params
  if (group === undefined || !caller.groups?.includes(group))
    throw outsideLimit(caller, limited === 'node' ? `node ${node}` : `group ${group}`)
  return caller
}

/** A 403 for nodes outside of the groups of a caller. It does not tell whether they exist. */
export const outsideLimit = (caller: UserCaller, what: string) =>
  mayNot(caller, `reach ${what.slice(0, 200)}: not all of it is nodes of these groups`)

/** The groups that a caller is limited to; undefined: none. */
export const groupsOf = (caller: Caller) => (caller.kind === 'user' ? caller.groups : undefined)

/** Whether the caller may do everything (rules 5.2). */
export const isAdmin = (caller: Caller) => caller.kind === 'user' && caller.role === 'admin'

/**
 * Maximum body size for this caller in bytes; `most` for admins. Parsing blocks the event loop, and others
 * need little: a long node set at most (rules 2.11).
 */
export const largestBody = (caller: Caller, most: number) =>
  isAdmin(caller) ? most : Math.min(most, caller.kind === 'user' ? 1_048_576 : 65_536)
