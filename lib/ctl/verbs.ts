import { isObject, type JsonObject, type JsonValue, objectsIn, within } from '../base/json.js'
import { commands, type Part } from '../model/bmc-commands.js'
import type { TypeName } from '../model/docs.js'
import { clusterFields } from '../model/settings.js'
import { shippedLayouts } from '../model/shipped-layouts.js'
import { countObjects, objectTypes } from '../model/types.js'
import { isNodeSet } from '../node-set/evaluate.js'
import { fold } from '../node-set/hostlist.js'
import { runBmcAction } from './bmc-action.js'
import { importVerb, makeChange, reader, secretVerbs } from './change.js'
import { consoleVerb } from './console.js'
import { edited } from './edit.js'
import { imageVerbs, removeImage, withUpload } from './images.js'
import { rehearse } from './rehearsal.js'
import { auditLine, bootLines, objectLines, watchNodes } from './render.js'
import { installFields, nodesWith, rescue, willInstall } from './rescue.js'
import { rollout } from './rollout.js'
import { changeOptions, listOptions, pathOf, type Session, type Verb, type Verbs } from './session.js'
import { clean, cleanLines, Failure, namesNone, refused, wrongUsage } from './terminal.js'
import { tokenVerbs } from './tokens.js'
import { trust } from './trust.js'
import { unknownVerbs } from './unknown.js'
import { bodyOf, type Settable } from './values.js'

const manyNodes = 'many nodes are created from a table: svcctl import FILE, see docs/day.md'

