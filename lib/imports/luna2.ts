import { isObject, type JsonObject, type JsonValue, objectsIn } from '../base/json.js'
import { addTo } from '../base/lists.js'
import type { TypeName } from '../model/docs.js'
import { isInstaller } from '../model/effective.js'
import type { Table } from '../model/field.js'
import { decoded, listed, withFlags, yesOrNo } from '../model/luna.js'
import { settingFields } from '../model/settings.js'
import { fieldFor } from '../model/table.js'
import { tagFields } from '../model/types/osimage.js'
import { objectTypes } from '../model/types.js'

/** Tables of luna2's database, with the type of their objects here. */
const tables: Readonly<Record<string, TypeName>> = {
  ...{ network: 'network', osimage: 'osimage', bmcsetup: 'bmcsetup', group: 'group', node: 'node' },
  ...{ switch: 'switch', otherdevices: 'otherdev' }
}
/** Columns that refer to a row of another table: the field here holds that row's name. */
const references: Readonly<Record<string, readonly [table: string, field: string]>> = {
  ...{ osimageid: ['osimage', 'osimage'], osimagetagid: ['osimagetag', 'osimagetag'] },
  ...{ bmcsetupid: ['bmcsetup', 'bmcsetupname'], groupid: ['group', 'group'], switchid: ['switch', 'switch'] }
}
const otherNames: Readonly<Record<string, string>> = { shared: 'shared_with', nameserver_ip: 'ns_ip' }
/** Columns that are read separately or hold no configuration. */
const passedOver = ['id', 'name', 'status', 'changed', 'network', 'subnet', 'non_authoritative', 'user']
const carried = ['ipaddress', 'nodeinterface', 'groupinterface', 'nodesecrets', 'groupsecrets', 'osimagetag']

const own = <T>(table: Readonly<Record<string, T>>, key: string) =>
  Object.hasOwn(table, key) ? table[key] : undefined
const isSet = (value: JsonValue | undefined) => value !== undefined && value !== null && value !== ''

/** The rows of an export, and what is lost of them. */
function exportOf(document: JsonObject) {
  const lost = new Map<string, number>()
  const lose = (what: string, count = 1) => void lost.set(what, (lost.get(what) ?? 0) + count)
  const all = new Map(
    Object.entries(document).map(([table, rows]) => {
      // The first entries describe the table.
      const isRow = (row: JsonObject) => !('STRUCTURE' in row || 'SQLITE_SEQUENCE' in row)
      const flat = (row: JsonObject): JsonObject =>
        Object.fromEntries(
          Object.entries(row).filter(([, value]) => value === null || typeof value !== 'object')
        )
      return [table, objectsIn(rows).filter(isRow).map(flat)] as const
    })
  )
  const rowsOf = (table: string) => all.get(table) ?? []
  const keyed = (table: string, key: (row: JsonObject) => string) => {
    const found = new Map<string, JsonObject[]>()
    for (const row of rowsOf(table)) addTo(found, key(row), row)
    return found
  }
  const ids = new Map([...all.keys()].map(table => [table, keyed(table, ({ id }) => String(id))]))
  const nameOf = (table: string, id: JsonValue | undefined) => {
    const row = isSet(id) ? ids.get(table)?.get(String(id))?.[0] : undefined
    return row === undefined || (table === 'network' && !isSet(row.network)) ? undefined : String(row.name)
  }
  const addresses = keyed('ipaddress', row => `${row.tableref} ${row.tablerefid}`)
  return { all, rowsOf, keyed, nameOf, addresses, lost, lose }
}

type Export = ReturnType<typeof exportOf>

/** The fields of a row that svcd knows; its other columns are lost. */
function fieldsOf({ nameOf, lose }: Export, table: string, known: Table, row: JsonObject) {
  const fields: Record<string, JsonValue> = {}
  for (const [column, value] of Object.entries(row)) {
    if (!isSet(value) || passedOver.includes(column)) continue
    const [other, name = own(otherNames, column) ?? column] = own(references, column) ?? []
    const text = other === undefined ? String(value) : (nameOf(other, value) ?? '')
    const field = fieldFor(known, name, text)
    const plain = /^(?:comment|kerneloptions)$/.test(column) ? decoded(text) : text
    const number = /^\d+$/.test(text) ? Number(text) : plain
    const { json = '' } = field?.type ?? {}
    const read = json === 'array' ? listed(text) : json === 'integer' ? number : plain
    const given = json === 'boolean' ? yesOrNo(text) : read
    try {
      // luna's kickstart installs its own image.
      if (given === undefined || !field) throw new Error()
      if (name === 'provision_method' && isInstaller(given)) throw new Error()
      if (given !== '') field.type.read(given)
      if (given !== '') fields[name] = given
    } catch {
      if (text !== '0') lose(`${table}, column ${column}`)
    }
  }
  return fields
}

