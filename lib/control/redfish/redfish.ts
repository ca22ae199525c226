import { timeLimited } from '../../base/concurrency.js'
import { type JsonObject, objectsIn, within } from '../../base/json.js'
import { readRegularFile } from '../../disk/file.js'
import { type Command, IS_OFF } from '../../model/bmc-commands.js'
import { type Bmc, type CallLimits, cleanLine } from '../bmc.js'
import { Connection, linkOf, linksOf, login, pathAt, RefusedError, textAt } from './connection.js'

/** A resource with its path. */
interface Resource {
  readonly path: string
  readonly body: JsonObject
}

/** Bound for a chassis with several machines, each of which is a system. */
const MOST_SYSTEMS = 32

/**
 * Returns the node's system: the one named in its BMC set-up, else the only one with a power state. Throws an
 * Error that names the systems if there are several.
 */
async function systemOf(connection: Connection, root: JsonObject, { system: wanted, setup }: Bmc) {
  const collection = linkOf(root.Systems)
  if (collection === undefined) throw new Error('its Redfish service has no systems')
  const paths = linksOf((await connection.get(collection)).Members, MOST_SYSTEMS)
  const own = paths.filter(path => wanted !== undefined && path.replace(/\/$/, '').endsWith(`/${wanted}`))
  const systems: Resource[] = []
  let refusal: RefusedError | undefined
  // Only the named system is read, so that a fault of another one does not matter.
  for (const path of own.length === 1 ? own : paths)
    try {
      systems.push({ path, body: await connection.get(path) })
    } catch (error) {
      if (wanted === undefined || !(error instanceof RefusedError)) throw error
      refusal = error
    }
  const named = (body: JsonObject) => textAt(body, 'Id') ?? ''
  const switched = systems.filter(({ body }) => textAt(body, 'PowerState') !== undefined)
  const found =
    wanted === undefined
      ? physical(switched)
      : switched.filter(({ path, body }) => own.includes(path) || named(body) === wanted)
  if (found.length === 1) return found[0] as Resource
  if (refusal) throw refusal
  const ids = cleanLine(switched.map(({ body }) => named(body)).join(', '), 200)
  if (wanted !== undefined)
    throw new Error(`has no system ${wanted}: set "system" of BMC set-up ${setup} to one of ${ids}`)
  throw new Error(
    found.length === 0
      ? 'none of its systems tells a state of the power'
      : `has several systems: set "system" of BMC set-up ${setup} to one of ${ids}`
  )
}

/** Returns the physical systems, or all if none is marked as physical. */
function physical(systems: readonly Resource[]): readonly Resource[] {
  const machines = systems.filter(({ body }) => (textAt(body, 'SystemType') ?? 'Physical') === 'Physical')
  return machines.length > 0 ? machines : systems
}

/** Time reserved for the logout: a BMC has few sessions, and none may leak. */
const LOGOUT_MS = 2000

/** Sends a command by Redfish, and ends the session. Returns as `ipmi`. Throws Error with the reason. */
export function redfish(bmc: Bmc, command: Command, limits: RedfishLimits): Promise<string> {
  return withSession(bmc, limits, async (connection, root) => {
    const system = await systemOf(connection, root, bmc)
    if (command === 'power status') return powerState(system)
    if (command === 'sel list') return listLog(connection, system)
    if (command === 'sel clear') await clearLog(connection, system)
    else if (command === 'chassis netboot') await bootOnce(connection, system, 'Pxe')
    else if (command === 'chassis diskboot') await bootOnce(connection, system, 'Hdd')
    else if (command === 'chassis identify') await identify(connection, system, true)
    else if (command === 'chassis noidentify') await identify(connection, system, false)
    else await switchPower(connection, system, command)
    return ''
  })
}

type RedfishLimits = CallLimits & { readonly caFile: string; readonly connectMs?: number }

