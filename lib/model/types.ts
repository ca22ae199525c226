import type { Field, TypeName } from './field.js'
import { isNetworkName, isNodeName, isObjectName, nodeNameRule, objectNameRule } from './names.js'
import {
  bmcsetupFields,
  groupFields,
  networkFields,
  nodeFields,
  osimageFields,
  otherdevFields,
  switchFields
} from './tables.js'

/** What the generic code has to know of an object type. */
export interface ObjectType {
  readonly type: TypeName
  /** "OS image": for messages. */
  readonly title: string
  readonly fields: readonly Field[]
  /** The field that renames and clones, and its other spellings. */
  readonly newName: readonly [string, ...string[]]
  readonly isName: (name: string) => boolean
  readonly nameRule: string
  /** Groups and nodes hold interfaces and may override what they inherit. */
  readonly interfaces?: true
}

const named = { isName: isObjectName, nameRule: objectNameRule }

export const objectTypes: Readonly<Record<TypeName, ObjectType>> = {
  network: {
    type: 'network',
    title: 'network',
    fields: networkFields,
    newName: ['newnetname'],
    isName: isNetworkName,
    nameRule: `${objectNameRule}, and not like an address`
  },
  group: {
    type: 'group',
    title: 'group',
    fields: groupFields,
    newName: ['newgroupname'],
    interfaces: true,
    ...named
  },
  node: {
    type: 'node',
    title: 'node',
    fields: nodeFields,
    newName: ['newhostname', 'newnodename'],
    interfaces: true,
    isName: isNodeName,
    nameRule: nodeNameRule
  },
  osimage: { type: 'osimage', title: 'OS image', fields: osimageFields, newName: ['newosimage'], ...named },
  switch: { type: 'switch', title: 'switch', fields: switchFields, newName: ['newswitchname'], ...named },
  otherdev: {
    type: 'otherdev',
    title: 'other device',
    fields: otherdevFields,
    newName: ['newotherdevname'],
    ...named
  },
  bmcsetup: {
    type: 'bmcsetup',
    title: 'BMC set-up',
    fields: bmcsetupFields,
    newName: ['newbmcname'],
    ...named
  }
}
