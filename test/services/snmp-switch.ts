import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { openSnmp } from '../../lib/services/snmp/tables.js'
import { startChild } from '../support/child.js'
import { freePort } from '../support/free-port.js'
import { checkout, requirePrograms } from '../support/programs.js'

export const community = 'not-for-the-log'

/** Where a MAC was learned; `vlan`: in Q-BRIDGE-MIB's table, else in BRIDGE-MIB's; `own`: in the vendor's. */
export interface Learned {
  readonly mac: string
  readonly port: number
  readonly vlan?: number
  readonly own?: true
}

/** A real snmpd that speaks for a switch whose port N has ifIndex 1000 + N and the name Ethernet1/N. */
export interface Switch {
  readonly address: string
  readonly port: number
  /** Takes the place of what was learned before. */
  learn(learned: readonly Learned[]): void
  /** How often it was asked for its ports from the first one on; a repeated packet does not count. */
  walks(): number
  stop(): Promise<void>
}

const portTable = '1.3.6.1.2.1.17.1.4.1.2'
const nameTable = '1.3.6.1.2.1.31.1.1.1.1'
/** The question for what follows `portTable` itself, as it is encoded. */
const firstPort = Buffer.from('060a2b060102011101040102' + '0500', 'hex')

const octets = (mac: string) =>
  mac
    .split(':')
    .map(octet => Number.parseInt(octet, 16))
    .join('.')

export async function startSwitch(
  t: Test,
  place: { readonly address: string; readonly port: number },
  learned: readonly Learned[],
  ports: number
): Promise<Switch> {
  requirePrograms('snmpd')
  const behind = await freePort()
  const directory = mkdtempSync(join(tmpdir(), 'svcd-snmp-'))
  const file = (name: string) => join(directory, name)
  const learn = (rows: readonly Learned[]) => {
    const numbers = Array.from({ length: ports }, (_, i) => i + 1)
    const tables = {
      vlans: {} as Record<string, number>,
      macs: {} as Record<string, number>,
      own: {} as Record<string, number>,
      indexes: Object.fromEntries(numbers.map(n => [n, 1000 + n])),
      names: Object.fromEntries(numbers.map(n => [1000 + n, `Ethernet1/${n}`]))
    }
    for (const { mac, port, vlan, own } of rows)
      if (own) tables.own[octets(mac)] = port
      else if (vlan === undefined) tables.macs[octets(mac)] = port
      else tables.vlans[`${vlan}.${octets(mac)}`] = port
    writeFileSync(file('table.json'), JSON.stringify(tables))
  }
  learn(learned)
  mkdirSync(file('persistent'))
  const agent = `${process.execPath} ${join(checkout, 'test/services/snmp-agent.mjs')} ${file('table.json')}`
  writeFileSync(
    file('snmpd.conf'),
    `agentaddress udp:127.0.0.1:${behind}
rocommunity ${community} default
createUser reader SHA "long enough" AES "private enough"
rouser reader authpriv
pass_persist .1.3.6.1.2.1.17 ${agent}
pass_persist .1.3.6.1.2.1.31.1.1.1 ${agent}
`
  )
  const { stop } = await startChild(
    ['env', `SNMP_PERSISTENT_DIR=${file('persistent')}`, 'MIBS=', 'snmpd', '-f'].concat([
      '-Lo',
      '-C',
      '-c',
      file('snmpd.conf'),
      '-I',
      '-ifTable,-ifXTable',
      '-p',
      file('pid')
    ]),
    log => log.includes('NET-SNMP version')
  )
  t.teardown(async () => {
    await stop()
    rmSync(directory, { recursive: true, force: true })
  })
  await agentsRun(behind)
  const relay = await relayed(place, behind)
  t.teardown(relay.close)
  return {
    ...place,
    learn,
    walks: relay.walks,
    stop: async () => {
      relay.close()
      await stop()
    }
  }
}

/** snmpd starts its agents with the first question. */
async function agentsRun(port: number): Promise<void> {
  for (let tries = 1; ; tries++) {
    const conversation = openSnmp('127.0.0.1', community, port)
    try {
      return void (await Promise.all([portTable, nameTable].map(oid => conversation.table(oid))))
    } catch (error) {
      if (tries === 20) throw error
    } finally {
      conversation.close()
    }
  }
}

/** Stands before a server on loopback and counts what passes. */
async function relayed(place: { address: string; port: number }, behind: number) {
  const front = createSocket('udp4').bind(place.port, place.address)
  await once(front, 'listening')
  const backs = new Map<string, Socket>()
  const beginnings = new Set<string>()
  front.on('message', (packet, { address, port }) => {
    if (packet.includes(firstPort)) beginnings.add(packet.toString('base64'))
    const client = `${address}:${port}`
    let back = backs.get(client)
    if (!back) {
      back = createSocket('udp4').on('message', answer => front.send(answer, port, address))
      backs.set(client, back)
    }
    back.send(packet, behind, '127.0.0.1')
  })
  let open = true
  return {
    walks: () => beginnings.size,
    close: () => {
      if (open) for (const socket of [front, ...backs.values()]) socket.close()
      open = false
    }
  }
}

/** A switch that was unplugged: its packets go nowhere and nothing comes back. */
export async function deadSwitch(
  t: Test,
  place: { address: string; port: number }
): Promise<{ asked(): number }> {
  let asked = 0
  const socket = createSocket('udp4').bind(place.port, place.address)
  socket.on('message', () => asked++)
  await once(socket, 'listening')
  t.teardown(() => void socket.close())
  return { asked: () => asked }
}