/** All verbs in the order of the help. Help, completion and checks use this table. */
export const verbs: Verbs = {
  list: {
    operands: '[SET]',
    alias: 'ls',
    summary: 'a line for each; of nodes those of a set',
    options: listOptions,
    async run(session, type, [set]) {
      if (set !== undefined && type !== 'node') throw wrongUsage(`${type} list takes no name: type show`)
      await session.rendered(`/config/${type}`, { nodes: set })
    }
  },
  show: {
    operands: 'NAME',
    alias: 'get',
    summary: 'all fields of one, and who sets them',
    options: listOptions,
    async run(session, type, [name = '']) {
      if (session.format !== 'text') return session.rendered(pathOf(type, name), {})
      const { fields, sort } = session.options
      const answer = await session.controller.json('GET', pathOf(type, name), { fields, sort })
      const found = Object.values(within(answer, 'config', type)).filter(isObject)
      for (const [i, object] of found.entries()) {
        if (i > 0) await session.lines([''])
        await session.lines(objectLines(objectTypes[type].fields, object, session.paint))
      }
    }
  },
  add: {
    operands: 'NAME [FIELD=VALUE]...',
    alias: 'create',
    summary: 'create one',
    options: [...changeOptions, 'shipped'],
    assigns: true,
    async run(session, type, [name = '', ...words]) {
      if (type === 'node' && isNodeSet(name))
        throw wrongUsage(`add creates one node, ${name} is a node set; ${manyNodes}`)
      const given = await bodyOf(objectTypes[type], words, reader(session))
      const body = session.options.shipped ? { ...shipped(type, name), ...given } : given
      if (!(await missingOf(session, type, name)))
        throw refused(`${objectTypes[type].title} ${name} exists already; type: svcctl ${type} set`)
      await save(session, type, name, body, 'created')
    }
  },
  set: {
    operands: 'NAME FIELD=VALUE...',
    summary: 'change one that exists; of nodes also those of a set',
    options: changeOptions,
    assigns: true,
    async run(session, type, [name = '', ...words]) {
      const body = await bodyOf(objectTypes[type], words, reader(session))
      // A set may be too long for a path, so it is sent in the body.
      if (type === 'node' && isNodeSet(name)) {
        const path = '/config/node/_set'
        const told = await watchNodes(session, type, name, body)
        await makeChange(session, path, { nodes: name, fields: body }, 'nodes updated')
        return session.lines(await told())
      }
      // The controller would create a missing object.
      const missing = await missingOf(session, type, name)
      if (missing) throw refused(`${missing.message}; type: svcctl ${type} add`)
      await save(session, type, name, body, 'updated')
    }
  },
  clone: {
    operands: 'NAME NEW [FIELD=VALUE]...',
    summary: 'copy one under another name',
    options: changeOptions,
    assigns: true,
    async run(session, type, [name = '', copy = '', ...words]) {
      const { newName } = objectTypes[type]
      const body = await bodyOf(objectTypes[type], [`${newName[0]}=${copy}`, ...words], reader(session))
      await makeChange(session, `${pathOf(type, name)}/_clone`, body, `${type} ${name} cloned to ${copy}`)
    }
  },
  renumber: {
    operands: 'NAME PREFIX [FIELD=VALUE]...',
    summary: 'give a network another prefix; all addresses keep their host part',
    options: changeOptions,
    assigns: true,
    onlyTypes: ['network'],
    async run(session, type, [name = '', prefix = '', ...words]) {
      const body = await bodyOf(objectTypes[type], [`network=${prefix}`, ...words], reader(session))
      await makeChange(session, `${pathOf(type, name)}/_renumber`, body, `network ${name} renumbered`)
    }
  },
  rename: {
    operands: 'NAME NEW',
    summary: 'give one another name',
    options: changeOptions,
    async run(session, type, [name = '', now = '']) {
      const body = { [objectTypes[type].newName[0]]: now }
      const missing = await missingOf(session, type, name)
      if (missing) throw missing
      await save(session, type, name, body, `renamed to ${now}`)
    }
  },
  rm: {
    operands: 'NAME',
    alias: 'delete',
    summary:
      'delete one that nothing uses; asks before a set of nodes goes, or the directory of an image with it',
    options: [...changeOptions, 'yes'],
    async run(session, type, [name = '']) {
      const wanted =
        type === 'node' ? await confirmNodes(session, name, 'Delete', 'nothing was deleted') : name
      if (type === 'osimage') return removeImage(session, name)
      const done = `${type} ${wanted} deleted`
      if (type === 'node' && isNodeSet(wanted))
        await makeChange(session, '/config/node/_delete', { nodes: wanted }, done)
      else await makeChange(session, `${pathOf(type, wanted)}/_delete`, undefined, done)
    }
  },
  edit: {
    operands: 'NAME',
    summary: 'change one in $EDITOR; shows what would change, and asks',
    options: [...changeOptions, 'yes'],
    async run(session, type, [name = '']) {
      if (type === 'node' && isNodeSet(name)) throw wrongUsage(`edit takes one node, ${name} is a node set`)
      await edited(session, type, name, body => save(session, type, name, body, 'updated'))
    }
  },
  rminterface: {
    operands: 'NAME INTERFACE',
    summary: 'delete an interface',
    options: changeOptions,
    onlyTypes: ['node', 'group'],
    async run(session, type, [name = '', on = '']) {
      const path = `${pathOf(type, name)}/interfaces/${encodeURIComponent(on)}/_delete`
      await makeChange(session, path, undefined, `interface ${on} of ${type} ${name} deleted`)
    }
  },
  preview: {
    operands: 'NAME boot|install|kickstart|partscript|files',
    summary: 'what a node would get, with its secrets masked',
    options: ['output'],
    onlyTypes: ['node'],
    actions: ['boot', 'install', 'kickstart', 'partscript', 'files'],
    async run(session, type, [name = '', what = '']) {
      const path = `${pathOf(type, name)}/_render/${encodeURIComponent(what)}`
      if (what === 'files') return showFiles(session, name, await session.controller.json('GET', path))
      const text = await (await session.controller.send('GET', path)).text()
      if (session.format !== 'text') return session.json({ [what]: text })
      await session.terminal.out(session.terminal.shows.out ? cleanLines(text) : text)
    }
  },
  grab: transfer('grab', ['node'], 'copy a running node into the directory of an image'),
  push: withUpload(
    transfer(
      'push',
      ['node', 'group'],
      'make running nodes the same as the directory of an image; asks before it is a group'
    )
  ),
  status: ofNodes('[SET]', 'the last state of nodes, and since when', '/monitor/node'),
  inventory: ofNodes('SET', 'what nodes are made of, as they reported it', '/monitor/inventory'),
  odd: ofNodes('SET', 'the nodes whose hardware is not like that of most of their group', '/monitor/odd'),
  why: {
    operands: 'SET',
    summary: 'why a node did not boot, and what to do',
    options: ['output'],
    onlyTypes: ['node'],
    run: (session, _type, [set = '']) =>
      showForEach(session, set, 'why', (node, told) => {
        const text = String(within(told).verdict)
        // Most verdicts begin with the name, which precedes the colon already.
        const short = text.startsWith(`${node} `) ? text.slice(node.length + 1) : text
        return [`${session.paint('bold', clean(node))}: ${clean(short)}`]
      })
  },
  boots: {
    operands: 'SET',
    summary: 'the last boots of a node, step by step',
    options: ['output'],
    onlyTypes: ['node'],
    run: (session, _type, [set = '']) =>
      showForEach(session, set, 'boots', (node, told) => bootLines(node, told, session.paint))
  },
  reinstall: {
    operands: 'SET',
    summary: 'have nodes boot from the network, to be installed again; asks before it is a set',
    options: [...changeOptions, 'yes'],
    onlyTypes: ['node'],
    async run(session, _type, [set = '']) {
      const question = 'Have the next boot write to the disks of'
      // netboot_once keeps them from installing again at each boot.
      const fields = { netboot: true, netboot_once: true }
      const nodes = await confirmNodes(session, set, question, 'nothing was changed')
      await makeChange(session, '/config/node/_set', { nodes, fields }, `${nodes} updated`)
      if (session.format !== 'text') return
      await session.lines([
        session.options.dryrun
          ? 'where a node has a partscript, a disk layout or localinstall, ' +
            'its next boot from the network writes to its disk'
          : clean(`it is installed at its next boot: svcctl node power '${nodes}' boot`)
      ])
    }
  },
  rescue,
  rehearse,
  trust,
  power: bmcVerb('power', 'switch nodes on and off; asks before a set loses its power', {
    off: 'Switch off',
    soft: 'Shut down',
    cycle: 'Switch off and on again',
    reset: 'Reset',
    boot: 'Switch on, or off and on again,'
  }),
  chassis: bmcVerb('chassis', 'the light that tells where a node is, and from where it boots next'),
  sel: bmcVerb('sel', 'the system event log of nodes; asks before it clears those of a set', {
    clear: 'Clear the event logs of'
  }),
  ...imageVerbs,
  ...secretVerbs
}

