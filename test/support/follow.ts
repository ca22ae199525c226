import { setTimeout as sleep } from 'node:timers/promises'
import { StoredFiles } from '../../lib/store/files/stored.js'
import type { Daemon } from './daemon.js'
import { until } from './until.js'

/** How an asynchronous request has ended. */
interface End {
  readonly state: string
  readonly status: number
  readonly message: string
}

/** Sends an asynchronous request and follows it to its end, as an admin does. */
export async function follow(c: Daemon, path: string): Promise<End> {
  const { body } = await c.request('GET', path)
  const { request_id } = body as { request_id: string }
  let told: End | undefined
  await until(async () => {
    told = (await c.request('GET', `/service/status/${request_id}`)).body as End
    return told.state === 'done' || told.state === 'failed'
  })
  return told as End
}

/** The pause between two looks at a preview: each starts a thread, which loads all that renders. */
export const LOOK_MS = 250

/**
 * Waits until what would be written for a service is in force, and the server was told, unless it does not
 * run.
 */
export function inForce(c: Daemon, service: 'dhcp' | 'dns' | 'tftp', runs = true): Promise<void> {
  let looks = 0
  return until(async () => {
    if (looks++ > 0) await sleep(LOOK_MS)
    if (runs && isDue(c, service)) return false
    const { status, body } = await c.request('GET', `/config/${service}/_preview`)
    if (status !== 200) throw new Error(JSON.stringify(body))
    const { config } = body as { config: Record<string, { files: { diff: string }[] }> }
    const isWritten = config[service]?.files.every(({ diff }) => diff === '') ?? true
    return isWritten && !(runs && isDue(c, service))
  })
}

/** The log has the note before its file, which is written later. */
const isDue = (c: Daemon, service: string): boolean =>
  JSON.parse(new StoredFiles(c.path('state')).text('services', service) ?? '{}').due !== ''
