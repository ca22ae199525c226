import { freeText, type Stored, strings, type Table } from '../field.js'
import type { AttachedType } from '../stored.js'

const fields = [
  { name: 'vendor', type: freeText, meaning: 'who made the machine, as its firmware tells it' },
  { name: 'product', type: freeText, meaning: 'its model' },
  { name: 'version', type: freeText, meaning: 'version of its firmware' },
  {
    name: 'pcrs',
    type: strings,
    meaning: 'what may be measured: PCR, its SHA-256 in hex, and eight digits of the digest of each event'
  }
] as const satisfies Table

/** The measurements of a firmware that an admin accepted (rules 15.4); its name is a digest of the rest. */
export type FirmwareDoc = { readonly name: string } & Stored<typeof fields>

declare module '../docs.js' {
  interface AttachedShapes {
    firmware: FirmwareDoc
  }
}

export const firmware: AttachedType<FirmwareDoc> = { title: 'firmware', fields }