/** Returns the verbs of a type. */
export const verbsOf = (type: TypeName): Verbs =>
  Object.fromEntries(
    Object.entries(verbs).filter(([, { onlyTypes }]) => !onlyTypes || onlyTypes.includes(type))
  )

/** The verb that lists what the controller tells of nodes at a path. */
function ofNodes(operands: '[SET]' | 'SET', summary: string, path: string): Verb {
  return {
    ...{ operands, summary, options: listOptions, onlyTypes: ['node'] },
    run: (session, _type, [nodes]) => session.rendered(path, { nodes })
  }
}

/** The verb for a copy between a node and the directory of an image. */
function transfer(verb: 'grab' | 'push', only: readonly TypeName[], summary: string): Verb {
  return {
    operands: 'NAME IMAGE',
    ...{ summary, onlyTypes: only, options: [...changeOptions, 'yes'] },
    async run(session, type, [name = '', osimage = '']) {
      const question = `Make the same as OS image ${osimage}, and delete what it does not hold, on`
      const set = `@${name}`
      const agreedTo =
        type === 'group' ? await confirmNodes(session, set, question, 'nothing was pushed') : set
      if (agreedTo !== set && agreedTo !== fold(await session.nodes(set)))
        throw refused(`group ${name} has other nodes than those of the question: nothing was pushed`)
      const done = `${verb} of ${type} ${name}: done`
      await makeChange(session, `${pathOf(type, name)}/_os${verb}`, { osimage }, done)
    }
  }
}

