// What a switch tells over SNMP, as snmpd's pass_persist asks for it: BRIDGE-MIB, Q-BRIDGE-MIB and ifName
// from a JSON file kept in memory, read again when a walk begins and it has changed.
import { readFileSync, statSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [file] = process.argv.slice(2)
const columns = {
  vlans: '1.3.6.1.2.1.17.7.1.2.2.1.2',
  macs: '1.3.6.1.2.1.17.4.3.1.2',
  indexes: '1.3.6.1.2.1.17.1.4.1.2',
  names: '1.3.6.1.2.1.31.1.1.1.1',
  own: '1.3.6.1.2.1.17.99.1'
}
const roots = new Set(Object.values(columns))
const parse = oid => oid.replace(/^\./, '').split('.').map(Number)
const compare = (a, b) => {
  for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i] - b[i]
  return a.length - b.length
}

let rows = []
let version
function load() {
  const { mtimeNs } = statSync(file, { bigint: true })
  if (mtimeNs === version) return
  version = mtimeNs
  const tables = JSON.parse(readFileSync(file, 'utf8'))
  rows = Object.entries(columns)
    .flatMap(([table, root]) =>
      Object.entries(tables[table] ?? {}).map(([key, value]) => ({ oid: parse(`${root}.${key}`), value }))
    )
    .sort((a, b) => compare(a.oid, b.oid))
}

/** The first row behind an OID, or the row that has it. */
function look(oid, isNext) {
  let [low, high] = [0, rows.length]
  while (low < high) {
    const middle = (low + high) >> 1
    const order = compare(rows[middle].oid, oid)
    if (order < 0 || (isNext && order === 0)) low = middle + 1
    else high = middle
  }
  const row = rows[low]
  return row && (isNext || compare(row.oid, oid) === 0) ? row : undefined
}

load()
let command
createInterface({ input: process.stdin }).on('line', line => {
  if (line === 'PING') process.stdout.write('PONG\n')
  else if (command === undefined) command = line
  else {
    const oid = line.replace(/^\./, '')
    if (roots.has(oid)) load()
    const row = look(parse(oid), command === 'getnext')
    command = undefined
    const type = typeof row?.value === 'string' ? 'string' : 'integer'
    process.stdout.write(row ? `.${row.oid.join('.')}\n${type}\n${row.value}\n` : 'NONE\n')
  }
})
