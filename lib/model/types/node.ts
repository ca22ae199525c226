import {
  boolean,
  comment,
  freeText,
  integer,
  mac,
  objectName,
  port,
  type Stored,
  type Table
} from '../field.js'
import { isNodeName, nodeNameRule } from '../names.js'
import type { ObjectType } from '../object-type.js'
import { plainKind } from '../stored.js'
import { inheritable } from './inheritable.js'
import type { InterfaceDoc } from './interface.js'

export const nodeFields = [
  { name: 'group', type: objectName, refers: 'group', meaning: 'group the node belongs to' },
  { name: 'macaddr', type: mac, derived: true, meaning: 'hardware address of the provision interface' },
  { name: 'switch', type: freeText, refers: 'switch', soft: true, meaning: 'switch the node hangs on' },
  { name: 'switchport', type: port, meaning: 'port on that switch' },
  { name: 'service', type: boolean, default: false, meaning: 'boots into a shell instead of installing' },
  {
    name: 'status',
    type: freeText,
    derived: true,
    meaning: 'last state the installer reported (read-only here)'
  },
  ...inheritable,
  comment,
  { name: 'tpm_uuid', type: freeText, meaning: 'TPM identifier' },
  { name: 'tpm_pubkey', type: freeText, meaning: 'TPM public key' },
  { name: 'tpm_sha256', type: freeText, meaning: 'TPM key digest' },
  { name: 'vendor', type: freeText, meaning: 'vendor, from the hardware inventory' },
  { name: 'assettag', type: freeText, meaning: 'asset tag, from the hardware inventory' }
] as const satisfies Table

export type NodeDoc = { readonly name: string } & Stored<typeof nodeFields> & {
    readonly interfaces?: readonly InterfaceDoc[]
    /** Interfaces of the group that were deleted on this node (rules 3.5). */
    readonly removed?: readonly string[]
  }

/** Marks the name of a node whose tokens were voided, and when. */
export type RevokedDoc = {
  readonly name: string
  readonly at: number
  /** The name that the node was given; absent: it was deleted. */
  readonly renamed?: string
}

declare module '../docs.js' {
  interface ObjectShapes {
    node: NodeDoc
  }
  interface AttachedShapes {
    revoked: RevokedDoc
  }
}

/** A machine of the cluster. */
export const node: ObjectType<NodeDoc> = {
  type: 'node',
  title: 'node',
  fields: nodeFields,
  newName: ['newhostname', 'newnodename'],
  interfaces: true,
  isName: isNodeName,
  nameRule: nodeNameRule,
  connections: doc => doc.interfaces ?? [],
  memberOf: doc => doc.group
}

export const revoked = plainKind<RevokedDoc>(
  'revoked',
  { at: integer(0, Number.MAX_SAFE_INTEGER) },
  { renamed: objectName }
)
