import type { Problem } from './config/problem.js'
import { reachability } from './config/reachability.js'
import type { Config } from './config/types.js'
import { storeOptions } from './daemon.js'
import type { View } from './model/view.js'
import { Store } from './store/store.js'
import { Templates } from './template/templates.js'

/** Every problem in templates and state, with file and line, and what an admin should know besides. */
export async function checkAll(config: Config): Promise<{ problems: Problem[]; warnings: string[] }> {
  const templates = new Templates({ directory: config.paths.templates }).check()
  const networks: string[] = []
  const options = storeOptions(config)
  const verify = (view: View) => {
    for (const name of view.names('network')) networks.push(view.get('network', name)?.network ?? '')
    return options.verify(view)
  }
  const state = await Store.inspect({ ...options, verify })
  return {
    problems: [...templates.map(({ file, line, reason }) => ({ file, line, message: reason })), ...state],
    warnings: reachability(config, networks)
  }
}
