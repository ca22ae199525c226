import { didYouMean } from '../base/did-you-mean.js'
import { addTo } from '../base/lists.js'
import { firstOf } from '../base/log.js'
import { type Prefix, parsePrefix } from './address.js'
import type { Docs, TypeName } from './docs.js'
import {
  effectiveGroup,
  effectiveNode,
  groupOf,
  installsPackages,
  type Settings,
  settingsOf
} from './effective.js'
import type { Table } from './field.js'
import { linuxProblemsOf } from './linux-limits.js'
import { machineKeys } from './machine-id.js'
import { rootFormatOf } from './root-format.js'
import { settingFields } from './settings.js'
import { type Change, type ClusterSettings, docsOf, type View } from './stored.js'
import { limitViolations } from './table.js'
import { ekOf } from './trust.js'
import { optionNames } from './types/interface.js'
import { objectTypes, typeNames } from './types.js'

/** Lines of the warnings, and names in one line. */
const mostLines = 50
const mostNames = 5

/** Distributions whose network files are known (docs/interfaces.md), with other names for them. */
const distributions = 'debian ubuntu redhat rhel centos rocky alma fedora opensuse suse sles'.split(' ')
const isDistribution = (name: string) =>
  distributions.includes(name.toLowerCase()) || /^(?:alma\w*|opensuse[\w-]*)$/i.test(name)

const warnedTypes = ['network', 'osimage', 'group', 'node'] as const
type WarnedType = (typeof warnedTypes)[number]

const listOf = (names: readonly string[]) => firstOf(names, mostNames)

/** Yields a sentence for each suspicious value: a name that leads nowhere, an overlapping network. */
function* warningsIn(view: View, type: WarnedType, doc: object, cluster: ClusterSettings): Generator<string> {
  if (type === 'node') yield* nodeWarnings(view, doc as Docs['node'], cluster)
  else if (type === 'group') yield* groupWarnings(doc as Docs['group'], cluster)
  else if (type === 'network') {
    yield* overlaps(view, doc as Docs['network'])
    yield* lostAliases(view, doc as Docs['network'])
  } else {
    const { distribution } = doc as Docs['osimage']
    if (distribution !== undefined && !isDistribution(distribution))
      yield `the distribution ${distribution} is not known${didYouMean(distribution, distributions)}: ` +
        'which network files a node gets is guessed from the programs in the image'
  }
}

/** Yields options that a node silently ignores. */
function* optionWarnings({ interfaces = [] }: Docs['node'] | Docs['group']): Generator<string> {
  for (const { interface: name, options: given = '' } of interfaces) {
    const words = given.split(/\s+/).filter(one => one !== '')
    const isFurther = words.some(one => /^on=./.test(one))
    for (const word of words) {
      const [key = ''] = word.split('=', 1)
      if (isFurther && key !== 'on' && !/^(?:dhcp|defaultroute)=no$/.test(word)) {
        yield `interface ${name}: its option ${JSON.stringify(word)} is not used: ` +
          'beside on= there is no other'
        continue
      }
      const isNowhere = key === 'on' && !interfaces.some(one => one.interface === word.slice(3))
      if (isNowhere && word !== key)
        yield `interface ${name}: its option ${JSON.stringify(word)} ` +
          `names no interface${didYouMean(word.slice(3), interfacesOf({ interfaces } as Docs['group']))}`
      if (optionNames.includes(key) && word !== key) continue
      const what = optionNames.includes(key) ? 'has no value' : `is not known${didYouMean(key, optionNames)}`
      yield `interface ${name}: its option ${JSON.stringify(word)} ${what}`
    }
  }
}

const interfacesOf = ({ interfaces = [] }: Docs['node'] | Docs['group']) =>
  interfaces.map(entry => entry.interface)

const provisionProblem = (wanted: string, has: readonly string[]) =>
  has.length === 0 || has.includes(wanted)
    ? undefined
    : `provision_interface is ${wanted}, which is none of its interfaces: ${listOf(has)}`

