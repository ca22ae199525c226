import { cachedPerObject } from '../base/concurrency.js'
import { firstOf } from '../base/log.js'
import { isBmc } from '../model/cluster-index.js'
import { differ, type MachineIds, machineKeys } from '../model/machine-id.js'
import type { View } from '../model/stored.js'
import type { NodeDoc } from '../model/types/node.js'

/** Returns the lookup keys of a machine that stays as it is. */
export const keysOf = cachedPerObject(machineKeys)

/**
 * Returns the node with the serial number or UUID of a machine, if it has no machine yet (rules 4.38); why it
 * is none; undefined if no node has them.
 */
export function nodeOf(view: View, machine: MachineIds): NodeDoc | string | undefined {
  const keys = keysOf(machine)
  const names = [...new Set(keys.flatMap(key => view.index.lookup(key)))]
  const [name = ''] = names
  const node = view.get('node', name)
  if (!node) return undefined
  if (names.length > 1) return `nodes ${firstOf(names.sort(), 3)} have its serial number or UUID`
  if (differ(node, machine)) return `node ${name} has its serial number or UUID, but not both`
  const mac = node.interfaces?.find(entry => entry.macaddress !== undefined && !isBmc(entry))?.macaddress
  return mac === undefined ? node : `node ${name} has its serial number or UUID, and the machine ${mac}`
}