/** Logs in, does some work, and ends the session. Throws Error with the reason. */
async function withSession<R>(
  bmc: Bmc,
  { port, timeLimitMs, signal, caFile, connectMs }: RedfishLimits,
  work: (connection: Connection, root: JsonObject) => Promise<R>
): Promise<R> {
  const { address, setup, verifyCertificate } = bmc
  const ca = caFile === '' || !verifyCertificate ? undefined : await certificates(caFile)
  const late = new Error(`no answer within ${timeLimitMs / 1000} s`)
  const logoutMs = Math.min(LOGOUT_MS, timeLimitMs / 4)
  const visit = timeLimited({ signal, timeLimitMs: timeLimitMs - logoutMs }, late)
  const service = { address, port, setup, verifyCertificate, ca, connectMs }
  const connection = new Connection(service, visit.signal)
  try {
    const session = await login(connection, bmc)
    try {
      return await work(connection, session.root)
    } finally {
      const end = timeLimited({ timeLimitMs: logoutMs }, late)
      connection.signal = end.signal
      // The command has succeeded; a session that cannot be ended expires by itself.
      await session.logout().catch(() => {})
      end.release()
    }
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error
    const { status, message } = error
    if (status === 401)
      throw new Error(`refuses the user name or the password of BMC set-up ${setup} (${message})`)
    if (status === 429 || status === 503) throw new Error(`is busy (${message}): try again in a minute`)
    throw error
  } finally {
    visit.release()
    connection.close()
  }
}

/** A machine as its BMC describes it: texts that may be anything. */
export interface BmcMachine {
  readonly texts: Readonly<Record<'maker' | 'product' | 'serial' | 'uuid' | 'asset', string | undefined>>
  readonly macs: readonly string[]
  readonly bmcMacs: readonly string[]
}

const MOST_INTERFACES = 16

/** Reads what a BMC says of its machine. Throws Error with the reason. */
export function readMachine(bmc: Bmc, limits: RedfishLimits): Promise<BmcMachine> {
  return withSession(bmc, limits, async (connection, root) => {
    const { body } = await systemOf(connection, root, bmc)
    const maker = textAt(body, 'Manufacturer')
    // Dell's firmware gives the service tag as serial number, and Redfish the number of the board.
    const tag = /^dell/i.test(maker ?? '') ? textAt(body, 'SKU') : undefined
    const [manager] = linksOf(within(body, 'Links').ManagedBy, 1)
    const managing = manager === undefined ? {} : await ifThere(connection, manager)
    const bmcPorts = await portsOf(connection, managing)
    const own = bmcPorts.filter(port => JSON.stringify(port.IPv4Addresses ?? '').includes(`"${bmc.address}"`))
    return {
      texts: {
        ...{ maker, product: textAt(body, 'Model'), serial: tag || textAt(body, 'SerialNumber') },
        ...{ uuid: textAt(body, 'UUID'), asset: textAt(body, 'AssetTag') }
      },
      macs: (await portsOf(connection, body)).flatMap(macsAt),
      bmcMacs: [...own, ...bmcPorts].flatMap(macsAt)
    }
  })
}

const macsAt = (port: JsonObject) => textAt(port, 'PermanentMACAddress') ?? textAt(port, 'MACAddress') ?? []

/** Returns the network interfaces of a system or manager; some services have none, or fail there. */
async function portsOf(connection: Connection, of: JsonObject): Promise<JsonObject[]> {
  const collection = linkOf(of.EthernetInterfaces)
  if (collection === undefined) return []
  const ports: JsonObject[] = []
  const { Members: members } = await ifThere(connection, collection)
  for (const path of linksOf(members, MOST_INTERFACES)) ports.push(await ifThere(connection, path))
  return ports
}

/** Returns a resource; {} if the service refuses it. */
const ifThere = (connection: Connection, path: string): Promise<JsonObject> =>
  connection.get(path).catch(error => {
    if (error instanceof RefusedError) return {}
    throw error
  })

const certificates = (file: string): Promise<Buffer> =>
  readRegularFile(file).catch((error: Error) => {
    throw new Error(`[control] ca_file cannot be read: ${error.message}`)
  })

