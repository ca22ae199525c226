import { notFound } from '../base/errors.js'
import { oneLine } from '../base/log.js'
import { isBmc } from '../model/cluster-index.js'
import type { Model } from '../model/model.js'
import type { BmcsetupDoc } from '../model/types/bmcsetup.js'

/** The BMC of a node with its access settings. */
export interface Bmc {
  readonly node: string
  readonly address: string
  /** BMC set-up with the other settings. */
  readonly setup: string
  readonly protocol: 'ipmi' | 'redfish'
  readonly username: string
  readonly password: string
  readonly cipher: 3 | 17
  readonly privilege: 'administrator' | 'operator' | 'user'
  /** Port of this BMC; undefined for the port in `[control]`. */
  readonly port: number | undefined
  readonly verifyCertificate: boolean
  /** ID of the node's system, for a BMC with several systems. */
  readonly system: string | undefined
}

/** Returns the BMC of a node. Throws 404 that names object, missing field and remedy. */
export function bmcOf(model: Model, name: string): Bmc {
  const lacking = (message: string) => notFound(message, 'bmc-not-configured')
  const node = model.get('node', name)
  const { interfaces, settings } = model.effective(node)
  // Suggested for the whole group, if the node has one.
  const set = `svcctl ${node.group === undefined ? `node set ${name}` : `group set ${node.group}`}`
  const entry = interfaces.find(isBmc)
  if (!entry) throw lacking(`node ${name} has no interface BMC: type ${set} BMC.network=NETWORK`)
  if (entry.ipaddress === undefined)
    throw lacking(
      `node ${name}: its interface BMC has no "ipaddress": ` +
        `type svcctl node set ${name} BMC.ipaddress=ADDRESS`
    )
  if (settings.bmcsetupname === null)
    throw lacking(
      `node ${name} has no BMC set-up: type ${set} bmcsetupname=NAME (svcctl bmcsetup list shows them)`
    )
  const access = bmcAccess(model.get('bmcsetup', settings.bmcsetupname), (lacks, wayOut) =>
    lacking(`${lacks}, which the BMC of ${name} asks for: ${wayOut}`)
  )
  return { node: name, address: entry.ipaddress, ...access }
}

/** Returns the access settings of a BMC set-up. Throws what `refusal` makes of a missing user or password. */
export function bmcAccess(
  setup: BmcsetupDoc,
  refusal: (lacks: string, wayOut: string) => Error
): Omit<Bmc, 'node' | 'address'> {
  const { name, username, password, protocol, cipher, privilege, port, verify_certificate, system } = setup
  if (!username || !password) {
    const [field, example] = username ? ['password', '-'] : ['username', 'NAME']
    const wayOut = `type svcctl bmcsetup set ${name} ${field}=${example}`
    throw refusal(`BMC set-up ${name} has no "${field}"`, wayOut)
  }
  return {
    ...{ setup: name, username, password, system, port },
    ...{ protocol: protocol ?? 'ipmi', cipher: cipher ?? 3, privilege: privilege ?? 'administrator' },
    verifyCertificate: verify_certificate ?? true
  }
}

/** Limits of one exchange with one BMC. */
export interface CallLimits {
  readonly port: number
  readonly timeLimitMs: number
  readonly signal: AbortSignal
}

/** Removes control and formatting characters, and cuts to `longest`: for logs and terminals. */
export const cleanLine = (text: string, longest = 300): string =>
  oneLine(text.trim().replace(/\p{Cf}/gu, ''), longest)

/** Makes several lines safe; empty lines are removed. */
export const cleanText = (text: string) =>
  text
    .split(/\r\n|\n|\r/)
    .map(line => cleanLine(line))
    .filter(line => line !== '')
    .join('\n')

/** Shortens a text to `longest` characters: keeps the last lines, or the beginning of a single one. */
export function shortenTo(text: string, longest: number): string {
  if (text.length <= longest) return text
  const lines = text.split('\n')
  if (lines.length === 1) return `${text.slice(0, longest - 1)}…`
  const room = longest - 40
  const kept: string[] = []
  let size = 0
  for (const line of lines.reverse()) {
    size += line.length + 1
    if (size > room) break
    kept.unshift(line)
  }
  return [`… ${lines.length - kept.length} lines left out …`, ...kept].join('\n')
}
