import { badRequest } from '../../base/errors.js'
import {
  effectiveInterfaces,
  effectiveKernelOptions,
  effectiveNode,
  groupOf,
  provisionOf,
  settingsOf,
  sourcesOf,
  variablesOf
} from '../effective.js'
import {
  atMost,
  boolean,
  comment,
  count,
  freeText,
  mac,
  names,
  objectName,
  port,
  type Stored,
  serialNumber,
  type Table,
  uuid
} from '../field.js'
import { machineKeys } from '../machine-id.js'
import { isNodeName, nodeNameRule } from '../names.js'
import {
  applyGroupInterfaces,
  assignAddresses,
  cloneInterfaces,
  mergeNodeInterfaces,
  removeNodeInterface,
  renaming,
  withMac,
  withNodeRenamed
} from '../networks.js'
import type { ChangeContext, ObjectPatch, ObjectType } from '../object-type.js'
import { omitFields } from '../request.js'
import { ownsSecrets } from '../secrets.js'
import type { AttachedType, View } from '../stored.js'
import { checkTag } from '../tags.js'
import { checkTrust } from '../trust.js'
import { checkVariables } from '../variables.js'
import { checkAttached } from './file.js'
import { moveHandover } from './handover.js'
import { bmcFields, installFields, laterFields, provisionFields, unmanagedBmcUsers } from './inheritable.js'
import { interfaceFields, nodeInterfaces } from './interface.js'

const fields = [
  { name: 'group', type: objectName, refers: 'group', meaning: 'group that the node belongs to' },
  { name: 'macaddr', type: mac, derived: 'settable', meaning: 'hardware address of the provision interface' },
  {
    name: 'switch',
    type: freeText,
    refers: 'switch',
    mayDangle: true,
    meaning: 'switch that the node is connected to'
  },
  { name: 'switchport', type: port, meaning: 'port on that switch' },
  {
    name: 'service',
    type: boolean,
    default: false,
    meaning: 'opens a shell on the console when the installation fails'
  },
  ...bmcFields,
  unmanagedBmcUsers,
  { name: 'status', type: freeText, derived: true, meaning: 'last state that the installer reported' },
  comment,
  ...installFields,
  ...provisionFields,
  {
    name: 'tpm_uuid',
    type: freeText,
    meaning:
      "name of the attestation key in hex (TPM2: 000b and a SHA-256), once it was proved to be that TPM's"
  },
  {
    name: 'tpm_pubkey',
    type: freeText,
    meaning: "the TPM's endorsement key: PEM, or its DER in the letters of PEM"
  },
  {
    name: 'tpm_sha256',
    type: freeText,
    meaning: 'SHA-256 in hex of the DER of that key; alone, as a delivery list has it, it enrols that TPM'
  },
  {
    name: 'vendor',
    type: freeText,
    limit: atMost(256, 'svcd'),
    meaning: 'vendor, from the hardware inventory'
  },
  {
    name: 'assettag',
    type: freeText,
    limit: atMost(256, 'svcd'),
    meaning: 'asset tag, from the hardware inventory'
  },
  { name: 'serial', type: serialNumber, meaning: 'serial number of the system, as its firmware tells it' },
  { name: 'uuid', type: uuid, meaning: 'UUID of the system, as its firmware tells it' },
  {
    name: 'rescue',
    type: objectName,
    refers: 'osimage',
    meaning: 'OS image that its next boot from the network starts in memory, once, without touching its disk'
  },
  ...laterFields
] as const satisfies Table

const hidden = [
  nodeInterfaces,
  {
    name: 'removed',
    type: names,
    default: [],
    omitsDefault: true,
    meaning: 'interfaces of the group that were deleted here (rules 3.5)'
  }
] as const satisfies Table

export type NodeDoc = { readonly name: string } & Stored<typeof fields> & Stored<typeof hidden>

const revokedFields = [
  { name: 'at', type: count, required: true, meaning: 'when, milliseconds since 1970' },
  {
    name: 'generation',
    type: count,
    default: 0,
    omitsDefault: true,
    meaning: 'how often the tokens of this name were voided; an earlier version did not count'
  },
  { name: 'renamed', type: objectName, meaning: 'name that the node was given; absent: it was deleted' }
] as const satisfies Table

export type RevokedDoc = { readonly name: string } & Stored<typeof revokedFields>

declare module '../docs.js' {
  interface ObjectShapes {
    node: NodeDoc
  }
  interface AttachedShapes {
    revoked: RevokedDoc
  }
}

/** Fields of the machine that a clone, another machine, does not get (rules 3.2). */
const machineFields = [
  ...['switch', 'switchport', 'vendor', 'assettag', 'tpm_uuid', 'tpm_pubkey', 'tpm_sha256'],
  ...['serial', 'uuid', 'rescue']
]
const secrets = ownsSecrets('node')