/** The verb for a part of a machine. `asks`: how the question begins before an action on a set. */
function bmcVerb(part: Part, summary: string, asks: Readonly<Record<string, string>> = {}): Verb {
  const actions: readonly string[] = commands[part]
  return {
    operands: `SET ${actions.join('|')}`,
    summary,
    options: [...changeOptions, ...(Object.keys(asks).length > 0 ? (['yes'] as const) : [])],
    onlyTypes: ['node'],
    actions,
    async run(session, _type, [set = '', action = '']) {
      if (session.options.dryrun) return bmcDryRun(session, set, `${part} ${action}`)
      const question = asks[action]
      const wanted =
        question === undefined ? set : await confirmNodes(session, set, question, 'nothing was done')
      await runBmcAction(session, part, wanted, action)
    }
  }
}

const booting = /^power (?:on|boot|cycle|reset)$|^chassis netboot$/

/** Shows which BMCs would be asked, which nodes have none, and whose disks a boot would write to. */
async function bmcDryRun(session: Session, set: string, command: string): Promise<void> {
  const all = await nodesWith(session, set, `BMC.ipaddress,${installFields}`)
  const those = (are: (node: JsonObject) => boolean) => all.filter(are).map(({ name }) => String(name))
  const hasBmc = (node: JsonObject) => node['BMC.ipaddress'] !== null
  const [nodes, without] = [those(hasBmc), those(node => !hasBmc(node))]
  const told = (names: string[]) =>
    `${countObjects('node', names.length)}${names.length > 0 ? `: ${fold(names)}` : ''}`
  const more = without.length > 0 ? `; no address of a BMC, so that it would fail: ${told(without)}` : ''
  const written = booting.test(command)
    ? those(node => hasBmc(node) && node.rescue === null && willInstall(node))
    : []
  const disks = written.length > 0 ? `; a boot from the network writes to the disk of ${told(written)}` : ''
  const message = `dry run, nothing was done: ${command} of ${told(nodes)}${more}${disks}`
  await session.changed({ message, nodes, without }, '')
}

/** Reads the same page of each node of a set, one after the other. */
async function showForEach(
  session: Session,
  set: string,
  key: 'why' | 'boots',
  shown: (node: string, told: JsonValue | undefined) => Iterable<string>
): Promise<void> {
  session.refuseCsv()
  const all: JsonObject = {}
  for (const node of await session.nodes(set)) {
    const page = `/monitor/node/${encodeURIComponent(node)}/_${key}`
    const told = within(await session.controller.json('GET', page), 'monitor', key)[node]
    if (session.format === 'json') all[node] = told ?? null
    else await session.lines(shown(node, told))
  }
  if (session.format === 'json') await session.json({ monitor: { [key]: all } })
}

/** Returns the fields of an object that comes with svcd. Throws Failure 2 if there is none. */
function shipped(type: TypeName, name: string): JsonObject {
  const names = Object.keys(shippedLayouts)
  if (type !== 'disklayout' || !names.includes(name))
    throw wrongUsage(`--shipped makes one of the disk layouts ${names.join(', ')}`)
  return JSON.parse(JSON.stringify(shippedLayouts[name])) as JsonObject
}

/** Returns the refusal if an object does not exist. */
async function missingOf({ controller }: Session, type: TypeName, name: string) {
  // Only the refusal of a node set suggests a missing @.
  const [path, nodes] = type === 'node' ? ['/config/node', name] : [pathOf(type, name)]
  try {
    await controller.json('GET', path, { fields: 'name', nodes })
    return undefined
  } catch (error) {
    if (error instanceof Failure && error.status === 404) return error
    throw error
  }
}

async function save(session: Session, type: TypeName, name: string, body: JsonObject, done: string) {
  const told = await watchNodes(session, type, name, body, done === 'created')
  await makeChange(session, pathOf(type, name), body, `${objectTypes[type].title} ${name} ${done}`)
  await session.lines(await told())
}

/** The settings of the cluster, which are set as the fields of an object. */
export const cluster: Settable = { title: 'cluster', fields: clusterFields, newName: [] }

