import { isObject, type JsonObject, within } from '../base/json.js'
import { makeChange } from './change.js'
import { changeOptions, type Session, type Verb } from './session.js'
import { clean, namesNone, refused, wrongUsage } from './terminal.js'

/** Sets or ends a rescue: a single boot from an image in memory (rules 6.15). */
export const rescue: Verb = {
  operands: 'SET',
  summary: 'boot nodes once from an image in memory, their disks untouched; --end: not any more',
  options: [...changeOptions, 'image', 'end'],
  onlyTypes: ['node'],
  async run(session, _type, [set = '']) {
    const { end, image, dryrun } = session.options
    if (end && image !== undefined) throw wrongUsage('--end takes no --image')
    const nodes = await nodesWith(session, set, `osimage,${installFields}`)
    if (nodes.length === 0) throw namesNone(set)
    const images = [...new Set(nodes.map(({ osimage }) => osimage).filter(name => typeof name === 'string'))]
    if (!end && image === undefined && images.length !== 1) {
      const has = images.length === 0 ? 'no OS image' : `the OS images ${images.join(', ')}`
      throw refused(`${set} has ${has}: name one, --image IMAGE`)
    }
    const wanted = end ? null : (image ?? images[0] ?? null)
    const body = { nodes: set, fields: { rescue: wanted } }
    await makeChange(session, '/config/node/_set', body, `${set} updated`)
    if (session.format !== 'text' || dryrun || end) return
    const lines = [
      `at its next boot from the network: svcctl node chassis '${set}' netboot, ` +
        `svcctl node power '${set}' boot`,
      `the way back before that: svcctl node rescue '${set}' --end`
    ]
    if (nodes.some(willInstall))
      lines.push(
        `the boot after that one writes to the disk; if it must not: svcctl node set '${set}' netboot=no`
      )
    await session.lines(lines.map(clean))
  }
}

/** Reads these fields and the names of the nodes of a set. */
export async function nodesWith({ controller }: Session, nodes: string, fields: string) {
  const answer = await controller.json('GET', '/config/node', { nodes, fields: `name,${fields}` })
  return Object.values(within(answer, 'config', 'node')).filter(isObject)
}

/** The fields that `willInstall` reads. */
export const installFields = 'netboot,partscript,disklayout,localinstall,provision_method,rescue'

/** Whether the next boot from the network writes to the disk (after a rescue: the boot after it). */
export const willInstall = (node: JsonObject) =>
  node.netboot === true &&
  (node.localinstall === true ||
    (node.partscript ?? '') !== '' ||
    (node.disklayout ?? '') !== '' ||
    ['kickstart', 'preseed', 'autoinstall'].includes(String(node.provision_method)))