/** The interfaces of all groups or nodes, by the id of their owner. */
function interfacesOf({ keyed, addresses, nameOf, lose }: Export, owner: 'group' | 'node') {
  const found = keyed(`${owner}interface`, row => String(row[`${owner}id`]))
  const read = (row: JsonObject): JsonObject[] => {
    const at = owner === 'group' ? row : addresses.get(`nodeinterface ${row.id}`)?.[0]
    const network = nameOf('network', at?.networkid)
    if (network === undefined && isSet(at?.networkid)) lose(`${owner}interface, without a network of IPv4`)
    if (network === undefined && owner === 'group') return []
    const flags = Object.entries({ ...row, dhcp: at?.dhcp ?? null }).filter(([, value]) => isSet(value))
    const options = withFlags(decoded(String(row.options ?? '')), Object.fromEntries(flags))
    const ipaddress = network === undefined ? undefined : at?.ipaddress
    const given = { interface: row.interface, network, ipaddress, macaddress: row.macaddress, options }
    return [Object.fromEntries(Object.entries(given).filter(([, value]) => isSet(value))) as JsonObject]
  }
  return new Map([...found].map(([id, rows]) => [id, rows.flatMap(read)]))
}

/** Returns a function that converts a row of a table of objects. */
function readerOf(luna2: Export) {
  const { addresses, nameOf } = luna2
  const [ofGroups, ofNodes] = [interfacesOf(luna2, 'group'), interfacesOf(luna2, 'node')]
  return (table: string, type: TypeName, row: JsonObject): JsonObject => {
    const fields = fieldsOf(luna2, table, objectTypes[type].fields, row)
    if (type === 'network') fields.network = `${row.network}/${row.subnet}`
    if (yesOrNo(row.non_authoritative)) fields.dns = 'hosts'
    const at = type === 'switch' || type === 'otherdev' ? addresses.get(`${table} ${row.id}`)?.[0] : undefined
    const network = nameOf('network', at?.networkid)
    if (network !== undefined) Object.assign(fields, { network, ipaddress: at?.ipaddress ?? null })
    if (type === 'group') fields.interfaces = ofGroups.get(String(row.id)) ?? []
    if (type !== 'node') return fields
    const ofGroup = (ofGroups.get(String(row.groupid)) ?? []).map(entry => String(entry.interface))
    const own = ofNodes.get(String(row.id)) ?? []
    const interfaces = own.map(one => (ofGroup.includes(String(one.interface)) ? one : { ...one, own: true }))
    const removed = ofGroup.filter(name => !own.some(one => one.interface === name))
    return { ...fields, interfaces, ...(removed.length > 0 ? { removed } : {}) }
  }
}

/** The secrets of all groups or nodes, by the name of their owner. */
function secretsOf({ keyed, nameOf, lose }: Export, owner: 'group' | 'node') {
  const found = keyed(`${owner}secrets`, row => nameOf(owner, row[`${owner}id`]) ?? '')
  const entry = ({ name, path, content }: JsonObject) => {
    // A Fernet token, whose key only luna2's daemon has.
    const isSealed = /^gAAAA/.test(String(content))
    if (isSealed || !isSet(path)) lose(`${owner}secrets, ${isSealed ? 'encrypted' : 'without a path'}`)
    return isSealed || !isSet(path) ? [] : [{ name, path, content: content ?? '' } as JsonObject]
  }
  return Object.fromEntries([...found].map(([name, rows]) => [name, rows.flatMap(entry)]))
}

/** Converts an export of luna2's daemon to an import. `leftOut`: what svcd cannot hold. Throws Error. */
export function fromLuna2(document: JsonValue): { config: JsonObject; leftOut: string[] } {
  if (!isObject(document) || !Array.isArray(document.network) || !Array.isArray(document.node))
    throw new Error(
      'is no export of luna2: it must be an object with the tables "network", "node" and others'
    )
  const luna2 = exportOf(document)
  const { all, rowsOf, lost, lose } = luna2
  const read = readerOf(luna2)
  const entriesOf = (table: string, entry: (row: JsonObject) => JsonValue): JsonObject =>
    Object.fromEntries(rowsOf(table).map(row => [String(row.name), entry(row)]))

  const config: Record<string, JsonObject> = {}
  for (const row of rowsOf('cluster')) config.cluster = fieldsOf(luna2, 'cluster', settingFields, row)
  for (const [table, type] of Object.entries(tables))
    config[type] = entriesOf(table, row => read(table, type, row))
  for (const row of rowsOf('network').filter(one => !isSet(one.network))) {
    delete config.network?.[String(row.name)]
    lose('network, of IPv6 alone')
  }
  const tags = rowsOf('osimagetag').map(row => {
    const { osimage = '', ...files } = fieldsOf(luna2, 'osimagetag', tagFields, row)
    return [`${osimage}:${row.name}`, { name: row.name, osimage, ...files } as JsonObject] as const
  })
  config.osimagetag = Object.fromEntries(tags)
  config.secrets = { group: secretsOf(luna2, 'group'), node: secretsOf(luna2, 'node') }
  for (const [table, rows] of all)
    if (rows.length > 0 && !['cluster', ...carried, ...Object.keys(tables)].includes(table))
      lose(`table ${table}`, rows.length)
  return { config, leftOut: [...lost].map(([what, count]) => `${what}: ${count}`) }
}
