import { comment, freeText, oid, type Stored, type Table } from '../field.js'
import { named, type ObjectType } from '../object-type.js'
import { device, deviceFields } from './device.js'

const fields = [
  ...deviceFields,
  { name: 'oid', type: oid, meaning: 'OID of the table of MAC addresses' },
  { name: 'read', type: freeText, secret: true, meaning: 'SNMP read community' },
  { name: 'rw', type: freeText, secret: true, meaning: 'SNMP write community' },
  { name: 'uplinkports', type: freeText, meaning: 'ports that lead to other switches, comma-separated' },
  { name: 'vendor', type: freeText, meaning: 'vendor' },
  comment
] as const satisfies Table

export type SwitchDoc = { readonly name: string } & Stored<typeof fields>

declare module '../docs.js' {
  interface ObjectShapes {
    switch: SwitchDoc
  }
}

/** A switch, which svcd asks for the port of an unknown machine (rules 4.18). */
export const switches: ObjectType<SwitchDoc> = {
  type: 'switch',
  title: 'switch',
  fields,
  newName: ['newswitchname'],
  ...named,
  ...device
}
