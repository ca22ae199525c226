import { readdir, rename, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Background, Grace } from '../base/background.js'
import { hasFile, isFile, syncDirectory, syncFile } from '../disk/file.js'
import { hashFile } from '../helper/packer/in-worker.js'
import { daemonActor } from '../model/model.js'
import { isObjectName } from '../model/names.js'
import { docsOf, type View } from '../model/stored.js'
import { type PackDoc, packFilePrefix, previousPack } from '../model/types/osimage.js'
import type { NodeStatus, Report } from '../monitor/node-status.js'
import type { ImageContext } from './context.js'
import { fileHolders } from './copies/named.js'
import type { Manifest } from './manifest.js'
import { packNote, temporary } from './notes.js'
import { discard, isServed, packedFilesOf, packOf, servedMode } from './publish.js'
import { createTorrent, readAnnounce } from './torrent/torrent.js'

interface PackReconcilerOptions {
  readonly installing: Pick<Installing, 'packs'>
  /** Whether a running node may stream its root from a pack. */
  readonly mayBeStreamed?: ((pack: string) => boolean) | undefined
  /** Called with the torrents in force, names in the files directory, when they may have changed. */
  readonly torrents: (names: readonly string[]) => void
  /** After so long missing and wrong files are looked at again; default: 1 min. */
  readonly laterMs?: number
}

/** Changes are gathered for so long. */
const SOON_MS = 50
/** The longest pause between two looks, and that among several controllers. */
const LONGEST_MS = { alone: 3_600_000, shared: 60_000 }
/** The name of a pack has a prefix of its checksum (pack.ts). */
const packName = /^(.+)-([0-9a-f]{12})\.tar(?:\.[a-z0-9]+)?$/

/**
 * Makes the files directory what the objects say: removes packs of svcd's after `[image] grace` without a use
 * (rules 9.6), among several controllers also unreferenced files (rules 11.19), and adds the records of packs
 * that were copied here, and torrents.
 */
export class PackReconciler {
  readonly #background: Background
  /** Not awaited by removals, as it hashes large files. */
  readonly #completing: Background
  /** Packs that nothing uses. The time counts from the daemon's start at the earliest. */
  readonly #unused: Grace
  readonly #unreferenced: Grace
  /** Stamps of files whose checksum does not fit their name. */
  readonly #foreign = new Map<string, string>()
  readonly #logged = new Set<string>()

