import { open, rename, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { syncFile } from '../disk/copy.js'
import { syncDirectory } from '../disk/directory.js'
import { theDaemon } from '../model/model.js'
import { isObjectName } from '../model/names.js'
import type { PackDoc } from '../model/types/osimage.js'
import type { View } from '../model/view.js'
import type { ImageContext } from './context.js'
import { newIntentId, type PackIntent, temporary } from './intents.js'
import { hashFile } from './packer/in-worker.js'
import { discard, servedMode } from './publish.js'
import { createTorrent } from './torrent/torrent.js'

/** A pack's name ends in the beginning of its checksum (pack.ts). */
const packName = /^(.+)-([0-9a-f]{12})\.tar(?:\.[a-z0-9]+)?$/

/**
 * Completes, in the background, what packs lack: the checksum of one that another controller made (its files were
 * copied here, and its image imported), and a torrent that announces to the tracker of the ini.
 */
export class Upkeep {
  readonly #stop = new AbortController()
  /** Files that were looked at in vain, as they were then. */
  readonly #foreign = new Map<string, string>()
  readonly #told = new Set<string>()
  #running: Promise<void> | undefined
  #again = false
  #later: NodeJS.Timeout | undefined

  /** `onTorrent`: one was made. `laterMs`: when files that are missing or wrong are looked at again. */
  constructor(
    readonly context: ImageContext,
    readonly onTorrent: () => void,
    readonly laterMs = 60_000
  ) {}

  /** Something changed. Never throws; a second call while it runs makes it look again. */
  run(): Promise<void> {
    this.#again = true
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined
    })
    return this.#running
  }

  async close(): Promise<void> {
    this.#stop.abort()
    clearTimeout(this.#later)
    await this.#running
  }

  async #run(): Promise<void> {
    const { log, model } = this.context
    const { signal } = this.#stop
    while (this.#again && !signal.aborted) {
      this.#again = false
      const { view } = model
      const steps = [
        ...[...unknownPacks(view)].map(name => () => this.#adopt(name)),
        ...[...view.names('pack')].map(name => () => this.#completeTorrent(name))
      ]
      for (const step of steps)
        try {
          if (!signal.aborted) await step()
        } catch (error) {
          const { message } = error as Error
          // It is tried again with each change, and told once.
          if (!signal.aborted && !this.#told.has(message)) log.warn(message)
          this.#told.add(message)
        }
    }
    clearTimeout(this.#later)
    // They may be on their way here.
    if (unknownPacks(model.view).size > 0 && !signal.aborted)
      this.#later = setTimeout(() => void this.run(), this.laterMs).unref()
  }

  /** A file that is named like a pack is one if its checksum says so too; then its nodes can check what they get. */
  async #adopt(name: string): Promise<void> {
    const { model, config, now } = this.context
    const [, osimage = '', begins = ''] = packName.exec(name) ?? []
    const file = join(config.paths.files, name)
    const found = await stat(file).catch(() => undefined)
    const version = `${found?.ino} ${found?.size} ${found?.mtimeMs}`
    if (!found?.isFile() || this.#foreign.get(name) === version) return
    const { sha256, bytes } = await hashFile(file, this.#stop.signal)
    if (!sha256.startsWith(begins)) {
      this.#foreign.set(name, version)
      return
    }
    const stem = `${osimage}-${begins}-`
    await model.change(theDaemon, tx => {
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

  async #completeTorrent(name: string): Promise<void> {
    const { config, intents, files, model } = this.context
    const announce = config.torrent.tracker
    const directory = config.paths.files
    const torrent = join(directory, `${name}.torrent`)
    if (announce === '' || (await readAnnounce(torrent)) === announce) return
    const note: PackIntent = { kind: 'pack', id: newIntentId(), files: [] }
    const output = join(directory, temporary(note.id, 'torrent'))
    const file = join(directory, name)
    await intents.write(note)
    try {
      await createTorrent({ file, name, announce, output, signal: this.#stop.signal })
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

/** Where a torrent announces to; undefined where there is none. Its keys are sorted, so that stands at its beginning. */
async function readAnnounce(torrent: string): Promise<string | undefined> {
  const handle = await open(torrent).catch(() => undefined)
  if (!handle) return undefined
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(4096), 0, 4096, 0)
    const head = buffer.toString('latin1', 0, bytesRead)
    const [begin = '', length] = /^d8:announce(\d+):/.exec(head) ?? []
    return begin === '' ? undefined : head.slice(begin.length, begin.length + Number(length))
  } finally {
    await handle.close()
  }
}

/** Files that are named like packs, and that an image or a tag has, but of which nothing is known. */
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
