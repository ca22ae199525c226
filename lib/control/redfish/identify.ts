import type { JsonObject } from '../../json.js'
import { type Connection, linksOf, objectAt, RefusedError, textAt } from './connection.js'
import type { Resource } from './system.js'

/** Turns the light on or off that tells where a machine is: the system's, else that of its chassis. */
export async function identify(
  connection: Connection,
  system: Resource,
  lit: boolean,
  signal: AbortSignal
): Promise<void> {
  if (await light(connection, system, lit, signal)) return
  for (const path of linksOf(objectAt(system.body, 'Links').Chassis, 4))
    if (await light(connection, { path, body: await connection.get(path, signal) }, lit, signal)) return
  throw new Error('neither its system nor its chassis has a light that can be turned on')
}

/** Whether the resource has a light; throws when the service refuses to turn it. */
async function light(connection: Connection, { path, body }: Resource, lit: boolean, signal: AbortSignal) {
  const states: JsonObject[] = []
  if (typeof body.LocationIndicatorActive === 'boolean') states.push({ LocationIndicatorActive: lit })
  // Deprecated, and all that older services have; some know only one of the two.
  if (textAt(body, 'IndicatorLED') !== undefined)
    for (const state of lit ? ['Blinking', 'Lit'] : ['Off']) states.push({ IndicatorLED: state })
  let refusal: unknown
  for (const state of states) {
    try {
      await connection.change('PATCH', path, signal, state, textAt(body, '@odata.etag'))
      return true
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error
      refusal = error
    }
  }
  if (refusal !== undefined) throw refusal
  return false
}
