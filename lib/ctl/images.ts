import { isObject, type JsonObject } from '../base/json.js'
import { awaitResult, makeChange } from './change.js'
import { changeOptions, listOptions, pathOf, type Session, type Verb } from './session.js'
import { clean, refused, wrongUsage } from './terminal.js'

const tagPath = (image: string, tag: string) =>
  `${pathOf('osimage', image)}/osimagetag/${encodeURIComponent(tag)}`

/** Returns the message of a pack and warns if the image cannot boot. A failed query is ignored. */
async function packed({ controller }: Session, name: string): Promise<string> {
  const { config } = await controller.json('GET', pathOf('osimage', name), {}).catch(() => ({ config: {} }))
  const { osimage } = isObject(config) ? config : {}
  const image = isObject(osimage) ? osimage[name] : undefined
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
  const { config } = await controller.json('GET', path, {}).catch(() => ({ config: {} }))
  const { osimagetag } = isObject(config) ? config : {}
  const held = isObject(osimagetag) ? osimagetag[tag] : undefined
  if (!isObject(held) || held.imagefile) return done
  return (
    `${done}; warning: it is not packed, so the tag holds no image: ` +
    `type svcctl osimage pack ${name}, and tag it again`
  )
}

/**
 * Deletes an image. Without `--yes` it asks first if a directory would be removed too (rules 14.5).
 * @throws Failure 1 if the answer is no, 2 if there is no terminal to ask on
 */
export async function removeImage(session: Session, name: string): Promise<void> {
  const { terminal, controller, options } = session
  const path = `${pathOf('osimage', name)}/_delete`
  const done = `osimage ${name} deleted`
  if (options.dryrun) return makeChange(session, path, undefined, done)
  const { directories, controllers } = await controller.json('GET', path, { dryrun: 'yes' })
  const gone = Array.isArray(directories) ? directories.map(String) : []
  const where = Array.isArray(controllers) ? controllers.filter(name => typeof name === 'string') : []
  if (gone.length === 0) return makeChange(session, path, undefined, done)
  const nothing = 'nothing was deleted'
  // With several controllers, the directory's own controller removes it.
  const about =
    `its directory ${gone.join(', ')}` +
    `${where.length > 0 ? ` on controller ${[...new Set(where)].join(', ')}` : ''}`
  if (!options.yes) {
    if (!terminal.shows.in)
      throw wrongUsage(`${nothing}: ${about} would be removed, and there is no terminal to ask on; use --yes`)
    if (!(await terminal.confirmed(clean(`Delete OS image ${name} and ${about}? [y/N] `))))
      throw refused(nothing)
  }
  await makeChange(session, path, undefined, `${done}; ${about} is removed`)
}

/** Fetches or pushes a container image, and shows what svcd found in it. */
async function fetched(
  session: Session,
  name: string,
  work: '_import' | '_update' | '_push',
  body: JsonObject
): Promise<void> {
  const { controller, format } = session
  if (format === 'csv') throw wrongUsage('there is no CSV of this: -o takes text or json')
  const answer = await awaitResult(
    session,
    await controller.json('POST', `${pathOf('osimage', name)}/${work}`, {}, body)
  )
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

export const imageVerbs: Readonly<Record<string, Verb>> = {
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
    run: (session, _type, [name = '', tag = '']) =>
      makeChange(
        session,
        `${tagPath(name, tag)}/_delete`,
        undefined,
        `tag ${tag} of OS image ${name} deleted`
      )
  }
}