export const node: ObjectType<NodeDoc> = {
  type: 'node',
  title: 'node',
  fields,
  internalFields: hidden,
  newName: ['newhostname', 'newnodename'],
  interfaces: interfaceFields,
  isName: isNodeName,
  nameRule: nodeNameRule,
  connections: doc => doc.interfaces ?? [],
  memberOf: doc => doc.group,
  unique: machineFields,
  lookupKeys: machineKeys,

  effectiveValues(doc = { name: '' }, group, cluster) {
    const settings = settingsOf(doc, group, cluster)
    const macaddr = provisionOf(doc, settings)?.macaddress
    const variables = variablesOf(doc, group, cluster)
    return { settings, sources: sourcesOf(doc, group, cluster), derived: { macaddr, variables } }
  },
  kernelOptions: (doc, group, image) => effectiveKernelOptions(image, group, doc),
  *write(changing, before, asked, wanted) {
    const { tx, cluster } = changing
    const [interfaces, renames] = renaming(wanted.interfaces)
    const given = { ...wanted, interfaces }
    const over = settingsOf(asked, groupOf(tx, asked), cluster).provision_interface
    const after = withNodeRenamed(tx, asked, renames, over)
    const moved = before?.group !== after.group
    const group = groupOf(tx, after)
    // A new node takes the group's interfaces that the request names first: in the list and for addresses.
    const ofGroup = new Set(before ? [] : group?.interfaces?.map(entry => entry.interface))
    const named = given.interfaces.filter(entry => ofGroup.has(entry.interface))
    const begun = named.length > 0 ? mergeNodeInterfaces(changing, after, named) : after
    const node = moved ? applyGroupInterfaces(begun, before && groupOf(tx, before), group) : after
    const wishes =
      moved && before && given.readBack ? dropUnchangedInterfaces(tx, before, given) : given.interfaces
    const merged = withMacaddr(changing, before, mergeNodeInterfaces(changing, node, wishes), given)
    yield tx.put('node', merged.name, assignAddresses(tx, merged, cluster))
  },
  copy: (_changing, copy) => cloneInterfaces(copy),
  clonePatch: (given, source) => (given.readBack ? dropMachineFields(given, source) : given),
  *removeInterface({ tx }, doc, name) {
    yield tx.put('node', doc.name, removeNodeInterface(tx, doc, name))
  },

  copied: secrets.copied,
  renamed(changing, from, to) {
    secrets.renamed(changing, from, to)
    moveHandover(changing.tx, from, to)
    revoke(changing, from, to)
  },
  removed(changing, names) {
    secrets.removed(changing, names)
    for (const name of names) {
      moveHandover(changing.tx, name)
      revoke(changing, name)
    }
  },

  *checks(view, doc, title, cluster) {
    const group = groupOf(view, doc)
    yield () => checkVariables(doc.variables, title)
    yield () => checkAttached(view, doc.files, title)
    yield () => checkTag(view, settingsOf(doc, group, cluster), title)
    yield () => checkTrust(settingsOf(doc, group, cluster), title)
    const has = new Set([...(doc.interfaces ?? []).map(entry => entry.interface), ...(doc.removed ?? [])])
    for (const { interface: name, network } of group?.interfaces ?? [])
      yield () => {
        if (has.has(name)) return
        const entry = JSON.stringify({ interface: name, network, ipaddress: '…' })
        throw badRequest(
          `${title}: interface ${name} of its group ${doc.group} is missing: ` +
            `add ${entry} to its "interfaces"`,
          'missing-field'
        )
      }
  }
}

/** Drops entries unchanged since they were read: a move to another group need not keep them (rules 1.11). */
function dropUnchangedInterfaces(view: View, before: NodeDoc, given: ObjectPatch): ObjectPatch['interfaces'] {
  const shown = effectiveInterfaces(before, groupOf(view, before))
  const byName = new Map(shown.map(entry => [entry.interface, entry]))
  return given.interfaces.filter(wanted => {
    const read = byName.get(wanted.interface)
    return (
      !read ||
      (['network', 'ipaddress', 'macaddress', 'options'] as const).some(
        key => wanted[key] !== undefined && (wanted[key] ?? '') !== (read[key] ?? '')
      )
    )
  })
}

/** Sets the MAC that the request gives to the provision interface (rules 3.9). */
function withMacaddr(
  { tx, cluster }: ChangeContext,
  before: NodeDoc | undefined,
  node: NodeDoc,
  given: ObjectPatch
): NodeDoc {
  const mac = given.values.get('macaddr')
  if (mac === undefined) return node
  const { settings, provision } = effectiveNode(tx, node, cluster)
  // A MAC that was read and sent back is no request, whichever interface provisions the node now.
  const wasRead = before && given.readBack ? effectiveNode(tx, before, cluster).provision : provision
  if (mac === (provision?.macaddress ?? null) || mac === (wasRead?.macaddress ?? null)) return node
  return withMac(node, settings.provision_interface, mac === null ? null : String(mac))
}

/** Drops unchanged fields of the source's machine from a body that was read: a clone is another machine. */
function dropMachineFields(given: ObjectPatch, source: NodeDoc): ObjectPatch {
  const fields: Readonly<Record<string, unknown>> = source
  const values = new Map(given.values)
  for (const field of machineFields) if (values.get(field) === fields[field]) values.delete(field)
  if (source.interfaces?.some(({ macaddress }) => macaddress && macaddress === values.get('macaddr')))
    values.delete('macaddr')
  const byName = new Map(source.interfaces?.map(entry => [entry.interface, entry]))
  const interfaces = given.interfaces.map(entry => {
    const has = byName.get(entry.interface)
    const same = (['ipaddress', 'macaddress'] as const).filter(key => entry[key] === has?.[key])
    return omitFields(entry, same)
  })
  return { ...given, values, interfaces }
}

/** Revokes all tokens of a node name, so that a later node of that name cannot use them (rules 4.8). */
function revoke({ tx, now }: ChangeContext, name: string, renamed?: string): void {
  const generation = generationOf(tx, name) + 1
  tx.put('revoked', name, { name, at: now, generation, ...(renamed === undefined ? {} : { renamed }) })
}

/** Returns the generation of a node name, which its tokens carry; each revocation increments it. */
export const generationOf = (view: View, name: string): number => view.get('revoked', name)?.generation ?? 0

/** The names of nodes whose tokens were revoked. */
export const revoked: AttachedType<RevokedDoc> = { title: 'revoked', fields: revokedFields }
