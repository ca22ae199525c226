import type { Problem } from './config/problem.js'
import { reachability } from './config/reachability.js'
import type { Config } from './config/types.js'
import { clusterSettings, storeOptions } from './daemon.js'
import { ownerText } from './model/index.js'
import { controllerAddress } from './model/networks.js'
import { settingNames, settingsInForce, sourceOf } from './model/settings.js'
import type { SwitchDoc } from './model/tables.js'
import type { ClusterSettings, View } from './model/view.js'
import { Store } from './store/store.js'
import { Templates } from './template/templates.js'

/** What `svcd check` has found. */
export interface Findings {
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
  /** Which cluster settings are not the ini's. */
  readonly notes: readonly string[]
}

/** Every problem in templates and state, with file and line, and what an admin should know besides. */
export async function checkAll(config: Config): Promise<Findings> {
  const templates = new Templates({ directory: config.paths.templates }).check()
  const networks: string[] = []
  const options = storeOptions(config)
  const notes: string[] = []
  const warnings: string[] = []
  const verify = (view: View) => {
    const address = controllerAddress(clusterSettings(config))
    for (const owner of address === undefined ? [] : view.index.addressOwners(address))
      warnings.push(
        `[controller] address: ${config.controller.address} belongs to ${ownerText(owner)} as well`
      )
    if (config.boot.snmp_detection && !view.names('switch').some(name => isAskable(view.get('switch', name))))
      warnings.push('[boot] snmp_detection: no switch has an address and a read community to ask it with')
    notes.push(...changedSettings(view, clusterSettings(config)))
    for (const name of view.names('network')) networks.push(view.get('network', name)?.network ?? '')
    return options.verify(view)
  }
  const state = await Store.inspect({ ...options, verify })
  return {
    problems: [...templates.map(({ file, line, reason }) => ({ file, line, message: reason })), ...state],
    warnings: [...reachability(config, networks), ...warnings],
    notes
  }
}

const isAskable = (doc: SwitchDoc | undefined) => doc?.ipaddress !== undefined && doc.read !== undefined

function changedSettings(view: View, ini: ClusterSettings): string[] {
  const inForce = settingsInForce(view, ini)
  return settingNames
    .filter(name => sourceOf(view, ini, name) === 'changed')
    .map(
      name =>
        `[cluster] ${name}: ${JSON.stringify(inForce[name])} is in force, changed over http; the ini says ${JSON.stringify(ini[name])}`
    )
}
