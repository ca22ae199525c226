import type { Controller, Reply } from './controller.js'
import { until } from './until.js'

/** A network of BMCs on loopback, a BMC set-up and the group of the nodes that have one. */
export async function bmcCluster(c: Controller, setup: object = { username: 'admin', password: 'secret' }) {
  await c.post('/config/network/loop', { network: '127.7.0.0/16' })
  await c.post('/config/bmcsetup/boards', setup)
  await c.post('/config/group/compute', { bmcsetupname: 'boards' })
}

/** A node of that group with a BMC at this address. */
export const addNode = (c: Controller, name: string, ipaddress: string, more: object = {}) =>
  c.post(`/config/node/${name}`, {
    group: 'compute',
    interfaces: [{ interface: 'BMC', network: 'loop', ipaddress }],
    ...more
  })

/** Asks for something of many nodes. */
export const ask = (c: Controller, part: string, action: string, hostlist: string): Promise<Reply> =>
  c.post(`/control/action/${part}/_${action}`, { control: { [part]: { [action]: { hostlist } } } })

interface Outcome {
  readonly ok: Record<string, string>
  readonly on: Record<string, string>
  readonly off: Record<string, string>
  readonly failed: Record<string, string>
  readonly state: string
  /** How many answers told something. */
  readonly answers: number
}

/**
 * Follows a request to its end as luna's client does: until it is 404. A node that is told twice is an error.
 */
export async function follow(c: Controller, part: string, id: string): Promise<Outcome> {
  const found = { ok: {}, on: {}, off: {}, failed: {} }
  let state = ''
  let answers = 0
  await until(async () => {
    const { status, body } = await c.get(`/control/status/${id}`)
    if (status === 404) return true
    if (status !== 200) throw new Error(`${status} ${body.message}`)
    const { [part]: groups, failed } = body.control
    const news = { ...groups, failed }
    state = body.state
    if (Object.values(news).some(group => Object.keys(group as object).length > 0)) answers++
    for (const [group, nodes] of Object.entries(news))
      for (const [node, message] of Object.entries(nodes as object)) {
        if (Object.values(found).some(known => node in known)) throw new Error(`${node} is told twice`)
        Object.assign(found[group as keyof typeof found], { [node]: message })
      }
    return false
  })
  return { ...found, state, answers }
}
