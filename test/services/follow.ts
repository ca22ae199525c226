import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Controller } from '../support/daemon.js'

/** Sends an asynchronous request and follows it to its end, as an admin does. */
export async function follow(
  c: Controller,
  path: string
): Promise<{ state: string; status: number; message: string }> {
  const { body } = await c.request('GET', path)
  const { request_id } = body as { request_id: string }
  for (;;) {
    const told = (await c.request('GET', `/service/status/${request_id}`)).body as Awaited<
      ReturnType<typeof follow>
    >
    if (told.state === 'done' || told.state === 'failed') return told
    await sleep(50)
  }
}

/** Waits until what would be written for a service is in force, and the server was told, unless it does not run. */
export async function inForce(
  c: Controller,
  directory: string,
  service: 'dhcp' | 'dns',
  runs = true
): Promise<void> {
  for (;;) {
    const { status, body } = await c.request('GET', `/config/${service}/_preview`)
    if (status !== 200) throw new Error(JSON.stringify(body))
    const { files } = (body as { config: Record<string, { files: { diff: string }[] }> }).config[service] ?? {
      files: []
    }
    if (files.every(({ diff }) => diff === '') && !(runs && isDue(directory, service))) return
    await sleep(50)
  }
}

const isDue = (directory: string, service: string): boolean =>
  JSON.parse(readFileSync(join(directory, 'state', 'services', `${service}.json`), 'utf8')).due !== ''