/** Commands of one word. */
export const plainVerbs: Verbs<''> = {
  import: importVerb,
  nodes: {
    operands: '[SET]',
    summary: 'a short line for each node, or for those of a set',
    options: listOptions,
    run: (session, _type, [nodes]) =>
      session.rendered('/config/node', { nodes, fields: 'name,status,group,osimage,BOOTIF.ipaddress' })
  },
  audit: {
    operands: '[users|machines]',
    summary: 'the last changes, the newest first, of users or by machines; for an admin',
    options: ['output'],
    actions: ['users', 'machines'],
    async run(session, _type, [by]) {
      const monitor = within(await session.controller.json('GET', '/monitor/audit', { by }), 'monitor')
      if (session.format !== 'text') return session.json(monitor)
      await session.lines(objectsIn(monitor.audit).map(auditLine))
    }
  },
  export: {
    operands: 'FORMAT [SET]',
    summary: 'the nodes in the format of another program: ansible, slurm, hosts and more (docs/exports.md)',
    async run({ controller, terminal }, _type, [format = '', nodes]) {
      const answer = await controller.send('GET', `/config/export/${encodeURIComponent(format)}`, { nodes })
      for await (const piece of answer.pieces())
        await terminal.out(terminal.shows.out ? cleanLines(piece) : piece)
    }
  },
  rollout,
  ...Object.fromEntries([['console', consoleVerb]])
}

const clusterVerbs: Verbs<string> = {
  show: {
    operands: '',
    summary: 'the settings of the cluster, its controllers and its variables',
    options: ['output'],
    async run(session) {
      const { format, controller, paint } = session
      session.refuseCsv()
      const answer = await controller.json('GET', '/config/cluster')
      if (format === 'json') return session.json(answer)
      await session.lines(objectLines(clusterFields, within(answer, 'config', 'cluster'), paint))
    }
  },
  set: {
    operands: 'FIELD=VALUE...',
    summary: 'change settings and variables; FIELD= goes back to the ini',
    options: changeOptions,
    assigns: true,
    async run(session, _type, words) {
      const body = await bodyOf(cluster, words, reader(session))
      await makeChange(session, '/config/cluster', body, 'cluster updated')
    }
  },
  rm: {
    operands: 'CONTROLLER',
    summary: 'forget a controller that is gone',
    options: ['output'],
    async run(session, _type, [name = '']) {
      const path = `/config/cluster/${encodeURIComponent(name)}/_delete`
      await makeChange(session, path, undefined, `controller ${name} is forgotten`)
    }
  }
}

/** The verbs behind words that are no type of objects. */
export const wordVerbs = { token: tokenVerbs, cluster: clusterVerbs, unknown: unknownVerbs }

/** Shows the files of a node, failed ones first. Throws Failure 1 if one failed. */
async function showFiles(session: Session, name: string, answer: JsonObject): Promise<void> {
  if (session.format !== 'text') return session.json(answer)
  const { files } = within(answer, 'config', 'node', name)
  const all = objectsIn(files)
  const bad = all.filter(file => file.problem !== undefined)
  for (const { path, owner, group, mode, problem, kind, content, text } of [...new Set([...bad, ...all])]) {
    const head = `${path}  ${owner}:${group}  ${mode}${kind === undefined ? '' : `  ${kind}`}`
    const shown = problem === undefined ? (text ?? content ?? '') : `cannot be rendered: ${problem}`
    const end = shown === '' || String(shown).endsWith('\n') ? '' : '\n'
    await session.terminal.out(`${session.paint('bold', clean(head))}\n${cleanLines(String(shown))}${end}`)
  }
  if (bad.length > 0) throw refused(`${bad.length} of ${all.length} files of node ${name} cannot be rendered`)
}

/**
 * Asks before an irreversible action on a node set (rules 14.5), but not about a plain name; returns the
 * confirmed nodes as a name or set. Throws Failure 1 for an empty set, else as `confirm`.
 */
async function confirmNodes(session: Session, set: string, what: string, nothing: string): Promise<string> {
  const { options } = session
  if (!isNodeSet(set)) return set
  const nodes = await session.nodes(set)
  if (nodes.length === 0) throw namesNone(set)
  if (options.yes || options.dryrun) return set
  // The action gets the confirmed names, since the set may change meanwhile.
  const named = nodes.length === 1 ? (nodes[0] as string) : fold(nodes)
  const many = countObjects('node', nodes.length)
  const why = `there is no terminal to ask on about ${many}, use --yes`
  await session.confirm(`${what} ${many}: ${named}?`, nothing, why)
  return named
}
