import { isObject, type JsonObject, within } from '../base/json.js'
import { awaitResult, makeChange } from './change.js'
import { changeOptions, listOptions, pathOf, type Session, type Verb, type Verbs } from './session.js'
import { clean, wrongUsage } from './terminal.js'

/** Returns the message of a pack and warns if the image cannot boot. A failed query is ignored. */
async function packed({ controller }: Session, name: string): Promise<string> {
  const answer = await controller.json('GET', pathOf('osimage', name)).catch(() => ({}))
  const image = within(answer, 'config', 'osimage')[name]
  const done = `OS image ${name} packed`
  if (!isObject(image)) return done
  const { kernelfile, initrdfile } = image
  if (!kernelfile)
    return `${done}; warning: it has no kernel below /boot${noBoot} a kernel (linux-image-amd64)${again}`
  if (!initrdfile) return `${done}; warning: it has no initramfs${noBoot} initramfs-tools${again}`
  return done
}
/** Returns the message of a tag and warns if the image is not packed. A failed query is ignored. */
async function tagged({ controller }: Session, name: string, tag: string): Promise<string> {
  const done = `OS image ${name} tagged ${tag}`
  const path = `/config/osimagetag/${encodeURIComponent(name)}`
  const answer = await controller.json('GET', path).catch(() => ({}))
  const held = within(answer, 'config', 'osimagetag')[tag]
  if (!isObject(held) || held.imagefile) return done
  return (
    `${done}; warning: it is not packed, so the tag holds no image: ` +
    `type svcctl osimage pack ${name}, and tag it again`
  )
}

/** Deletes an image; asks first if a directory would be removed too (rules 14.5). Throws as `confirm`. */
export async function removeImage(session: Session, name: string): Promise<void> {
  const { controller, options } = session
  const path = `${pathOf('osimage', name)}/_delete`
  const done = `osimage ${name} deleted`
  if (options.dryrun) return makeChange(session, path, undefined, done)
  const { directories, controllers } = await controller.json('GET', path, { dryrun: 'yes' })
  const gone = Array.isArray(directories) ? directories.map(String) : []
  const where = Array.isArray(controllers) ? controllers.filter(name => typeof name === 'string') : []
  if (gone.length === 0) return makeChange(session, path, undefined, done)
  // With several controllers, the directory's own controller removes it.
  const about =
    `its directory ${gone.join(', ')}` +
    `${where.length > 0 ? ` on controller ${[...new Set(where)].join(', ')}` : ''}`
  const why = `${about} would be removed, and there is no terminal to ask on; use --yes`
  await session.confirm(`Delete OS image ${name} and ${about}?`, 'nothing was deleted', why)
  await makeChange(session, path, undefined, `${done}; ${about} is removed`)
}

/** Fetches or pushes a container image, and shows what svcd found in it. */
async function fetched(
  session: Session,
  name: string,
  work: '_import' | '_update' | '_push',
  body: JsonObject
): Promise<void> {
  session.refuseCsv()
  const path = `${pathOf('osimage', name)}/${work}`
  const answer = await awaitResult(session, await session.controller.json('POST', path, {}, body))
  const lines = Array.isArray(answer.lines) ? answer.lines.map(String) : []
  const warning = lines.find(line => line.includes(' cannot boot yet: '))
  if (warning !== undefined) session.terminal.err(`warning: ${clean(warning)}\n`)
  session.changed(answer, clean(lines.at(-1) ?? `OS image ${name}: done`))
}

/** Returns the verb that pushes to nodes, which puts the pack of an OS image into a registry too. */
export const withUpload = (push: Verb): Verb => ({
  ...push,
  operands: 'NAME IMAGE|TARGET',
  summary: `${push.summary}; of an image: put its pack into a registry, docker://REGISTRY/NAME:TAG`,
  options: [...(push.options ?? []), 'tag'],
  onlyTypes: [...(push.onlyTypes ?? []), 'osimage'],
  run(session, type, operands) {
    const { dryrun, tag, yes } = session.options
    const [name = '', target = ''] = operands
    if (type !== 'osimage' && tag !== undefined) throw wrongUsage(`${type} push takes no --tag`)
    if (type !== 'osimage') return push.run(session, type, operands)
    if (dryrun || yes) throw wrongUsage(`osimage push takes no --${dryrun ? 'dryrun' : 'yes'}`)
    return fetched(session, name, '_push', { target, ...(tag === undefined ? {} : { tag }) })
  }
})

const noBoot = ': its nodes cannot boot from the network; install'
const again = ' in it, and pack it again'

export const imageVerbs: Verbs = {
  pack: {
    operands: 'NAME',
    summary: 'pack the directory of an image for the nodes',
    options: ['output'],
    onlyTypes: ['osimage'],
    run: (session, type, [name = '']) =>
      makeChange(session, `${pathOf(type, name)}/_pack`, undefined, () => packed(session, name), 'GET')
  },
  import: {
    operands: 'SOURCE NAME',
    summary: 'make an image of a container image: docker://…, oci-archive:PATH, containers-storage:NAME',
    options: ['output'],
    onlyTypes: ['osimage'],
    run: (session, _type, [source = '', name = '']) => fetched(session, name, '_import', { source })
  },
  update: {
    operands: 'NAME [SOURCE]',
    summary: 'fetch the container image of an image anew if it has changed, or another one',
    options: ['output'],
    onlyTypes: ['osimage'],
    run: (session, _type, [name = '', source]) =>
      fetched(session, name, '_update', source === undefined ? {} : { source })
  },
  tags: {
    operands: 'NAME',
    summary: 'the tags of an image, and their files',
    options: listOptions,
    onlyTypes: ['osimage'],
    run: (session, _type, [name = '']) =>
      session.rendered(`/config/osimagetag/${encodeURIComponent(name)}`, {})
  },
  tag: {
    operands: 'NAME TAG',
    summary: 'give what is packed now a tag, or move the tag to it',
    options: changeOptions,
    onlyTypes: ['osimage'],
    run: (session, type, [name = '', tag = '']) =>
      makeChange(session, `${pathOf(type, name)}/tag`, { tag }, () => tagged(session, name, tag))
  },
  untag: {
    operands: 'NAME TAG',
    summary: 'delete a tag that nothing uses',
    options: changeOptions,
    onlyTypes: ['osimage'],
    run(session, _type, [name = '', tag = '']) {
      const path = `${pathOf('osimage', name)}/osimagetag/${encodeURIComponent(tag)}/_delete`
      return makeChange(session, path, undefined, `tag ${tag} of OS image ${name} deleted`)
    }
  }
}
