import type { Config } from '../config/types.js'
import { serveHelper } from '../helper/serve.js'
import { settingsOf } from '../services/services.js'

/** Does root's work for the daemon, as `serveHelper`. The servers of the system are those that the ini names. */
export async function helper(config: Config): Promise<void> {
  const services = (['dhcp', 'dns'] as const).filter(service => config[service].server !== 'none')
  const [program, , tracker = ''] = config.torrent.tracker_reload
  await serveHelper(config, [
    ...services.map(service => settingsOf(service, config).service),
    ...(program === 'systemctl' ? [tracker] : [])
  ])
}