const bothSet = ({ disklayout, partscript = '' }: Docs['node'] | Docs['group']) =>
  disklayout === undefined || partscript === ''
    ? []
    : [`it has a partscript and the disk layout ${disklayout}: the partscript is used, take one of them out`]

const unusedLayout = ({ disklayout, provision_method: method }: Settings) =>
  disklayout === null || !installsPackages(method)
    ? []
    : [`it has the disk layout ${disklayout}, which its provision_method ${method} does not use: take it out`]

const streamedTar = (view: View, doc: Docs['node'], cluster: ClusterSettings) => {
  const target = effectiveNode(view, doc, cluster)
  return !target.image || rootFormatOf(view, target) !== 'tar'
    ? []
    : [
        'its provision_method is stream, and its root_format is tar or it has a disk: the image is fetched ' +
          `whole, by ${target.settings.provision_fallback}; set root_format to squashfs or erofs`
      ]
}

function* groupWarnings(doc: Docs['group'], cluster: ClusterSettings): Generator<string> {
  yield* bothSet(doc)
  const { settings } = effectiveGroup(doc, cluster)
  yield* unusedLayout(settings)
  const why = provisionProblem(settings.provision_interface, interfacesOf(doc))
  if (why !== undefined) yield why
  yield* optionWarnings(doc)
}

function* nodeWarnings(view: View, doc: Docs['node'], cluster: ClusterSettings): Generator<string> {
  yield* bothSet(doc)
  yield* linuxProblemsOf(view, doc, cluster)
  const group = groupOf(view, doc)
  const ofGroup = group ? interfacesOf(group) : []
  const settings = settingsOf(doc, group, cluster)
  if ((doc.disklayout ?? doc.provision_method) !== undefined) yield* unusedLayout(settings)
  if (settings.provision_method === 'stream') yield* streamedTar(view, doc, cluster)
  const wanted = settings.provision_interface
  const why = provisionProblem(wanted, interfacesOf(doc))
  // A problem of the whole group is reported once, for the group.
  const isOfGroup = doc.provision_interface === undefined && provisionProblem(wanted, ofGroup) !== undefined
  if (why !== undefined && !isOfGroup) yield why
  // An interface that only the node has is normal; a name close to one of the group is a slip.
  for (const name of interfacesOf(doc)) {
    const meant = ofGroup.includes(name) ? '' : didYouMean(name, ofGroup)
    if (meant !== '') yield `its group ${doc.group} has no interface ${name}${meant}`
  }
  yield* optionWarnings(doc)
  const { fault } = ekOf(doc)
  if (fault !== undefined) yield `${fault}: it enrols no TPM (docs/trust.md)`
  const twins = machineKeys(doc)
    .flatMap(key => view.index.lookup(key))
    .filter(name => name !== doc.name)
  if (twins.length > 0)
    yield `its serial number or UUID is that of node ${listOf([...new Set(twins)].sort())} too`
  const switches = doc.switch === undefined ? [] : view.names('switch')
  if (doc.switch !== undefined && switches.length > 0 && !view.get('switch', doc.switch))
    yield `there is no switch ${doc.switch}, only ${listOf([...switches])}`
}

/** Yields aliases of names that were renamed or deleted. */
function* lostAliases(view: View, { dns_records = [] }: Docs['network']): Generator<string> {
  const devices = (['switch', 'otherdev'] as const).flatMap(type => view.names(type))
  const named = new Set([...dns_records.map(({ host }) => host), ...devices.map(name => name.toLowerCase())])
  for (const { host, alias = '.' } of dns_records)
    if (!/\./.test(alias) && !named.has(alias) && !view.get('node', alias))
      yield `its DNS record ${host} is an alias of ${alias}, and there is no such name`
}

