import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import type { SwitchDoc } from '../../lib/model/types/switch.js'
import { openSnmp, readTables } from '../../lib/services/snmp/tables.js'

// Switches that are somebody else: what they tell has a bound (rules 4.18).

const community = 'public'

const tlv = (tag: number, ...parts: readonly Buffer[]): Buffer => {
  const value = Buffer.concat(parts)
  const long = Buffer.from([0x82, value.length >> 8, value.length & 255])
  return Buffer.concat([Buffer.from([tag]), value.length < 128 ? Buffer.from([value.length]) : long, value])
}
const integer = (n: number) => {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(n)
  return tlv(2, bytes)
}
/** A number of an OID. */
const part = (n: number) =>
  Buffer.from([0x80 | ((n >> 21) & 127), 0x80 | ((n >> 14) & 127), 0x80 | ((n >> 7) & 127), n & 127])

interface Agent {
  /** The next row of a table, `n` counting up. */
  readonly row: (n: number) => { readonly place: Buffer; readonly value: Buffer }
  /** Rows in an answer. */
  readonly atOnce: number
  /** It ends after so many. */
  readonly most?: number
}

/** An agent that answers each question for all below an OID; how many rows it told. */
async function agent(t: Test, { row, atOnce, most = Number.POSITIVE_INFINITY }: Agent) {
  const socket = createSocket('udp4').bind(0, '127.0.0.1')
  await once(socket, 'listening')
  t.teardown(() => void socket.close())
  let told = 0
  const ids = new Set<string>()
  const tables: { readonly base: Buffer; at: number }[] = []
  socket.on('message', (question, from) => {
    let at = question.length - 4
    while (question[at] !== 6 || at + 4 + (question[at + 1] ?? 0) !== question.length) at--
    const asked = question.subarray(at + 2, -2)
    // Above the first byte that a row adds, all is as it was asked for first.
    const known = tables.find(({ base }) => asked.subarray(0, base.length).equals(base))
    const table = known ?? { base: Buffer.from(asked), at: 0 }
    if (!known) tables.push(table)
    const pdu = question.indexOf(0xa5, 7 + community.length)
    const id = question.subarray(pdu + 2, pdu + 4 + (question[pdu + 3] ?? 0))
    const varbinds: Buffer[] = []
    for (let i = 0; i < atOnce && table.at < most; i++) {
      const { place, value } = row(table.at++)
      varbinds.push(tlv(0x30, tlv(6, table.base, place), value))
    }
    // A machine that is busy asks again what is answered late: that is one question.
    if (!ids.has(id.toString('hex'))) told += varbinds.length
    ids.add(id.toString('hex'))
    if (varbinds.length === 0)
      varbinds.push(tlv(0x30, tlv(6, Buffer.from([0x2b, 7])), Buffer.from([0x82, 0])))
    const body = tlv(0xa2, id, integer(0), integer(0), tlv(0x30, ...varbinds))
    socket.send(tlv(0x30, integer(1), tlv(4, Buffer.from(community)), body), from.port, from.address)
  })
  return { port: socket.address().port, told: () => told }
}

const mac = (n: number) => Buffer.concat([part(2), part(n >> 8), ...Array(4).fill(part(n & 255))])
const kinds: Readonly<Record<string, Agent>> = {
  'rows without end': { row: n => ({ place: mac(n), value: integer(1 + (n % 9)) }), atOnce: 40 },
  'thousands of rows in an answer': { row: n => ({ place: part(n), value: integer(7) }), atOnce: 1500 },
  'huge texts': { row: n => ({ place: part(n), value: tlv(4, Buffer.alloc(1400, 'x')) }), atOnce: 40 },
  'long OIDs': {
    row: n => ({ place: Buffer.concat([part(n), ...Array(110).fill(part(n))]), value: integer(1) }),
    atOnce: 40
  },
  'rows that go backwards': { row: n => ({ place: part(2_000_000 - n), value: integer(1) }), atOnce: 40 },
  'values of other types': {
    row: n => ({
      place: part(n),
      value: tlv([0x40, 0x46, 0x43, 0x41][n % 4] ?? 0x40, Buffer.from([1, 2, 3, 4]))
    }),
    atOnce: 40
  }
}

// rules 4.18
for (const [what, kind] of Object.entries(kinds))
  t.test(`a switch that tells ${what} is read up to a bound`, async t => {
    const all = await Promise.all([1, 2, 3].map(() => agent(t, kind)))
    await Promise.all(
      all.map(async ({ port }) => {
        const doc = { name: 'sw', ipaddress: '127.0.0.1', read: community } as SwitchDoc
        const read = readTables(doc, AbortSignal.timeout(6000), port, 2000)
        await read.catch(error =>
          t.match(error.message, /rows|not valid|refuses|not asked|cannot be asked|does not answer/)
        )
      })
    )
    for (const { told } of all) {
      // What is on the way when the bound is reached: an answer for each of four tables.
      t.ok(told() <= 2000 + 5 * kind.atOnce, `${told()} rows were told`)
    }
  })

// rules 4.18
t.test('of what a switch tells, numbers and short texts are kept', async t => {
  const row = (n: number) => ({
    place: part(n + 1),
    value: [
      integer(7),
      tlv(4, Buffer.from('Ethernet1/1')),
      tlv(4, Buffer.alloc(300, 'x')),
      tlv(0x40, Buffer.from([1, 2, 3, 4])),
      tlv(0x46, Buffer.from([1, 2, 3, 4, 5, 6, 7, 8]))
    ][n % 5] as Buffer
  })
  const { port } = await agent(t, { row, atOnce: 10, most: 20 })
  const conversation = openSnmp('127.0.0.1', community, port)
  const rows = await conversation.table('1.3.6.1.2.1.31.1.1.1.1')
  conversation.close()
  const [first, second] = [rows.get('1'), rows.get('2')]
  t.same([first, second], [7, 'Ethernet1/1'])
  t.same([...new Set([...rows.values()].map(value => typeof value))].sort(), ['number', 'string'])
  t.equal(rows.get('3'), undefined)
})