  constructor(
    private readonly context: ImageContext,
    private readonly o: PackReconcilerOptions
  ) {
    const { config, log, manifest, model, ticks } = context
    this.#unused = new Grace(config.image.grace, ticks)
    this.#unreferenced = new Grace(config.image.grace, ticks)
    this.#background = new Background({
      work: async signal => {
        this.#reportTorrents()
        void this.#completing.run()
        // A file that cannot be removed does not keep the packs.
        const failure = manifest && (await this.#removeUnreferenced(manifest).catch((error: Error) => error))
        await this.#removeUnused(signal)
        if (failure) throw failure
      },
      everyMs: () => this.#pauseMs(),
      onFailure: reason => log.error(`old packs could not be removed: ${reason}`)
    })
    const { laterMs = 60_000 } = o
    this.#completing = new Background({
      work: signal => this.#complete(signal),
      // The files may be on their way here.
      everyMs: () => (unknownPacks(model.view).size > 0 ? laterMs : undefined)
    })
  }

  /** Looks at every pack soon. */
  soon(): void {
    this.#background.wake(SOON_MS)
  }

  /** Looks at every pack now. Never throws. */
  async run(): Promise<void> {
    await this.#background.run().catch(() => {})
    await this.#completing.run()
  }

  async close(): Promise<void> {
    await this.#background.close()
    await this.#completing.close()
  }

  /** Reports the torrents of all packs, also of unused ones: nodes may be half way through. */
  #reportTorrents(): void {
    const { model, config } = this.context
    const packs = config.torrent.tracker === '' ? [] : docsOf(model.view, 'pack')
    const names = packs.flatMap(packedFilesOf).map(name => `${name}.torrent`)
    this.o.torrents(names.filter(name => hasFile(join(config.paths.files, name))))
  }

  async #removeUnused(signal: AbortSignal): Promise<void> {
    const { config, ownsObjects, model } = this.context
    const { view } = model
    const candidates = ownsObjects()
      ? docsOf(view, 'pack').filter(({ name }) => !this.#isUsed(view, name))
      : []
    const all = candidates.length === 0 ? [] : await readdir(config.paths.files)
    const unused = new Map<string, string[]>()
    for (const pack of candidates) {
      const files = filesOfPack(pack, all)
      // An image or a tag may name only a kernel of it.
      if (!files.some(file => view.index.isFileReferenced('boot', file))) unused.set(pack.name, files)
    }
    for (const name of this.#unused.over(unused.keys()))
      if (!signal.aborted && !(await this.#isNeeded(name, signal)))
        await this.#remove(name, unused.get(name) ?? [])
  }

  #isUsed({ index }: View, name: string): boolean {
    const { coming } = this.context
    return (
      index.isFileReferenced('pack', name) ||
      coming.has(name) ||
      this.o.installing.packs().has(name) ||
      this.o.mayBeStreamed?.(name) === true
    )
  }

  /** Whether it is the pack before the present one, and another controller still lacks the present one. */
  async #isNeeded(name: string, signal: AbortSignal): Promise<boolean> {
    const { model, controllers } = this.context
    const { view } = model
    const { imagefile = '' } = view.get('osimage', view.get('pack', name)?.osimage ?? '') ?? {}
    const present = view.get('pack', imagefile)
    if (!controllers || !present || previousPack(view, present)?.name !== name) return false
    return (await controllers.having(present, signal)).length < controllers.others().length
  }

  /** Removes the pack first, then its files, as a file must not be served any more. */
  async #remove(name: string, files: readonly string[]): Promise<void> {
    const { model, notes, log } = this.context
    // The note comes first: without the pack, only the note names the files.
    const note = packNote(files)
    await notes.write(note)
    let gone = false
    try {
      gone = await model.change(daemonActor, tx => {
        if (!tx.get('pack', name) || this.#isUsed(tx, name)) return false
        if (files.some(file => tx.index.isFileReferenced('boot', file))) return false
        tx.remove('pack', name)
        return true
      })
    } finally {
      if (!gone) await notes.drop(note)
    }
    if (!gone) return
    log.info(`pack ${name} is not used any more: ${files.join(', ') || 'no file'} removed`)
    await discard(this.context, note)
  }

  /** Removes files of svcd once no object has named them for the grace. */
  async #removeUnreferenced(manifest: Manifest): Promise<void> {
    const { model, config, log, files } = this.context
    const directory = config.paths.files
    await files.run(async () => {
      const { view } = model
      const packs = docsOf(view, 'pack')
      const all = await readdir(directory)
      const ofPacks = new Set(packs.flatMap(pack => filesOfPack(pack, all)))
      // Packs made here are svcd's too: a leader elsewhere removes the record of a pack, and not these files.
      await manifest.find(ofPacks, new Map(packs.flatMap(sizesOf)))
      const isNeeded = (name: string) =>
        ofPacks.has(name) || isServed(view.index, name) || manifest.isKept(name)
      const due = this.#unreferenced.over(manifest.names.filter(name => !isNeeded(name)))
      if (due.length === 0) return
      const removed = await manifest.remove(due)
      await syncDirectory(directory)
      if (removed.length > 0) log.info(`no OS image uses them any more: ${removed.join(', ')} removed`)
    })
  }

  /** Returns the milliseconds until the next file is due; a failed removal is tried again after an hour. */
  #pauseMs(): number {
    const longestMs = this.context.manifest ? LONGEST_MS.shared : LONGEST_MS.alone
    const due = [...this.#unused.dueMs, ...this.#unreferenced.dueMs].filter(ms => ms > 0)
    return Math.min(...due, longestMs)
  }

  /** Adds missing records and torrents. */
  async #complete(signal: AbortSignal): Promise<void> {
    const { ownsObjects, log, model } = this.context
    const { view } = model
    // Only the leader stores records.
    const unknown = ownsObjects() ? unknownPacks(view) : []
    const steps = [
      ...[...unknown].map(name => () => this.#adopt(name, signal)),
      ...docsOf(view, 'pack')
        .flatMap(packedFilesOf)
        .map(name => () => this.#completeTorrent(name, signal))
    ]
    for (const step of steps)
      try {
        if (!signal.aborted) await step()
      } catch (error) {
        const { message } = error as Error
        // Each change tries again; the failure is logged once.
        if (!signal.aborted && !this.#logged.has(message)) log.warn(message)
        this.#logged.add(message)
      }
  }

  /** Records a file that is named like a pack, if its checksum fits, so that nodes can check it. */
  async #adopt(name: string, signal: AbortSignal): Promise<void> {
    const { model, config, now } = this.context
    const [, osimage = '', begins = ''] = packName.exec(name) ?? []
    const file = join(config.paths.files, name)
    const found = await stat(file).catch(() => undefined)
    const version = `${found?.ino} ${found?.size} ${found?.mtimeMs}`
    if (!found?.isFile() || this.#foreign.get(name) === version) return
    const { sha256, bytes } = await hashFile(file, signal)
    if (!sha256.startsWith(begins)) return void this.#foreign.set(name, version)
    const stem = `${osimage}-${begins}-`
    await model.change(daemonActor, tx => {
      if (tx.get('pack', name) || !tx.index.isImageFile('pack', name)) return
      const image = docsOf(tx, 'osimage').find(({ imagefile }) => imagefile === name)
      const { kernelfile = '', initrdfile = '' } = image ?? {}
      const doc: PackDoc = {
        ...{ name, osimage, sha256, bytes, time: now() },
        packer: 'system',
        ...(kernelfile.startsWith(stem) ? { kernelfile, kernel: kernelfile.slice(stem.length) } : {}),
        ...(initrdfile.startsWith(stem) ? { initrdfile, initrd: initrdfile.slice(stem.length) } : {})
      }
      tx.put('pack', name, doc)
    })
  }

  async #completeTorrent(name: string, signal: AbortSignal): Promise<void> {
    const { config, notes, files, model } = this.context
    const announce = config.torrent.tracker
    const directory = config.paths.files
    const torrent = join(directory, `${name}.torrent`)
    if (announce === '' || (await readAnnounce(torrent)) === announce) return
    const file = join(directory, name)
    // Another controller has it, and it is fetched.
    if (config.store.medium === 'etcd' && !(await isFile(file))) return
    const note = packNote()
    const output = join(directory, temporary(note.id, 'torrent'))
    await notes.write(note)
    try {
      await createTorrent({ file, name, announce, output, signal })
      await syncFile(output, await servedMode(directory))
      await files.run(async () => {
        if (model.view.index.isImageFile('pack', name)) await rename(output, torrent)
        await syncDirectory(directory)
      })
    } finally {
      await discard(this.context, note)
    }
    this.#reportTorrents()
  }
}