function* overlaps(view: View, { name, network }: Docs['network']): Generator<string> {
  const prefix = parsePrefix(network ?? '')
  if (!prefix) return
  const touch = ({ first, last }: Prefix) => first <= prefix.last && last >= prefix.first
  const others = [...view.index.networks].filter(([other, of]) => other !== name && touch(of))
  if (others.length === 0) return
  const told = others.map(([other]) => `${other} (${view.get('network', other)?.network})`)
  const isEqual = others.some(([, { first, last }]) => first === prefix.first && last === prefix.last)
  const which = isEqual ? 'the network whose name comes first' : 'the longest prefix'
  yield `its ${network} overlaps with ${listOf(told)}: ${which} answers for an address`
}

/** Returns the sentences about one object; none if it does not exist (rules 3.17). */
export function warningsOf(view: View, type: TypeName, name: string, cluster: ClusterSettings): string[] {
  const doc = view.get(type, name)
  const isLoose = (one: TypeName): one is WarnedType => warnedTypes.some(loose => loose === one)
  return doc && isLoose(type) ? [...warningsIn(view, type, doc, cluster)] : []
}

/** Returns the sentences that changes add, one line each. */
export function addedWarnings(
  changes: readonly Change[],
  was: View,
  is: View,
  cluster: ClusterSettings
): string[] {
  const objects = new Map<string, string[]>()
  for (const { type, name } of changes) {
    if (type !== 'node' && type !== 'group') continue
    const had = warningsOf(was, type, name, cluster)
    for (const sentence of warningsOf(is, type, name, cluster))
      if (!had.includes(sentence)) addTo(objects, sentence, `${type} ${name}`)
  }
  return lines(objects)
}

/** Joins the objects of each sentence to one line. */
function lines(objects: ReadonlyMap<string, readonly string[]>): string[] {
  const all = [...objects].map(([sentence, named]) => `${listOf(named)}: ${sentence}`)
  return all.length > mostLines
    ? [...all.slice(0, mostLines), `and ${all.length - mostLines} more such names`]
    : all
}

/** Returns warnings about names that lead nowhere, for `svcd check` (rules 3.17). */
export function nameWarnings(view: View, cluster: ClusterSettings): string[] {
  const objects = new Map<string, string[]>()
  for (const type of warnedTypes)
    for (const doc of docsOf(view, type))
      for (const sentence of warningsIn(view, type, doc, cluster))
        addTo(objects, sentence, `${objectTypes[type].title} ${doc.name}`)
  return lines(objects)
}

/** The fields with limits, by type. */
const limitedFields = new Map<string, Table>(
  typeNames.map(type => [type, objectTypes[type].fields.filter(({ limit }) => limit)])
)

/** Returns the values of an object that may have limits, with their table. */
function limited(type: string, doc: object | undefined): [table: Table, values: object | undefined] {
  if (type !== 'cluster') return [limitedFields.get(type) ?? [], doc]
  const settings = Object.entries((doc as Docs['cluster'] | undefined)?.settings ?? {})
  return [settingFields, Object.fromEntries(settings.map(([name, { value }]) => [name, value]))]
}

/** Returns a sentence per object with a value now beyond a limit (rules 3.11), without values: secrets. */
export function limitWarnings(changes: Iterable<Change>): string[] {
  return [...changes].flatMap(({ type, name, before, after }) => {
    if (!after) return []
    const [table, now = {}] = limited(type, after)
    if (table.length === 0) return []
    const why = [...limitViolations(table, limited(type, before)[1], now)]
    const title = objectTypes[type as TypeName]?.title
    return why.length === 0 ? [] : `${title === undefined ? type : `${title} ${name}`}: ${why.join('; ')}`
  })
}

/** Returns the sentences of `limitWarnings` for all stored objects. */
export function stateWarnings(view: View): string[] {
  const all = ([...typeNames, 'cluster'] as const).flatMap(type =>
    view.names(type).map(name => ({ type, name, before: undefined, after: view.get(type, name) }))
  )
  return limitWarnings(all)
}
