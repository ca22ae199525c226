import { isBmc } from '../../model/cluster-index.js'
import { settingsOf } from '../../model/effective.js'
import type { NodeDoc } from '../../model/types/node.js'
import type { Captured } from '../capture.js'
import type { ConsoleEntry, ConsolesData } from './variables.js'

interface ConsolesOptions extends Pick<ConsolesData, 'port' | 'log_directory'> {
  /** Port of IPMI of BMCs whose set-up names none. */
  readonly ipmi_port: number
  readonly standby: boolean
}

/** conmand splits its options at commas and ends them at a quote; it reads 7-bit characters. */
const fits = /^[\x20-\x7e]*$/
const splits = /[,"]/
/** A quote or the end of a line would let an API admin add a console, which may be a program. */
const optionsFit = /^[A-Za-z0-9:,_-]*$/

/** Yields for each node; returns all data of conmand. */
export function* consolesData(
  captured: Captured,
  { ipmi_port, standby, ...options }: ConsolesOptions
): Generator<undefined, ConsolesData> {
  const consoles: ConsoleEntry[] = []
  const { conman_options = '', ...others } = captured.cluster.variables
  const isFit = optionsFit.test(conman_options)
  const notes: string[] = []
  if (!isFit)
    notes.push('cluster: variable "conman_options" may hold only letters, digits and : , _ -: left out')
  for (const node of standby ? [] : captured.nodes) {
    const found = consoleOf(captured, node, ipmi_port)
    if (typeof found === 'string') notes.push(found)
    else if (found) consoles.push(found)
    yield
  }
  return { ...options, variables: isFit ? captured.cluster.variables : others, consoles, notes }
}

/** Returns the console of a node, why it has none although it has a BMC, or undefined without a BMC. */
function consoleOf(
  { groups, cluster, bmcsetups }: Captured,
  node: NodeDoc,
  ipmiPort: number
): ConsoleEntry | string | undefined {
  const { bmcsetupname } = settingsOf(node, groups.get(node.group ?? ''), cluster)
  const { ipaddress } = node.interfaces?.find(isBmc) ?? {}
  const setup = bmcsetups.get(bmcsetupname ?? '')
  if (ipaddress === undefined || !setup?.username || !setup.password) return undefined
  const { name, username, password, protocol, port, cipher = 3, privilege } = setup
  if (!fits.test(username) || splits.test(username))
    return `${node.name}: field "username" of BMC set-up ${name} has a character that conmand does not take`
  return {
    ...{ name: node.name, group: node.group ?? '', setup: name, address: ipaddress, username, cipher },
    // A console is reached by IPMI, although the power may be by Redfish.
    port: protocol === 'redfish' ? ipmiPort : (port ?? ipmiPort),
    // Digits need no quoting.
    password: Buffer.from(password).toString('hex'),
    privilege: privilege === 'operator' ? 'op' : privilege === 'user' ? 'user' : 'admin'
  }
}
