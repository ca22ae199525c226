import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { createServer, type Server } from 'node:https'
import { join } from 'node:path'
import type { Test } from 'tap'
import { output } from './programs.js'
import { scratch } from './scratch.js'

type Json = Record<string, unknown>

/** What a service does otherwise than DMTF's mock-up of a rack server. */
export interface RedfishOptions {
  readonly user?: string
  readonly password?: string
  /**
   * The reset types that it takes; told by an ActionInfo instead of the action where `actionInfo` says so.
   */
  readonly resetTypes?: readonly string[]
  readonly actionInfo?: boolean
  /** It has sessions (the default), tells of none, or refuses to make one. */
  readonly sessions?: 'yes' | 'untold' | 'refused'
  /** The light: the property of today, the deprecated one, that of the chassis alone, or none. */
  readonly light?: 'active' | 'led' | 'chassis' | 'none'
  /** Ids of further systems, each with a power of its own. */
  readonly others?: readonly string[]
  /** So many sessions it has at most; without room it may take no basic authentication either. */
  readonly mostSessions?: number
  readonly basic?: boolean
  /**
   * What it does with ETags: the weak one as it told it, the strong form of it alone, or another one with
   * each answer.
   */
  readonly etags?: 'as told' | 'strong' | 'moving'
  /** Milliseconds after which a system that is asked to end is off; absent: at once. */
  readonly endsAfterMs?: number
  /** The log is the manager's. */
  readonly managersLog?: boolean
  /** Answers in the place of its own, by `METHOD path`. */
  readonly instead?: Readonly<Record<string, (response: ServerResponse) => void>>
}

const id = '437XR1138R2'
const systems = '/redfish/v1/Systems'
const sessions = '/redfish/v1/SessionService/Sessions'
const chassis = '/redfish/v1/Chassis/1U'
const manager = '/redfish/v1/Managers/BMC'

/** An error as DSP0266 has it, with a message of the Base registry. */
const errorOf = (name: string, message: string) => ({
  error: {
    code: `Base.1.18.${name}`,
    message: 'See @Message.ExtendedInfo',
    '@Message.ExtendedInfo': [
      {
        '@odata.type': '#Message.v1_2_1.Message',
        MessageId: `Base.1.18.${name}`,
        Message: message,
        MessageArgs: [],
        MessageSeverity: 'Critical',
        Resolution: 'None.'
      }
    ]
  }
})

class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly body: Json
  ) {
    super(String(status))
  }
}
const refuse = (status: number, name: string, message: string): never => {
  throw new Refusal(status, errorOf(name, message))
}

/**
 * A Redfish service over https after DMTF's mock-up "public-rackmount1": with its resources, sessions, power,
 * light and log, and strict with what a client sends.
 */
export class RedfishService {
  readonly port: number
  /** PEM of its certificate, which is its own CA. */
  readonly certificate: string
  /** Every request: method and path. */
  readonly asked: string[] = []
  readonly resets: string[] = []
  readonly sessions = new Map<string, string>()
  /** How many sessions there were. */
  logins = 0
  power = new Map<string, string>()
  lit = false
  boot: Json = { BootSourceOverrideEnabled: 'Disabled', BootSourceOverrideTarget: 'None' }
  entries: Json[] = [1, 2].map(entry)
  etag = 1

  private constructor(
    readonly server: Server,
    private readonly options: RedfishOptions,
    { port, certificate }: { port: number; certificate: string }
  ) {
    this.port = port
    this.certificate = certificate
    for (const system of [id, ...(options.others ?? [])]) this.power.set(system, 'Off')
  }

