import type { Config } from '../config/types.js'
import { serveHelper } from '../helper/serve.js'
import { settingsOf } from '../services/services.js'

/** Runs the helper (`serveHelper`). It may control only the servers that the ini names. */
export async function helper(config: Config): Promise<void> {
  const services = (['dhcp', 'dns'] as const).filter(service => config[service].server !== 'none')
  const [program, , tracker = ''] = config.torrent.tracker_reload
  await serveHelper(config, [
    ...services.map(service => settingsOf(service, config).service),
    ...(program === 'systemctl' ? [tracker] : [])
  ])
}
