import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import { join } from 'node:path'
import type { Test } from 'tap'
import { scratch } from './scratch.js'

type Json = Record<string, unknown>

/** A machine behind a simulated BMC. */
export interface BmcMachine {
  readonly serial: string
  readonly uuid: string
  readonly macs: readonly string[]
  readonly bmcMac: string
}

const at = (path: string) => ({ '@odata.id': path })
const list = (paths: readonly string[]) => ({ Members: paths.map(at), 'Members@odata.count': paths.length })

/** Where a maker's firmware puts the resources, and what it fills in. */
interface Layout {
  readonly maker: string
  readonly product: string
  readonly system: string
  readonly manager: string
  readonly nic: (n: number) => string
  readonly bmcNic: string
  readonly ids: (machine: BmcMachine) => Json
}

export const makers: Readonly<Record<string, Layout>> = {
  dell: {
    ...{
      maker: 'Dell Inc.',
      product: 'PowerEdge R650',
      system: 'System.Embedded.1',
      manager: 'iDRAC.Embedded.1'
    },
    ...{ nic: n => `NIC.Integrated.1-${n}-1`, bmcNic: 'NIC.1' },
    // The service tag is the SKU, the serial number that of the board.
    ids: ({ serial, uuid }) => ({ SKU: serial, SerialNumber: `CNBOARD${serial}`, UUID: uuid })
  },
  hpe: {
    ...{
      maker: 'HPE',
      product: 'ProLiant DL360 Gen10',
      system: '1',
      manager: '1',
      nic: n => String(n),
      bmcNic: '1'
    },
    ids: ({ serial, uuid }) => ({ SerialNumber: serial, SKU: 'P19766-B21', UUID: uuid.toUpperCase() })
  },
  supermicro: {
    ...{
      maker: 'Supermicro',
      product: 'SYS-120U-TNR',
      system: '1',
      manager: '1',
      nic: n => `${n}`,
      bmcNic: '1'
    },
    ids: ({ serial, uuid }) => ({
      SerialNumber: serial,
      UUID: uuid,
      AssetTag: '',
      PartNumber: 'To be filled by O.E.M.'
    })
  },
  lenovo: {
    ...{
      maker: 'Lenovo',
      product: 'ThinkSystem SR630',
      system: '1',
      manager: '1',
      nic: n => `NIC${n}`,
      bmcNic: 'NIC'
    },
    ids: ({ serial, uuid }) => ({ SerialNumber: serial, SKU: '7X02CTO1WW', UUID: uuid, Oem: { Lenovo: {} } })
  },
  // It knows no network cards of the machine.
  openbmc: {
    ...{
      maker: 'OpenBMC',
      product: 'Witherspoon',
      system: 'system',
      manager: 'bmc',
      nic: () => '',
      bmcNic: 'eth0'
    },
    ids: ({ serial, uuid }) => ({ SerialNumber: serial, UUID: uuid })
  }
}

/** The resources of a service, by path. */
function resources(layout: Layout, machine: BmcMachine, address: string): Record<string, Json> {
  const root = '/redfish/v1'
  const [system, manager] = [`${root}/Systems/${layout.system}`, `${root}/Managers/${layout.manager}`]
  const nics =
    layout.nic(1) === ''
      ? []
      : machine.macs.map((_, i) => `${system}/EthernetInterfaces/${layout.nic(i + 1)}`)
  const bmcNic = `${manager}/EthernetInterfaces/${layout.bmcNic}`
  return {
    [`${root}/`]: {
      ...{ RedfishVersion: '1.15.0', Systems: at(`${root}/Systems`), Managers: at(`${root}/Managers`) },
      Links: { Sessions: at(`${root}/SessionService/Sessions`) }
    },
    [`${root}/Systems`]: list([system]),
    [`${root}/Managers`]: list([manager]),
    [system]: {
      ...{
        Id: layout.system,
        SystemType: 'Physical',
        PowerState: 'On',
        Manufacturer: layout.maker,
        Model: layout.product
      },
      ...layout.ids(machine),
      Links: { ManagedBy: [at(manager)] },
      ...(nics.length > 0 ? { EthernetInterfaces: at(`${system}/EthernetInterfaces`) } : {})
    },
    [`${system}/EthernetInterfaces`]: list(nics),
    ...Object.fromEntries(
      nics.map((nic, i) => [nic, { Id: `${i}`, MACAddress: machine.macs[i]?.toUpperCase() }])
    ),
    [manager]: { Id: layout.manager, EthernetInterfaces: at(`${manager}/EthernetInterfaces`) },
    [`${manager}/EthernetInterfaces`]: list([bmcNic, `${manager}/EthernetInterfaces/usb0`]),
    [bmcNic]: { MACAddress: machine.bmcMac, IPv4Addresses: [{ Address: address, AddressOrigin: 'DHCP' }] },
    [`${manager}/EthernetInterfaces/usb0`]: { MACAddress: '02:11:22:33:44:55' }
  }
}

