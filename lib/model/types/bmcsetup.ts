import {
  atMost,
  boolean,
  comment,
  freeText,
  integer,
  objectName,
  oneNumberOf,
  oneOf,
  type Stored,
  type Table
} from '../field.js'
import { named, type ObjectType } from '../object-type.js'

const fields = [
  { name: 'mgmtchannel', type: integer(0, 15), default: 1, meaning: 'channel of the users' },
  { name: 'netchannel', type: integer(0, 15), default: 1, meaning: 'channel of the LAN settings' },
  { name: 'userid', type: integer(1, 63), default: 2, meaning: 'slot of the user' },
  { name: 'username', type: freeText, limit: atMost(16, 'a BMC'), meaning: 'user name' },
  { name: 'password', type: freeText, secret: true, limit: atMost(20, 'a BMC'), meaning: 'password' },
  {
    name: 'protocol',
    type: oneOf('ipmi', 'redfish'),
    default: 'ipmi',
    meaning: 'how the BMC is asked to switch the power'
  },
  { name: 'cipher', type: oneNumberOf(3, 17), default: 3, meaning: 'cipher suite of IPMI' },
  {
    name: 'privilege',
    type: oneOf('administrator', 'operator', 'user'),
    default: 'administrator',
    meaning: 'what svcd asks to be in a session of IPMI'
  },
  { name: 'port', type: integer(1, 65_535), meaning: 'port of IPMI or Redfish; null: that of [control]' },
  {
    name: 'verify_certificate',
    type: boolean,
    default: true,
    meaning: 'checks the certificate of the BMC, for Redfish'
  },
  {
    name: 'system',
    type: objectName,
    meaning: "Id of the node among several systems of one BMC, for Redfish; null: the BMC's only one"
  },
  comment
] as const satisfies Table

export type BmcsetupDoc = { readonly name: string } & Stored<typeof fields>

declare module '../docs.js' {
  interface ObjectShapes {
    bmcsetup: BmcsetupDoc
  }
}

/** The settings of a BMC, for the installation and for sessions with it. */
export const bmcsetup: ObjectType<BmcsetupDoc> = {
  type: 'bmcsetup',
  title: 'BMC set-up',
  fields,
  newName: ['newbmcname'],
  ...named
}
