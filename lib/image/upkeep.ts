import { rename, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Background } from '../base/background.js'
import { isFile, syncDirectory, syncFile } from '../disk/file.js'
import { daemonActor } from '../model/model.js'
import { isObjectName } from '../model/names.js'
import type { View } from '../model/stored.js'
import type { PackDoc } from '../model/types/osimage.js'
import type { ImageContext } from './context.js'
import { newIntentId, type PackIntent, temporary } from './intents.js'
import { hashFile } from './packer/in-worker.js'
import { discard, servedMode } from './publish.js'
import { createTorrent, readAnnounce } from './torrent/torrent.js'

/** The name of a pack has a prefix of its checksum (pack.ts). */
const packName = /^(.+)-([0-9a-f]{12})\.tar(?:\.[a-z0-9]+)?$/

/**
 * Repairs packs in the background: adds the record of a pack whose files were copied here and whose image was
 * imported, and a torrent for the tracker of the ini.
 */
export class Upkeep {
  readonly #background: Background
  /** Stamps of files whose checksum does not fit their name. */
  readonly #foreign = new Map<string, string>()
  readonly #told = new Set<string>()

  /**
   * `onTorrent` is called for each new torrent. After `laterMs` missing and wrong files are looked at again.
   */
  constructor(
    readonly context: ImageContext,
    readonly onTorrent: () => void,
    laterMs = 60_000
  ) {
    this.#background = new Background({
      work: signal => this.#complete(signal),
      // The files may be on their way here.
      everyMs: () => (unknownPacks(context.model.view).size > 0 ? laterMs : undefined)
    })
  }

  /** Looks at all packs now. Never throws. */
  run(): Promise<void> {
    return this.#background.run()
  }

  close(): Promise<void> {
    return this.#background.close()
  }

  async #complete(signal: AbortSignal): Promise<void> {
    const { log, model } = this.context
    const { view } = model
    // Only the leader stores records.
    const unknown = model.isReadOnly ? [] : unknownPacks(view)
    const steps = [
      ...[...unknown].map(name => () => this.#adopt(name, signal)),
      ...[...view.names('pack')].map(name => () => this.#completeTorrent(name, signal))
    ]
    for (const step of steps)
      try {
        if (!signal.aborted) await step()
      } catch (error) {
        const { message } = error as Error
        // Each change tries again; the failure is logged once.
        if (!signal.aborted && !this.#told.has(message)) log.warn(message)
        this.#told.add(message)
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
    if (!sha256.startsWith(begins)) {
      this.#foreign.set(name, version)
      return
    }
    const stem = `${osimage}-${begins}-`
    await model.change(daemonActor, tx => {
      if (tx.get('pack', name) || !tx.index.isImageFile('pack', name)) return
      const image = tx.names('osimage').flatMap(one => tx.get('osimage', one) ?? [])
      const { kernelfile = '', initrdfile = '' } = image.find(({ imagefile }) => imagefile === name) ?? {}
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
    const { config, intents, files, model } = this.context
    const announce = config.torrent.tracker
    const directory = config.paths.files
    const torrent = join(directory, `${name}.torrent`)
    if (announce === '' || (await readAnnounce(torrent)) === announce) return
    const note: PackIntent = { kind: 'pack', id: newIntentId(), files: [] }
    const output = join(directory, temporary(note.id, 'torrent'))
    const file = join(directory, name)
    // Another controller has it, and it is fetched.
    if (config.store.medium === 'etcd' && !(await isFile(file))) return
    await intents.write(note)
    try {
      await createTorrent({ file, name, announce, output, signal })
      await syncFile(output, await servedMode(directory))
      await files.run(async () => {
        if (model.view.get('pack', name)) await rename(output, torrent)
        await syncDirectory(directory)
      })
    } finally {
      await discard(this.context, note)
    }
    this.onTorrent()
  }
}

/** Returns files that an image or a tag names, and that are named like packs but have no record. */
function unknownPacks(view: View): Set<string> {
  const found = new Set<string>()
  for (const type of ['osimage', 'osimagetag'] as const)
    for (const name of view.names(type)) {
      const imagefile = view.get(type, name)?.imagefile
      if (imagefile === undefined || view.get('pack', imagefile)) continue
      const [, osimage] = packName.exec(imagefile) ?? []
      if (osimage !== undefined && isObjectName(osimage)) found.add(imagefile)
    }
  return found
}
