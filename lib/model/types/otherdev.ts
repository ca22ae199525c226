import { comment, freeText, type Stored, type Table } from '../field.js'
import { named, type ObjectType } from '../object-type.js'
import { device, deviceFields } from './device.js'

const fields = [
  ...deviceFields,
  { name: 'vendor', type: freeText, meaning: 'vendor' },
  comment
] as const satisfies Table

type OtherdevDoc = { readonly name: string } & Stored<typeof fields>

declare module '../docs.js' {
  interface ObjectShapes {
    otherdev: OtherdevDoc
  }
}

export const otherdev: ObjectType<OtherdevDoc> = {
  type: 'otherdev',
  title: 'other device',
  fields,
  newName: ['newotherdevname'],
  ...named,
  ...device
}
