/**
 * The codes of refusals by status: `{"message": …, "code": …}`. Programs match the code, which stays when a
 * sentence is improved. The first code of a status stands for all refusals that have none of their own.
 * docs/errors.md is made from it.
 */
export const errorCodes = {
  400: {
    'invalid-request': 'The request breaks a rule that has no code of its own.',
    'invalid-http': 'The request is not valid HTTP/1.1: target, Host, If-Match, or a header of a proxy.',
    'invalid-body': 'The body is not valid JSON or UTF-8, or has the wrong shape.',
    'invalid-name': 'A name breaks the rule for names of its kind.',
    'invalid-field': 'A field has a value that it cannot have, or is not known.',
    'missing-field': 'A field that is needed is missing or empty.',
    'too-long': 'A name is too long for a system that gets it.',
    'given-twice': 'The same thing is given twice in one request.',
    'unknown-query': 'A query key is not known, or has a value that it cannot have.',
    'invalid-set': 'A node set cannot be read, or a set cannot be used here.',
    'invalid-table': 'A CSV table cannot be read, or has wrong lines.',
    'invalid-import': 'A document to import has the wrong shape.',
    'outdated-dry-run': 'Something has changed since the dry run: make it again.',
    'already-exists': 'An object, tag, secret, interface or path of this name exists.',
    'unknown-reference': 'A field names an object that does not exist.',
    'in-use': 'The object is used by others and cannot be deleted or changed.',
    'address-taken': 'The address belongs to another device or a controller.',
    'address-outside-network': 'The address lies outside of its network.',
    'address-reserved': 'The address is the network, broadcast, gateway or name server address.',
    'address-in-dynamic-range': 'The address lies in the range that DHCP lends.',
    'mac-taken': 'The MAC belongs to another interface.',
    'invalid-mac': 'No card has such a MAC.',
    'network-needed': 'An address is given without a network.',
    'invalid-range': 'The DHCP range of a network is incomplete or has its ends in the wrong order.',
    'too-many': 'A list has more entries than allowed.',
    'renumber-refused': 'Addresses do not fit into the new prefix of a network.'
  },
  401: {
    unauthenticated: 'A valid credential is needed.',
    'invalid-token': 'The token is not valid, has expired, or its node is gone: ask for a new one.',
    'wrong-password': 'User name or password is wrong.',
    'login-refused': 'The provider refused the log-in, or it is over: begin a new one.',
    'wrong-address': 'The address of the caller is not the one that may ask for this.',
    'unproven-controller': 'Only controllers of this cluster may ask for this.'
  },
  403: {
    'not-permitted': 'The caller may not do this.',
    'role-not-permitted': 'The role of the user does not allow this.',
    'no-role': 'The provider knows the user, but none of the groups of the user has a role here.',
    'node-not-permitted': 'The token of a node does not reach this.',
    'browser-refused': 'A page of a browser may not ask for this.',
    'manual-boot-refused': '`[boot] manual` does not let this address choose a node.',
    'trust-required':
      'The node has `trust` = require: its machine has to prove what it is and what it booted.',
    'nonce-refused': 'The nonce of a proof is not one for this node, too old, or used already.',
    'machine-known': 'The node has a machine already: an admin has to release it.'
  },
  404: {
    'not-found': 'What the path names does not exist.',
    'no-route': 'There is no such route.',
    'no-provider': 'No OpenID provider is configured.',
    'no-object': 'There is no object of this name.',
    'no-file': 'There is no such file.',
    'no-job': 'There is no such request, or its end was reported already.',
    'no-interface': 'The object has no such interface.',
    'no-free-address': 'The network has no free address.',
    'no-address': 'The address lies in no network, or outside of the network in the path.',
    'no-new-name': 'The new name of a rename or a clone of an OS image is missing or empty.',
    'unreadable-secret': 'A secret cannot be decrypted: secret.key is another one, or its file was changed.',
    'rescue-boot': 'The node boots for a rescue and must not be installed.',
    'unknown-node-set': 'A node set names nodes, groups or images that do not exist.',
    'bmc-not-configured': 'The BMC of a node, or its BMC set-up, is not complete.',
    'image-not-ready': 'The OS image has no directory or no packed image.',
    'consoles-disabled': 'svcd configures no consoles.',
    'not-attached': 'The console is not attached any more: attach again.'
  },
  405: { 'method-not-allowed': 'The route has other methods; the header Allow names them.' },
  408: { 'request-too-slow': 'The request came too slowly.' },
  412: { 'changed-meanwhile': 'It is no longer what the ETag in If-Match names: read it again.' },
  413: { 'too-large': 'The body is too large.' },
  416: { 'invalid-range-header': 'The range lies outside the file.' },
  417: { 'unknown-expectation': 'Only the expectation 100-continue is known.' },
  429: { 'rate-limited': 'Too many machines asked for this in the last minute.' },
  431: { 'header-too-large': 'The header is too large.' },
  500: { internal: 'A fault of svcd; its log has the reason.' },
  502: { 'leader-lost': 'The primary gave no answer and may have done the work: look first.' },
  503: {
    unavailable: 'It cannot be done now; nothing was changed.',
    busy: 'Too much of this kind waits: try again after Retry-After.',
    'directory-unavailable': 'The directory or the provider of the log-in does not answer; others log in.',
    'shutting-down': 'The service is stopping.',
    'not-leader': 'This controller is not the primary, or none is known: try again.',
    'store-unavailable': 'The store cannot make a change durable.',
    'template-failed': 'A template cannot be rendered.',
    'bmc-failed': 'The BMC of a node refused or did not answer.',
    'image-unusable': 'The directory or a file of an OS image cannot be used.',
    'image-elsewhere': 'The directory of an OS image is on another controller.',
    'not-well': 'A rehearsal ended, and the node did not come up well in it.',
    'image-changed': 'The OS image was changed, renamed or deleted meanwhile.'
  }
} as const satisfies Readonly<Record<number, Readonly<Record<string, string>>>>

type Status = keyof typeof errorCodes
/** The codes of a status. */
export type CodeOf<S extends Status> = S extends Status ? keyof (typeof errorCodes)[S] : never
export type ErrorCode = CodeOf<Status>

const defaults = new Map(
  Object.entries(errorCodes).map(([status, codes]) => [Number(status), Object.keys(codes)[0] as ErrorCode])
)
/** Returns the code of refusals with this status that have none of their own. */
export const defaultCode = (status: number): ErrorCode =>
  defaults.get(status) ?? (status < 500 ? 'invalid-request' : 'internal')

const INTRO = `# Error codes

Each refusal is one sentence and a code: \`{"message": "…", "code": "address-taken"}\` (rules 1.5). The
sentence is for people and may be improved; the code stays. A program that meets a code it does not know
goes by the status. The first code of each status stands for the refusals that have none of their own. A
front server (nginx) that refuses a request itself gives the code \`front-server\`.`

/** Makes docs/errors.md (`make docs`). */
export function errorsDocument(): string {
  const rows = Object.entries(errorCodes).flatMap(([status, codes]) =>
    Object.entries(codes).map(([code, meaning]) => `| ${status} | \`${code}\` | ${meaning} |`)
  )
  return `${INTRO}\n\n| status | code | meaning |\n|---|---|---|\n${rows.join('\n')}\n`
}
