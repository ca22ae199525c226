import { notFound } from '../base/errors.js'
import type { Config } from '../config/types.js'
import type { Docs, TypeName } from '../model/docs.js'
import { atNextBoot, type EffectiveNode, effectiveNode, kernelOptionsOf } from '../model/effective.js'
import type { Model } from '../model/model.js'
import { type Secret, secretsOf } from '../model/secrets.js'
import { defaultTag, filesOf, findTag, tagKey } from '../model/tags.js'
import { objectTypes } from '../model/types.js'
import type { Machine } from './machine.js'

/** The objects of the rehearsal controller: copies of the objects that a single node depends on. */
export interface Copy {
  /** `[type, object]`: they are put into the new state as they are. */
  readonly objects: readonly (readonly [type: string, doc: { readonly name: string }])[]
  /** In the clear: the copy has a key of its own. */
  readonly secrets: readonly { readonly owner: 'node' | 'group'; name: string; secrets: readonly Secret[] }[]
  /** The files of the files directory that the node may ask for. */
  readonly files: readonly string[]
}

/** Another image or tag than the node has, for the rehearsal alone. */
export interface Override {
  readonly image?: string | undefined
  readonly tag?: string | undefined
}

/** Returns a node as it would boot with another image or tag. Throws 404 for an unknown one. */
export function withOverride(model: Model, name: string, { image, tag }: Override): EffectiveNode {
  const node = model.get('node', name)
  const { settings } = model.effective(node)
  const osimage = image ?? settings.osimage ?? undefined
  if (image !== undefined) model.get('osimage', image)
  if (tag !== undefined && tag !== defaultTag && !findTag(model.view, osimage ?? '', tag))
    throw notFound(`OS image ${osimage} has no tag ${tag}`, 'no-object')
  const osimagetag = tag ?? (image === undefined ? settings.osimagetag : defaultTag)
  const { rescue: _, ...rest } = node
  const given = image === undefined && tag === undefined ? node : rest
  const other = { ...given, ...(osimage ? { osimage } : {}), osimagetag }
  return atNextBoot(model.view, effectiveNode(model.view, other, model.cluster))
}

/** Copies what a node depends on: without its BMC and torrents, and with a TPM that is only reported. */
export function copyOf(model: Model, target: EffectiveNode, machine: Machine): Copy {
  const { view } = model
  const objects = new Map<string, readonly [string, { readonly name: string }]>()
  const add = (type: TypeName, name: string | undefined) => {
    const doc = name === undefined ? undefined : view.get(type, name)
    if (!doc || objects.has(`${type} ${name}`)) return
    objects.set(`${type} ${name}`, [type, withoutSecrets(type, doc)])
    follow(type, doc)
  }
  const follow = (type: TypeName, doc: object) => {
    const values = doc as Readonly<Record<string, unknown>>
    for (const { name, refers } of objectTypes[type].fields)
      if (refers && refers !== 'node')
        for (const one of [values[name] ?? []].flat()) add(refers as TypeName, String(one))
    for (const { network } of (values.interfaces as { network?: string }[] | undefined) ?? [])
      add('network', network)
  }
  const node = standIn(target, machine)
  objects.set(`node ${node.name}`, ['node', node])
  follow('node', node)
  add('group', node.group)
  add('osimage', node.rescue)
  const changed = view.get('cluster', 'cluster')
  const tag = view.get('osimagetag', tagKey(node.osimage ?? '', node.osimagetag ?? ''))
  const images = [...objects.values()].flatMap(([type, doc]) => (type === 'osimage' ? [doc] : []))
  const holders: Partial<Docs['osimage']>[] = [tag ?? [], images].flat()
  const files = holders.flatMap(doc => Object.values(filesOf(doc)))
  const packs = files.flatMap(file => view.get('pack', file) ?? [])
  const roots = packs.flatMap(({ roots = [] }) => roots.map(({ file }) => file))
  const owners = [['node', node.name] as const, ...(node.group ? [['group', node.group] as const] : [])]
  return {
    objects: [
      ...objects.values(),
      ...(changed ? [['cluster', changed] as const] : []),
      // It is the only image with a tag of this name here.
      ...(tag ? [['osimagetag', { ...tag, order: 1 } as { name: string }] as const] : []),
      ...packs.map(pack => ['pack', pack] as const)
    ],
    secrets: owners.map(([owner, name]) => ({
      ...{ owner, name, secrets: secretsOf(view, model.box, owner, name, false) }
    })),
    files: [...new Set([...files, ...roots])]
  }
}

function standIn(target: EffectiveNode, { macs, net, tpm }: Machine): Docs['node'] {
  const { node, settings } = target
  const { switch: _, switchport: __, ...rest } = node
  const on = settings.provision_interface
  const isTorrent = settings.provision_method === 'torrent'
  const interfaces = (node.interfaces ?? []).map(entry =>
    entry.interface === on ? { ...entry, ipaddress: net.node, macaddress: macs[0] as string } : entry
  )
  const text = kernelOptionsOf(target)
  // The last console is that of the messages; without one on the serial port nothing is seen.
  const seen = text.includes('console=ttyS') ? [] : ['console=tty0', 'console=ttyS0']
  return {
    ...rest,
    ...{ interfaces, setupbmc: false, netboot: true, service: false },
    kerneloptions: [node.kerneloptions ?? [], seen].flat().join(' '),
    ...(isTorrent ? { provision_method: 'http' as const } : {}),
    ...(settings.trust === 'none' ? {} : { trust: tpm ? ('report' as const) : ('none' as const) })
  }
}

/** A copy of an object without the passwords in it: those of BMCs and switches. */
function withoutSecrets(type: TypeName, doc: { readonly name: string }): { readonly name: string } {
  const hidden = objectTypes[type].fields.filter(({ secret }) => secret).map(({ name }) => name)
  const entries = Object.entries(doc).filter(([name]) => !hidden.includes(name))
  return Object.fromEntries(entries) as { name: string }
}

/** The sections of the ini that decide what a node gets; all others have their defaults. */
export const sectionsOf = ({ boot, kickstart, node, cluster }: Config) => ({ boot, kickstart, node, cluster })
