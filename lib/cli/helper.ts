import type { Config } from '../config/types.js'
import { serveHelper } from '../helper/serve.js'
import { serverOf, serviceNames } from '../services/backends.js'
import { settingsOf } from '../services/services.js'

/** Runs the helper (`serveHelper`). It may control only the servers that the ini names. */
export async function helper(config: Config): Promise<void> {
  const services = serviceNames.filter(service => serverOf(config, service) !== 'none')
  const [program, , tracker = ''] = config.torrent.tracker_reload
  await serveHelper(config, [
    ...services.map(service => settingsOf(service, config).service),
    ...(program === 'systemctl' ? [tracker] : [])
  ])
}