/** Sets the device of the next boot only. */
async function bootOnce(connection: Connection, { path, body }: Resource, target: 'Pxe' | 'Hdd') {
  const boot = within(body, 'Boot')
  const targets = boot['BootSourceOverrideTarget@Redfish.AllowableValues']
  if (Array.isArray(targets) && !targets.includes(target))
    throw new Error(`cannot boot from ${target} once: its system takes ${cleanLine(targets.join(', '), 200)}`)
  const Boot = { BootSourceOverrideEnabled: 'Once', BootSourceOverrideTarget: target }
  await connection.change('PATCH', path, { Boot }, textAt(body, '@odata.etag'))
}

/** Switches the identification light: the system's, else that of its chassis. */
async function identify(connection: Connection, system: Resource, lit: boolean): Promise<void> {
  if (await switchLight(connection, system, lit)) return
  for (const path of linksOf(within(system.body, 'Links').Chassis, 4))
    if (await switchLight(connection, { path, body: await connection.get(path) }, lit)) return
  throw new Error('neither its system nor its chassis has a light that can be turned on')
}

/** Returns whether the resource has a light; throws if the service refuses to switch it. */
async function switchLight(connection: Connection, { path, body }: Resource, lit: boolean) {
  const states: JsonObject[] = []
  if (typeof body.LocationIndicatorActive === 'boolean') states.push({ LocationIndicatorActive: lit })
  // Deprecated, but older services have nothing else, and some know only one of the two.
  if (textAt(body, 'IndicatorLED') !== undefined)
    for (const state of lit ? ['Blinking', 'Lit'] : ['Off']) states.push({ IndicatorLED: state })
  let refusal: unknown
  for (const state of states) {
    try {
      await connection.change('PATCH', path, state, textAt(body, '@odata.etag'))
      return true
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error
      refusal = error
    }
  }
  if (refusal !== undefined) throw refusal
  return false
}

/** ResetType values for each action, best first. */
const resetTypes = {
  'power on': ['On', 'ForceOn'],
  'power off': ['ForceOff', 'GracefulShutdown'],
  'power soft': ['GracefulShutdown', 'PushPowerButton'],
  'power cycle': ['PowerCycle', 'ForceRestart'],
  'power reset': ['ForceRestart', 'PowerCycle', 'GracefulRestart']
} as const

type PowerChange = keyof typeof resetTypes

/** Returns `on` or `off`. A machine that is powering on or off draws power, so it counts as on. */
function powerState({ body }: Resource): 'on' | 'off' {
  const state = textAt(body, 'PowerState') ?? ''
  if (state === 'Off') return 'off'
  if (['On', 'PoweringOn', 'PoweringOff', 'Paused'].includes(state)) return 'on'
  throw new Error(`tells a state of the power that is none: ${cleanLine(state, 40)}`)
}

/** Changes the power state of a system, unless it is reached. Throws an Error with what is refused. */
async function switchPower(connection: Connection, system: Resource, wanted: PowerChange | 'power boot') {
  const state = textAt(system.body, 'PowerState')
  const change = wanted !== 'power boot' ? wanted : state === 'Off' ? 'power on' : 'power cycle'
  // Some services refuse to switch on a machine that is on.
  if (change === 'power on' && state === 'On') return
  if ((change === 'power off' || change === 'power soft') && state === 'Off') return
  if (state === 'Off' && change !== 'power on') throw new Error(IS_OFF)
  const action = within(system.body, 'Actions', '#ComputerSystem.Reset')
  const target = pathAt(action, 'target')
  if (target === undefined)
    throw new Error(`its system ${cleanLine(system.path, 100)} has no action ComputerSystem.Reset`)
  const allowed = await allowedTypes(connection, action)
  const type = resetTypes[change].find(type => allowed?.includes(type) ?? true)
  if (type === undefined)
    throw new Error(`cannot do ${change}: its system takes ${cleanLine(allowed?.join(', ') ?? '', 200)}`)
  await connection.change('POST', target, { ResetType: type })
}

