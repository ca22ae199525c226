import { asPauses } from '../base/concurrency.js'
import type { Captured } from '../services/capture.js'
import { consolesData } from '../services/consoles/data.js'
import type { ExportNode } from './nodes.js'

const ipmiPort = 623
/** Number of BMCs for each ipmipower. */
const mostOfOne = 64

/** Returns the consoles of these nodes, without their passwords; yields lines why others have none. */
function* consolesOf(nodes: readonly ExportNode[], captured: Captured) {
  const options = { ipmi_port: ipmiPort, standby: false, port: 0, log_directory: '' }
  const own = { ...captured, nodes: nodes.map(({ node }) => node) }
  const { consoles, notes } = yield* asPauses(consolesData(own, options))
  for (const note of notes) yield `\n# ${note}`
  return consoles.map(({ password: _, ...entry }) => entry)
}

const deviceOf = ({ address, port }: { readonly address: string; readonly port: number }) =>
  port === ipmiPort ? address : `${address}:${port}`

/** Yields lines for a conman.conf whose head has the password: `global ipmiopts="P:…"`. */
export function* conman(nodes: readonly ExportNode[], captured: Captured): Generator<string> {
  for (const entry of yield* consolesOf(nodes, captured)) {
    const { name, username, cipher, privilege } = entry
    const words = `U:${username},C:${cipher},L:${privilege}`
    yield `\nconsole name="${name}" dev="ipmi:${deviceOf(entry)}" ipmiopts="${words}"`
  }
}

/** Yields lines for a powerman.conf, an ipmipower for each 64 BMCs of a set-up. */
export function* powerman(nodes: readonly ExportNode[], captured: Captured): Generator<string> {
  const consoles = yield* consolesOf(nodes, captured)
  yield '\ninclude "/etc/powerman/ipmipower.dev"'
  for (const [setup, { protocol }] of captured.bmcsetups) {
    const entries = consoles.filter(entry => entry.setup === setup)
    if (protocol === 'redfish' && entries.length > 0)
      yield `\n# BMC set-up ${setup} speaks Redfish: svcctl node power reaches its nodes`
    for (let first = 0; protocol !== 'redfish' && first < entries.length; first += mostOfOne) {
      const some = entries.slice(first, first + mostOfOne)
      const plugs = some.map(deviceOf)
      const { cipher = 3, privilege } = some[0] ?? {}
      const level = privilege === 'op' ? 'operator' : privilege
      const device = `svcd-${setup}-${first / mostOfOne}`
      // The admin writes the set-up's user and password there, in the form of FreeIPMI.
      const file = `/etc/powerman/svcd-${setup}.conf`
      const words = `--config-file=${file} -D LAN_2_0 -I ${cipher} -l ${level} -h ${plugs.join(',')}`
      yield `\ndevice "${device}" "ipmipower" "/usr/sbin/ipmipower ${words} |&"`
      for (const [i, { name }] of some.entries()) yield `\nnode "${name}" "${device}" "${plugs[i]}"`
    }
  }
}
