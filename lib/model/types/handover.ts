import { count, freeText, mac, objectName, type Stored, type Table } from '../field.js'
import type { AttachedType, Tx } from '../stored.js'

const fields = [
  { name: 'released', type: count, meaning: 'when an admin released the node, milliseconds since 1970' },
  { name: 'taken', type: count, meaning: 'when the node, or its machine, changed hands' },
  { name: 'seen', type: count, meaning: 'when an admin noted that' },
  { name: 'mac', type: mac, meaning: 'the machine' },
  {
    name: 'to',
    type: objectName,
    meaning: 'node that the machine was given to; absent: it has got this one'
  },
  { name: 'from', type: freeText, meaning: 'source address of the request' }
] as const satisfies Table

/** The record of a node that was released, or that changed hands at a console (rules 4.23). */
export type HandoverDoc = { readonly name: string } & Stored<typeof fields>

declare module '../docs.js' {
  interface AttachedShapes {
    handover: HandoverDoc
  }
}

export const handover: AttachedType<HandoverDoc> = { title: 'handover of node', fields }

/** Moves the record along with a renamed node, or removes it with a deleted one. */
export function moveHandover(tx: Tx, name: string, to?: string): void {
  const doc = tx.get('handover', name)
  if (!doc) return
  tx.remove('handover', name)
  if (to !== undefined) tx.put('handover', to, { ...doc, name: to })
}