/** Returns the allowed reset types from the action or its ActionInfo; undefined if unknown. */
async function allowedTypes(connection: Connection, action: JsonObject) {
  const told = action['ResetType@Redfish.AllowableValues']
  if (Array.isArray(told)) return told
  const path = pathAt(action, '@Redfish.ActionInfo') ?? linkOf(action['@Redfish.ActionInfo'])
  if (path === undefined) return undefined
  const { Parameters: parameters } = await connection.get(path)
  const type = objectsIn(parameters).find(({ Name: name }) => name === 'ResetType')
  return Array.isArray(type?.AllowableValues) ? type.AllowableValues : undefined
}

const MOST_SERVICES = 16
const MOST_ENTRIES = 1000

/** Returns the entries of the system event log, one line each, in the order of the service: at most 1,000. */
async function listLog(connection: Connection, system: Resource): Promise<string> {
  const service = await logService(connection, system)
  const lines: string[] = []
  let next = linkOf(service.body.Entries)
  while (next !== undefined && lines.length < MOST_ENTRIES) {
    const page: JsonObject = await connection.get(next)
    const members = objectsIn(page.Members)
    for (const member of members.slice(0, MOST_ENTRIES - lines.length)) {
      const path = linkOf(member)
      // Some services list only references.
      const isBare = member.Id === undefined && path !== undefined
      lines.push(lineOf(isBare ? await connection.get(path) : member))
    }
    const after = pathAt(page, 'Members@odata.nextLink') ?? pathAt(page, '@odata.nextLink')
    next = after === next || members.length === 0 ? undefined : after
  }
  if (lines.length >= MOST_ENTRIES && next !== undefined)
    lines.push(`… the log goes on after ${MOST_ENTRIES} entries …`)
  return lines.join('\n')
}

/** Clears the system event log. */
async function clearLog(connection: Connection, system: Resource): Promise<void> {
  const { path, body } = await logService(connection, system)
  const target = pathAt(within(body, 'Actions', '#LogService.ClearLog'), 'target')
  if (target === undefined) throw new Error(`its log ${cleanLine(path, 100)} cannot be cleared`)
  await connection.change('POST', target, {})
}

/** Formats an entry as ipmitool does. */
const lineOf = (entry: JsonObject) =>
  [entry.Id, entry.Created, entry.Severity, entry.Message ?? entry.MessageId ?? entry.Name]
    .map(value => cleanLine(typeof value === 'string' ? value : ''))
    .join(' | ')

/** Returns the log with the system's events, its own or its manager's; one marked as SEL is preferred. */
async function logService(connection: Connection, system: Resource): Promise<Resource> {
  const managers = linksOf(within(system.body, 'Links').ManagedBy, 4)
  const found: Resource[] = []
  const gather = async (collection: string | undefined) => {
    if (collection === undefined) return
    for (const path of linksOf((await connection.get(collection)).Members, MOST_SERVICES))
      found.push({ path, body: await connection.get(path) })
  }
  await gather(linkOf(system.body.LogServices))
  if (!found.some(isSel))
    for (const path of managers) await gather(linkOf((await connection.get(path)).LogServices))
  const service = found.find(isSel) ?? found.find(holdsEvents) ?? found.find(hasEntries)
  if (!service) throw new Error('neither its system nor its manager has a log')
  return service
}

const isSel = ({ body }: Resource) => body.LogEntryType === 'SEL' || /^sel$/i.test(textAt(body, 'Id') ?? '')
const hasEntries = ({ body }: Resource) => linkOf(body.Entries) !== undefined
const holdsEvents = (service: Resource) =>
  hasEntries(service) &&
  (['Event', 'Multiple'].includes(textAt(service.body, 'LogEntryType') ?? '') ||
    /event/i.test(textAt(service.body, 'Id') ?? ''))
