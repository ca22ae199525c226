import { changed } from './change.js'
import { change, chosen, pathOf, type Verb } from './verb.js'

const tagPath = (image: string, tag: string) =>
  `${pathOf('osimage', image)}/osimagetag/${encodeURIComponent(tag)}`

/** What is done with the files of an OS image, and with its tags. */
export const imageVerbs: Readonly<Record<string, Verb>> = {
  pack: {
    operands: 'NAME',
    count: [1, 1],
    summary: 'pack the directory of an image for the nodes',
    options: ['output'],
    only: ['osimage'],
    run: (session, type, [name = '']) =>
      changed(session, `${pathOf(type, name)}/_pack`, undefined, `OS image ${name} packed`, 'GET')
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
