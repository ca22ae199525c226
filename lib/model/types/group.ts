import { comment, type Stored, type Table } from '../field.js'
import { named, type ObjectType } from '../object-type.js'
import { inheritable } from './inheritable.js'
import type { InterfaceDoc } from './interface.js'

export const groupFields = [...inheritable, comment] as const satisfies Table

export type GroupDoc = { readonly name: string } & Stored<typeof groupFields> & {
    readonly interfaces?: readonly InterfaceDoc[]
  }

declare module '../docs.js' {
  interface ObjectShapes {
    group: GroupDoc
  }
}

/** A group of nodes: what it sets, its nodes inherit; its interfaces, they have. */
export const group: ObjectType<GroupDoc> = {
  type: 'group',
  title: 'group',
  fields: groupFields,
  newName: ['newgroupname'],
  interfaces: true,
  ...named
}