  static async start(
    t: Test,
    address: string,
    port: number,
    options: RedfishOptions = {},
    name = address
  ): Promise<RedfishService> {
    const directory = scratch(t)
    const [key, cert] = [join(directory, 'key.pem'), join(directory, 'cert.pem')]
    await output('openssl', [
      ...[
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-days',
        '2'
      ],
      ...['-subj', '/CN=bmc', '-addext', `subjectAltName=IP:${name}`, '-keyout', key, '-out', cert]
    ])
    const certificate = readFileSync(cert, 'utf8')
    let service: RedfishService
    const server = createServer({ key: readFileSync(key), cert: certificate }, (request, response) => {
      void service.answer(request, response)
    })
    service = new RedfishService(server, options, { port, certificate })
    server.on('clientError', (_, socket) => socket.destroy())
    await new Promise<void>(resolve => server.listen(port, address, resolve))
    t.teardown(
      () =>
        new Promise<void>(resolve => {
          server.closeAllConnections()
          server.close(() => resolve())
        })
    )
    return service
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '').replace(/(?<=.)\/$/, '')
    const what = `${request.method} ${path}`
    this.asked.push(what)
    request.on('error', () => {})
    response.on('error', () => {})
    let text = ''
    for await (const piece of request) text += piece
    const instead = this.options.instead?.[what]
    if (instead) return instead(response)
    const send = (status: number, body?: object, headers: OutgoingHttpHeaders = {}) => {
      response.writeHead(status, {
        'OData-Version': '4.0',
        ...(body ? { 'Content-Type': 'application/json; charset=utf-8' } : {}),
        ...headers
      })
      response.end(body ? JSON.stringify(body) : undefined)
    }
    try {
      if (request.headers['odata-version'] !== '4.0')
        refuse(412, 'PreconditionFailed', 'OData-Version is missing')
      if (text !== '' && request.headers['content-type'] !== 'application/json')
        refuse(415, 'UnsupportedMediaType', 'JSON is needed')
      if (what === 'GET /redfish/v1') return send(200, this.root())
      if (what === `POST ${sessions}`) return this.login(parsed(text), send)
      this.authenticate(request)
      if (request.method === 'GET') {
        const body = this.resource(path) ?? refuse(404, 'ResourceMissingAtURI', `${path} was not found`)
        const { '@odata.etag': etag, ...rest } = body
        // The older ones tell it in the header alone.
        const shown = this.options.light === 'led' ? rest : body
        return send(200, shown, etag === undefined ? {} : { ETag: String(etag) })
      }
      this.change(request, path, text, send)
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      send(error.status, error.body)
    }
  }

  private root(): Json {
    const told = { Sessions: { '@odata.id': sessions } }
    return {
      '@odata.type': '#ServiceRoot.v1_15_0.ServiceRoot',
      '@odata.id': '/redfish/v1/',
      Id: 'RootService',
      Name: 'Root Service',
      RedfishVersion: '1.15.0',
      UUID: '92384634-2938-2342-8820-489239905423',
      Systems: { '@odata.id': systems },
      Chassis: { '@odata.id': '/redfish/v1/Chassis' },
      Managers: { '@odata.id': '/redfish/v1/Managers' },
      SessionService: { '@odata.id': '/redfish/v1/SessionService' },
      Links: this.options.sessions === 'untold' ? {} : told
    }
  }

  private login(
    body: Json,
    send: (status: number, body: object, headers?: OutgoingHttpHeaders) => void
  ): void {
    if (this.options.sessions === 'refused') refuse(405, 'OperationNotAllowed', 'no sessions here')
    only(body, { UserName: 'string', Password: 'string' })
    const { user = 'admin', password = 'secret' } = this.options
    if (body.UserName !== user || body.Password !== password)
      refuse(401, 'ResourceAtUriUnauthorized', 'invalid credentials')
    if (this.sessions.size >= (this.options.mostSessions ?? 4))
      refuse(503, 'SessionLimitExceeded', 'the limit of sessions is exceeded')
    const [name, token] = [randomBytes(8).toString('hex'), randomBytes(16).toString('hex')]
    this.sessions.set(token, `${sessions}/${name}`)
    this.logins++
    const session = {
      '@odata.type': '#Session.v1_6_0.Session',
      '@odata.id': `${sessions}/${name}`,
      Id: name,
      Name: 'User Session',
      UserName: user
    }
    send(201, session, { 'X-Auth-Token': token, Location: `${sessions}/${name}` })
  }

  private authenticate({ headers }: IncomingMessage): void {
    const { user = 'admin', password = 'secret' } = this.options
    const basic = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
    const token = headers['x-auth-token']
    const isBasic = this.options.basic !== false && headers.authorization === basic
    if (isBasic || (typeof token === 'string' && this.sessions.has(token))) return
    refuse(401, 'NoValidSession', 'there is no valid session')
  }

  private collection(path: string, type: string, members: readonly string[]): Json {
    return {
      '@odata.type': `#${type}Collection.${type}Collection`,
      '@odata.id': path,
      Name: `${type} Collection`,
      'Members@odata.count': members.length,
      Members: members.map(member => ({ '@odata.id': member }))
    }
  }

  private resource(path: string): Json | undefined {
    const { options } = this
    const log = `${options.managersLog ? manager : `${systems}/${id}`}/LogServices`
    const system = path.startsWith(`${systems}/`) ? path.slice(systems.length + 1) : ''
    if (this.power.has(system)) return this.system(system)
    switch (path) {
      case systems:
        return this.collection(
          path,
          'ComputerSystem',
          [...this.power.keys()].map(name => `${systems}/${name}`)
        )
      case '/redfish/v1/SessionService':
        return {
          '@odata.type': '#SessionService.v1_1_8.SessionService',
          '@odata.id': path,
          Id: 'SessionService',
          Name: 'Session Service',
          ServiceEnabled: true,
          Sessions: { '@odata.id': sessions }
        }
      case `${systems}/${id}/ResetActionInfo`:
        return {
          '@odata.type': '#ActionInfo.v1_4_0.ActionInfo',
          '@odata.id': path,
          Id: 'ResetActionInfo',
          Name: 'Reset Action Info',
          Parameters: [
            { Name: 'ResetType', Required: true, DataType: 'String', AllowableValues: this.resetTypes }
          ]
        }
      case chassis:
        return {
          '@odata.type': '#Chassis.v1_25_0.Chassis',
          '@odata.id': path,
          Id: '1U',
          Name: 'Computer System Chassis',
          ChassisType: 'RackMount',
          ...(options.light === 'chassis' ? { LocationIndicatorActive: this.lit } : {})
        }
      case manager:
        return {
          '@odata.type': '#Manager.v1_19_0.Manager',
          '@odata.id': path,
          Id: 'BMC',
          Name: 'Manager',
          LogServices: { '@odata.id': `${manager}/LogServices` }
        }
      case log:
        return this.collection(path, 'LogService', [`${log}/Audit`, `${log}/Log1`])
      case `${systems}/${id}/LogServices`:
        return this.collection(path, 'LogService', [])
      case `${log}/Audit`:
        return { '@odata.id': path, Id: 'Audit', Name: 'Logins', Entries: { '@odata.id': `${path}/Entries` } }
      case `${log}/Log1`:
        return {
          '@odata.type': '#LogService.v1_7_0.LogService',
          '@odata.id': path,
          Id: 'Log1',
          Name: 'System Log Service',
          LogEntryType: 'SEL',
          Actions: { '#LogService.ClearLog': { target: `${path}/Actions/LogService.ClearLog` } },
          Entries: { '@odata.id': `${path}/Entries` }
        }
      case `${log}/Log1/Entries`:
        return this.page(path, 0)
      case `${log}/Log1/Entries?$skip=1`:
        return this.page(`${log}/Log1/Entries`, 1)
    }
    const number = new RegExp(`^${log}/Log1/Entries/(\\d+)$`).exec(path)?.[1]
    return number === undefined ? undefined : this.entries[Number(number) - 1]
  }

  /** Two pages, of which the second holds references only. */
  private page(path: string, from: number): Json {
    const reference = (body: Json) => ({ '@odata.id': `${path}/${body.Id}` })
    const shown: Json[] =
      from === 0
        ? this.entries.slice(0, 1).map(body => ({ ...reference(body), ...body }))
        : this.entries.slice(1).map(reference)
    return {
      '@odata.type': '#LogEntryCollection.LogEntryCollection',
      '@odata.id': path,
      Name: 'Log Service Collection',
      'Members@odata.count': this.entries.length,
      Members: shown,
      ...(from === 0 && this.entries.length > 1 ? { 'Members@odata.nextLink': `${path}?$skip=1` } : {})
    }
  }

  private get resetTypes(): readonly string[] {
    const usual = ['On', 'ForceOff', 'GracefulShutdown', 'GracefulRestart', 'ForceRestart', 'Nmi', 'ForceOn']
    return this.options.resetTypes ?? usual
  }

  private system(name: string): Json {
    const path = `${systems}/${name}`
    const { light = 'active', actionInfo } = this.options
    return {
      '@odata.type': '#ComputerSystem.v1_22_0.ComputerSystem',
      '@odata.id': path,
      '@odata.etag': `W/"${this.etag}"`,
      Id: name,
      Name: 'WebFrontEnd483',
      SystemType: 'Physical',
      ...(light === 'active' ? { LocationIndicatorActive: this.lit } : {}),
      ...(light === 'led' ? { IndicatorLED: this.lit ? 'Lit' : 'Off' } : {}),
      PowerState: this.power.get(name),
      Boot: { ...this.boot, 'BootSourceOverrideTarget@Redfish.AllowableValues': ['None', 'Pxe', 'Hdd'] },
      Links: { Chassis: [{ '@odata.id': chassis }], ManagedBy: [{ '@odata.id': manager }] },
      LogServices: { '@odata.id': `${path}/LogServices` },
      Actions: {
        '#ComputerSystem.Reset': {
          target: `${path}/Actions/ComputerSystem.Reset`,
          ...(actionInfo
            ? { '@Redfish.ActionInfo': `${path}/ResetActionInfo` }
            : { 'ResetType@Redfish.AllowableValues': this.resetTypes })
        }
      }
    }
  }

  private change(
    { method, headers }: IncomingMessage,
    path: string,
    text: string,
    send: (status: number, body?: object) => void
  ): void {
    const name = new RegExp(`^${systems}/([^/]+)/Actions/ComputerSystem\\.Reset$`).exec(path)?.[1] ?? ''
    if (method === 'DELETE') {
      const token = [...this.sessions].find(([, place]) => place === path)?.[0]
      this.sessions.delete(token ?? refuse(404, 'ResourceMissingAtURI', `${path} was not found`))
      send(204)
    } else if (method === 'PATCH') this.patch(path, parsed(text), headers['if-match'], send)
    else if (this.power.has(name)) this.reset(name, parsed(text), send)
    else if (/\/LogServices\/Log1\/Actions\/LogService\.ClearLog$/.test(path)) {
      only(parsed(text), {})
      this.entries = []
      send(204)
    } else refuse(404, 'ResourceMissingAtURI', `${path} was not found`)
  }

  private reset(name: string, body: Json, send: (status: number) => void): void {
    only(body, { ResetType: 'string' })
    const type = String(body.ResetType)
    if (!this.resetTypes.includes(type))
      refuse(400, 'ActionParameterNotSupported', `The value ${type} for ResetType is not supported`)
    const isOn = this.power.get(name) === 'On'
    if (isOn === /^(On|ForceOn)$/.test(type))
      refuse(409, 'ResourceInUse', `The system is ${isOn ? 'on' : 'off'} already`)
    this.resets.push(type)
    const { endsAfterMs } = this.options
    const end = () => this.power.set(name, /Off|Shutdown/.test(type) ? 'Off' : 'On')
    if (type === 'GracefulShutdown' && endsAfterMs !== undefined) setTimeout(end, endsAfterMs).unref()
    else end()
    send(204)
  }

  private patch(
    path: string,
    body: Json,
    match: string | undefined,
    send: (status: number, body?: object) => void
  ): void {
    const resource = this.resource(path) ?? refuse(404, 'ResourceMissingAtURI', `${path} was not found`)
    const etag = (resource as Json)['@odata.etag']
    const { etags = 'as told' } = this.options
    const wanted = etags === 'strong' ? String(etag).replace(/^W\//, '') : etag
    // One that moves matches nothing that was told before.
    const isMatched = etags === 'moving' ? match === undefined : match === wanted
    if (etag !== undefined && !isMatched) refuse(412, 'PreconditionFailed', 'the ETag does not match')
    if ('Boot' in body) {
      only(body, { Boot: 'object' })
      only(body.Boot as Json, { BootSourceOverrideEnabled: 'string', BootSourceOverrideTarget: 'string' })
      this.boot = body.Boot as Json
      this.etag++
      send(200, this.resource(path))
      return
    }
    const name = 'IndicatorLED' in (resource as Json) ? 'IndicatorLED' : 'LocationIndicatorActive'
    only(body, { [name]: name === 'IndicatorLED' ? 'string' : 'boolean' })
    // As services that know one of the two only.
    if (body.IndicatorLED === 'Blinking')
      refuse(400, 'PropertyValueNotInList', 'The value Blinking for IndicatorLED is not in the list')
    this.lit = body.LocationIndicatorActive === true || body.IndicatorLED === 'Lit'
    this.etag++
    send(200, this.resource(path))
  }
}

function entry(number: number): Json {
  return {
    '@odata.type': '#LogEntry.v1_16_0.LogEntry',
    Id: String(number),
    Name: `Log Entry ${number}`,
    EntryType: 'SEL',
    Severity: 'Critical',
    Created: `2012-03-07T14:4${number}:00Z`,
    Message: 'Temperature threshold exceeded',
    MessageId: '0x592A28'
  }
}

function parsed(text: string): Json {
  try {
    const value = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // Refused below.
  }
  return refuse(400, 'MalformedJSON', 'The request body is no JSON object')
}

/** Refuses a body that has not exactly these properties. */
function only(body: Json, types: Readonly<Record<string, string>>): void {
  for (const [name, type] of Object.entries(types)) {
    if (!(name in body)) refuse(400, 'PropertyMissing', `The property ${name} is missing`)
    if (typeof body[name] !== type)
      refuse(400, 'PropertyValueTypeError', `The value of ${name} is no ${type}`)
  }
  for (const name of Object.keys(body))
    if (!(name in types)) refuse(400, 'PropertyUnknown', `The property ${name} is not in the list`)
}
