import type { Daemon } from './daemon.js'

/** Whether a controller lists another one, or itself, as there: one that is gone is listed as gone. */
export async function isThere(daemon: Pick<Daemon, 'request'>, name: string): Promise<boolean> {
  const { body } = await daemon.request('GET', '/config/cluster')
  const { config } = (body ?? {}) as { config?: { cluster: Record<string, { status?: string }> } }
  return ['primary', 'standby'].includes(config?.cluster[name]?.status ?? '')
}
