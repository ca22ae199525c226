import { isObject } from '../json.js'
import { changed } from './change.js'
import type { Session } from './session.js'
import { change, chosen, pathOf, type Verb } from './verb.js'

const tagPath = (image: string, tag: string) =>
  `${pathOf('osimage', image)}/osimagetag/${encodeURIComponent(tag)}`

/**
 * The answer of a pack has no text: what the image lacks for a boot is seen in its fields. It is packed also where they cannot
 * be asked for any more.
 */
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
const noBoot = ': its nodes cannot boot from the network; install'
const again = ' in it, and pack it again'

/** What is done with the files of an OS image, and with its tags. */
export const imageVerbs: Readonly<Record<string, Verb>> = {
  pack: {
    operands: 'NAME',
    count: [1, 1],
    summary: 'pack the directory of an image for the nodes',
    options: ['output'],
    only: ['osimage'],
    run: (session, type, [name = '']) =>
      changed(session, `${pathOf(type, name)}/_pack`, undefined, () => packed(session, name), 'GET')
  },
  tags: {
    operands: 'NAME',
    count: [1, 1],
    summary: 'the tags of an image, and their files',
    options: chosen,
    only: ['osimage'],
    run: (session, _type, [name = '']) =>
      session.rendered(`/config/osimagetag/${encodeURIComponent(name)}`, {})
  },
  tag: {
    operands: 'NAME TAG',
    count: [2, 2],
    summary: 'give what is packed now a tag, or move the tag to it',
    options: change,
    only: ['osimage'],
    run: (session, type, [name = '', tag = '']) =>
      changed(session, `${pathOf(type, name)}/tag`, { tag }, `OS image ${name} tagged ${tag}`)
  },
  untag: {
    operands: 'NAME TAG',
    count: [2, 2],
    summary: 'delete a tag that nothing uses',
    options: change,
    only: ['osimage'],
    run: (session, _type, [name = '', tag = '']) =>
      changed(session, `${tagPath(name, tag)}/_delete`, undefined, `tag ${tag} of OS image ${name} deleted`)
  }
}
