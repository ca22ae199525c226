import { groupOf, imageOf, installedFile, settingsOf } from '../model/effective.js'
import type { Model } from '../model/model.js'
import type { Pack } from './boot-steps.js'
import type { Boots, Running } from './boots.js'

type Known = Pick<Model, 'view' | 'cluster'>

/** Returns what a node would install if it were restarted now; undefined without an image or a pack. */
export function packOnRestart(model: Known, name: string): Pack | undefined {
  const { view } = model
  const node = view.get('node', name)
  if (!node) return undefined
  const settings = settingsOf(node, groupOf(view, node), model.cluster)
  const image = imageOf(view, settings)
  const pack = image && installedFile(settings, image)
  if (!image || pack === undefined) return undefined
  const sha256 = view.get('pack', pack)?.sha256 ?? ''
  return { osimage: image.name, osimagetag: settings.osimagetag, pack, sha256 }
}

const unknown = Object.freeze({ _running: null, _stale: null })
const none = { osimage: null, osimagetag: null, pack: null, sha256: null }
/** Answers shown before, with what the node would have got then. */
const lastAnswers = new WeakMap<Running, { readonly would: Pack | undefined; readonly keys: object }>()

/** Returns what a node runs, and would get on a restart; the same object while both are the same. */
export function runningAnswer(model: Known, boots: Pick<Boots, 'running'>, node: string): object {
  const running = boots.running(node)
  if (!running) return unknown
  const would = packOnRestart(model, node)
  const last = lastAnswers.get(running)
  if (last && isEqual(last.would, would)) return last.keys
  const iso = (ms: number) => new Date(ms).toISOString()
  const keys = {
    _running: { ...running, since: iso(running.since), seen: iso(running.seen) },
    _stale: isStale(running, would) ? (would ?? none) : null
  }
  lastAnswers.set(running, { would, keys })
  return keys
}

const isEqual = (a: Pack | undefined, b: Pack | undefined) =>
  a?.pack === b?.pack &&
  a?.sha256 === b?.sha256 &&
  a?.osimage === b?.osimage &&
  a?.osimagetag === b?.osimagetag

/** Compares packs by checksum where both are known, else by file. */
const isSame = (a: Pack, b: Pack) =>
  a.sha256 !== '' && b.sha256 !== '' ? a.sha256 === b.sha256 : a.pack === b.pack

/** Whether a node that runs `running` would get something else on a restart (rules 6.8). False if unknown. */
export function isStale(running: Running | undefined, would: Pack | undefined): running is Running {
  return running !== undefined && (would === undefined || !isSame(running, would))
}

/** Finds the stale nodes, in slices and in no order (rules 6.8). */
export function* findStaleSliced(model: Known, boots: Pick<Boots, 'allRunning'>) {
  const stale: string[] = []
  for (const [node, running] of boots.allRunning()) {
    yield
    if (model.view.get('node', node) && isStale(running, packOnRestart(model, node))) stale.push(node)
  }
  return stale
}

/** Whether a node reported that it runs this pack, and nothing later. */
export function isRun(boots: Pick<Boots, 'allRunning'>, pack: string): boolean {
  for (const [, running] of boots.allRunning()) if (running.pack === pack) return true
  return false
}

/** Counts the nodes that run each pack of an image, its current pack first (rules 6.8). */
export function runningPacks(
  { view }: Pick<Model, 'view'>,
  boots: Pick<Boots, 'allRunning'>,
  osimage: string
): { pack: string; sha256: string; nodes: number; current: boolean }[] {
  const present = view.get('osimage', osimage)?.imagefile
  const found = new Map<string, { pack: string; sha256: string; nodes: number; current: boolean }>()
  const sha256 = (present !== undefined && view.get('pack', present)?.sha256) || ''
  if (present !== undefined) found.set(present, { pack: present, sha256, nodes: 0, current: true })
  for (const [node, { pack, sha256, osimage: name }] of boots.allRunning()) {
    if (!view.get('node', node) || (name !== osimage && pack !== present)) continue
    const counted = found.get(pack) ?? { pack, sha256, nodes: 0, current: false }
    counted.nodes++
    found.set(pack, counted)
  }
  return [...found.values()]
}