type Answer = (request: IncomingMessage, response: ServerResponse) => boolean

/** Starts simulated BMCs, with one certificate. */
export class BmcMakers {
  /** Every request: address, method and path. */
  readonly asked: string[] = []
  /** The most requests that waited for an answer at once. */
  atOnce = 0
  #open = 0
  /** Sessions that were begun and not ended. */
  readonly sessions = new Set<string>()
  readonly #key: string
  readonly #cert: string

  constructor(
    private readonly t: Test,
    private readonly port: number,
    private readonly user = 'admin',
    private readonly password = 'secret'
  ) {
    const directory = scratch(t)
    const [key, cert] = [join(directory, 'key.pem'), join(directory, 'cert.pem')]
    const words = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=bmc'
    execFileSync('openssl', [...words.split(' '), '-keyout', key, '-out', cert], { stdio: 'ignore' })
    this.#key = readFileSync(key, 'utf8')
    this.#cert = readFileSync(cert, 'utf8')
  }

  /** Starts one; `instead` answers some requests in the place of it. */
  async start(
    address: string,
    maker: string,
    machine: BmcMachine,
    instead: Answer = () => false
  ): Promise<void> {
    const all = resources(makers[maker] as Layout, machine, address)
    const server = createServer({ key: this.#key, cert: this.#cert }, (request, response) => {
      this.asked.push(`${address} ${request.method} ${request.url}`)
      this.atOnce = Math.max(this.atOnce, ++this.#open)
      response.on('close', () => {
        this.#open--
      })
      if (!instead(request, response)) this.#answer(all, request, response)
    })
    server.on('connection', socket => socket.on('error', () => undefined))
    await new Promise<void>(resolve => server.listen(this.port, address, resolve))
    this.t.teardown(() => {
      server.closeAllConnections()
      server.close()
    })
  }

  #answer(all: Record<string, Json>, request: IncomingMessage, response: ServerResponse): void {
    const { method, url = '', headers } = request
    const send = (status: number, body: Json, more = {}) => {
      response.writeHead(status, { 'Content-Type': 'application/json', ...more })
      response.end(JSON.stringify(body))
    }
    const found = all[url]
    const isOpen = url === '/redfish/v1/' || this.sessions.has(String(headers['x-auth-token']))
    if (method === 'POST' && url.endsWith('/Sessions')) this.#login(url, request, send)
    else if (!isOpen) send(401, {})
    else if (method === 'DELETE') {
      this.sessions.delete(url.split('/').at(-1) ?? '')
      send(200, {})
    } else send(found ? 200 : 404, found ?? {})
  }

  #login(
    url: string,
    request: IncomingMessage,
    send: (status: number, body: Json, more?: object) => void
  ): void {
    let text = ''
    request.on('data', piece => {
      text += String(piece)
    })
    request.on('end', () => {
      const { UserName, Password } = JSON.parse(text)
      if (UserName !== this.user || Password !== this.password) return send(401, { error: { message: 'no' } })
      const token = randomBytes(8).toString('hex')
      this.sessions.add(token)
      return send(201, {}, { 'X-Auth-Token': token, Location: `${url}/${token}` })
    })
  }
}