const sizesOf = ({ name, bytes, roots = [] }: PackDoc): [string, number][] => [
  [name, bytes],
  ...roots.map(({ file, bytes }): [string, number] => [file, bytes])
]

/** Returns the files of a pack among all. */
const filesOfPack = (pack: PackDoc, all: readonly string[]): string[] =>
  all.filter(file => packOf(file) === pack.name || file.startsWith(packFilePrefix(pack)))

/** Returns files that an image or a tag names, and that are named like packs but have no record. */
function unknownPacks(view: View): Set<string> {
  const found = new Set<string>()
  for (const { files } of fileHolders(view)) {
    const { imagefile = '' } = files
    const [, osimage = ''] = packName.exec(imagefile) ?? []
    if (isObjectName(osimage) && !view.get('pack', imagefile)) found.add(imagefile)
  }
  return found
}

interface Begun {
  readonly imagefile: string
  /** End of the node's token. */
  readonly until: number
  /** The node's last report when it got the script. */
  readonly before: Report | undefined
}

/**
 * Packs that nodes are installing. A node needs the pack of its install script or kickstart until it reports
 * the end or a failure, and no longer than its token is valid. Lost at a restart.
 */
export class Installing {
  readonly #begun = new Map<string, Begun>()

  /** `ticks`: milliseconds that only grow, because the clock may be set while a node installs. */
  constructor(
    readonly status: Pick<NodeStatus, 'history'>,
    readonly longestMs: number,
    readonly ticks: () => number
  ) {}

  /** A node was given a script that names this pack. */
  began(node: string, imagefile: string): void {
    this.#begun.delete(node)
    const before = this.#last(node)
    if (imagefile !== '') this.#begun.set(node, { imagefile, until: this.ticks() + this.longestMs, before })
  }

  /** Whether a node was given a script that names this pack. */
  isGiven(node: string, imagefile: string): boolean {
    return this.#begun.get(node)?.imagefile === imagefile
  }

  packs(): Set<string> {
    const found = new Set<string>()
    for (const [node, begun] of this.#begun)
      if (this.#isOver(node, begun)) this.#begun.delete(node)
      else found.add(begun.imagefile)
    return found
  }

  #isOver(node: string, { until, before }: Begun): boolean {
    if (until <= this.ticks()) return true
    const last = this.#last(node)
    if (!last || last === before) return false
    return !last.state.startsWith('installer.') || /^installer\.(completed|failed)\b/.test(last.state)
  }

  #last(node: string): Report | undefined {
    return this.status.history(node).at(-1)
  }
}
