import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { inParallel, Mutex } from '../base/concurrency.js'
import { notFound, unavailable } from '../base/errors.js'
import type { Config } from '../config/types.js'
import { exists } from '../disk/file.js'
import { checkPrograms, checkReachable } from '../helper/transfer/reach.js'
import type { Remote } from '../helper/transfer/remote.js'
import type { JobContext, Jobs, SubmittedJob } from '../jobs/jobs.js'
import { type Actor, daemonActor } from '../model/model.js'
import type { ObjectPatch } from '../model/object-type.js'
import type { Change } from '../model/stored.js'
import { imageDirectoryOf, type OsimageDoc } from '../model/types/osimage.js'
import type { NodeStatus } from '../monitor/node-status.js'
import { checkKernelRequest } from './boot-files.js'
import { checkClone, cloneImage } from './clone.js'
import type { ImageContext } from './context.js'
import { reachWarning } from './findings.js'
import { type KernelRequest, newKernelRequest } from './kernel.js'
import { Manifest } from './manifest.js'
import { checkImport, checkUpdate, fetchImage, removeUnusedLayers } from './oci/import.js'
import { checkPush, pushPack } from './oci/push.js'
import { packImage } from './pack.js'
import { Installing, PackReconciler } from './pack-reconciler.js'
import { checkFields, type Destination, grabImage, placeOf, pushImage, treeToPush } from './transfers.js'
import { recover } from './tree-changes.js'
import { TreeReconciler } from './tree-reconciler.js'
import { checkHere, here, isMovedHere, isOfAnother, keepTree, treeOf } from './trees.js'

interface ImagesOptions
  extends Pick<ImageContext, 'model' | 'log' | 'now' | 'ticks' | 'work' | 'notes' | 'controllers'> {
  readonly config: Pick<Config, 'image' | 'paths' | 'ssh' | 'store' | 'torrent' | 'auth'>
  readonly jobs: Jobs
  readonly status: NodeStatus
  readonly remote: Remote
  /** Called with the torrents in force, names in the files directory, when they may have changed. */
  readonly torrents: (names: readonly string[]) => void
  /** As in PackReconcilerOptions. */
  readonly mayBeStreamed?: (pack: string) => boolean
}

/** A change may delete all nodes. */
const FORGOTTEN_AT_ONCE = 2

type To = { readonly node: string } | { readonly group: string }

/** A grab or a push that cannot start is 404. */
const asNotFound = ({ message }: Error) => {
  throw notFound(message)
}

/** Returns an image without its source if its directory is another one since. */
function withoutSource(directory: string, before: OsimageDoc, now: OsimageDoc): OsimageDoc {
  if (!now.source || imageDirectoryOf(directory, now) === imageDirectoryOf(directory, before)) return now
  const { source: _, ...rest } = now
  return rest
}

/** The work on OS images. Each is a job, and an image has one at a time (rules 2.8, 3.12). */
export class Images {
  readonly installing: Installing
  readonly packs: PackReconciler
  readonly trees: TreeReconciler
  /** Resolves when the leftovers of an earlier daemon are gone. */
  recovered = Promise.resolve()
  #key: Promise<void> = Promise.resolve()

  private constructor(
    private readonly o: ImagesOptions,
    readonly context: ImageContext
  ) {
    const { config, mayBeStreamed, jobs, status, ticks, torrents } = o
    this.installing = new Installing(status, config.auth.node_token_lifetime, ticks)
    this.packs = new PackReconciler(context, { installing: this.installing, mayBeStreamed, torrents })
    this.trees = new TreeReconciler(context, jobs)
  }

  /** Makes the directory of images, and repairs what an interrupted daemon left, partly in the background. */
  static async open(options: ImagesOptions): Promise<Images> {
    const { config, controllers, model, log, notes, now, remote, ticks, work } = options
    const { directory } = config.image
    await mkdir(directory, { recursive: true }).catch(error =>
      log.warn(`[image] directory ${directory} cannot be made: ${error.message}`)
    )
    const reach = reachWarning(directory)
    if (reach !== undefined) log.warn(reach)
    const { files, state } = config.paths
    const damaged = (message: string) => log.warn(message)
    const list = { file: join(state, 'copies.json'), directory: files, ticks, damaged }
    const images = new Images(options, {
      ...{ config, controllers, model, work, log, notes, now, ticks },
      ownsObjects: () => !model.isReadOnly,
      manifest: controllers && (await Manifest.open(list)),
      files: new Mutex(),
      coming: new Set()
    })
    images.#key = remote.prepare().catch(error => log.warn(`no grab and no push can start: ${error.message}`))
    const later = await recover(images.context)
    await images.trees.removeAbandoned(daemonActor)
    images.recovered = later()
    images.look()
    return images
  }

  /** Follows committed changes. Forgets the host key of a node that was renamed or deleted. */
  follow(changes: readonly Change[]): void {
    if (changes.some(({ type }) => ['osimage', 'osimagetag', 'pack'].includes(type))) this.look()
    else if (changes.some(({ type }) => type === 'tree') && this.context.notes.undecided.size > 0)
      this.trees.soon()
    if (changes.some(({ type, after }) => type === 'osimage' && !after))
      void removeUnusedLayers(this.context).catch(({ message }) =>
        this.o.log.warn(`the layers of a deleted OS image stay until the next import: ${message}`)
      )
    const gone = changes.filter(({ type, after }) => type === 'revoked' && after)
    void inParallel(gone, FORGOTTEN_AT_ONCE, ({ name }) => this.o.remote.forget(name).catch(() => {}))
  }

  /** Looks soon at changed images, tags and packs. */
  look(): void {
    this.packs.soon()
    this.trees.soon()
  }

  /** This controller became the leader: failed work is tried again at once. */
  becameLeader(): void {
    this.trees.becameLeader()
    this.look()
  }

  async close(): Promise<void> {
    await Promise.all([this.trees.close(), this.packs.close(), this.#key])
  }

  /** Creates, changes or renames an image (rules 3.2, 9.1). Throws 400 for the directory of another image. */
  async save(name: string, given: ObjectPatch, actor: Actor): Promise<{ created: boolean }> {
    const directory = this.#directory
    const to = given.newName || name
    const before = this.o.model.view.get('osimage', name)
    const { controllers } = this.context
    const stands = to !== name && (isOfAnother(controllers, before) || (await exists(join(directory, name))))
    const isMoved = before !== undefined && (await isMovedHere(this.context, before, given))
    let from: string | undefined
    const saved = await this.o.model.save('osimage', name, given, actor, tx => {
      if (to !== name) keepTree(tx, directory, name, to, stands)
      const found = tx.get('osimage', to)
      const now = before && found && withoutSource(directory, before, found)
      if (now && now !== found) tx.put('osimage', to, now)
      if (!before || !now || now.controller === undefined || to !== name) return
      if (imageDirectoryOf(directory, now) !== imageDirectoryOf(directory, before)) {
        // It is not known which controller has the new directory.
        const { controller: _, ...rest } = now
        tx.put('osimage', to, rest)
      } else if (isMoved && now.controller === before.controller) {
        from = now.controller
        tx.put('osimage', to, { ...now, ...here(this.context) })
      }
    })
    if (from !== undefined)
      this.o.log.info(
        `OS image ${name}: its directory is the one of controller ${controllers?.own} from now on, and ` +
          `not that of controller ${from}`
      )
    return saved
  }

  /** Packs an image. Throws 404, or 503 where it has no directory that may be packed. */
  async pack(name: string, actor: Actor): Promise<SubmittedJob> {
    return this.#packing('pack', this.#image(name), {}, actor)
  }

  /** Gives an image another kernel and packs it. Throws 400 for a file that the image does not have. */
  async kernel(name: string, wish: KernelRequest, actor: Actor): Promise<SubmittedJob> {
    const image = this.#image(name)
    return this.#packing('kernel', image, newKernelRequest(image, wish), actor)
  }

  async #packing(kind: string, image: OsimageDoc, wish: KernelRequest, actor: Actor): Promise<SubmittedJob> {
    const { name } = image
    await checkHere(this.context, image)
    await checkKernelRequest(await treeOf(this.context, image), name, wish)
    return this.#submit(kind, image, actor, [], job => packImage(this.context, name, wish, actor, job))
  }

  /** Makes a new image of a container image. Throws 400 as `checkImport`. */
  async import(name: string, source: string, actor: Actor): Promise<SubmittedJob> {
    const wanted = await checkImport(this.context, name, source)
    return this.#submit('import', { name }, actor, [], job => fetchImage(this.context, wanted, actor, job))
  }

  /** Fetches the container image of an image anew if it has changed. Throws 404 and 400 as `checkUpdate`. */
  async update(name: string, source: string | null, actor: Actor): Promise<SubmittedJob> {
    const image = this.#image(name)
    const wanted = checkUpdate(image, source)
    await checkHere(this.context, image)
    await placeOf(this.#directory, image)
    return this.#submit('update', image, actor, [], job => fetchImage(this.context, wanted, actor, job))
  }

  /** Puts the pack of an image, or of one of its tags, into a registry. Throws 404 and 400 as `checkPush`. */
  async upload(name: string, target: string, tag: string | null, actor: Actor): Promise<SubmittedJob> {
    const { image } = await checkPush(this.context, name, target, tag)
    return this.#submit('upload', image, actor, [], async job =>
      pushPack(this.context, await checkPush(this.context, name, target, tag), job)
    )
  }

  /** Copies an image with its directory. Throws 404 and 400 as `checkClone`. */
  async clone(name: string, given: ObjectPatch, actor: Actor): Promise<SubmittedJob> {
    await checkHere(this.context, this.#image(name))
    const image = await checkClone(this.context, name, given)
    const place = join(this.#directory, given.newName as string)
    const lanes = [`osimage ${given.newName}`, await this.trees.laneOf(place)]
    return this.#submit('clone', image, actor, lanes, job =>
      cloneImage(this.context, name, given, actor, job)
    )
  }

  /** Deletes an image that nobody uses, with its tags; files go in the background (rules 3.12). */
  async remove(name: string, actor: Actor): Promise<void> {
    await this.o.model.remove('osimage', name, actor)
    await this.trees.removeAbandoned(actor)
  }

  /** Makes a node's file systems the tree of an image. Throws 404 with the reason when it cannot start. */
  async grab(node: string, osimage: string, dryrun: boolean, actor: Actor, signal: AbortSignal) {
    const address = this.#addressOf(node)
    const image = this.#image(osimage)
    checkFields(image)
    await this.#mustBeHere(image)
    await placeOf(this.#directory, image)
    await this.#canReach(node, address, signal)
    const from = { node, address: address as string }
    return this.#submit('grab', image, actor, [`node ${node}`], job =>
      grabImage(this.context, from, osimage, dryrun, actor, job)
    )
  }

  /** Makes nodes like an image. Throws 404 with the reason when it cannot start. */
  async push(whom: To, osimage: string, dryrun: boolean, actor: Actor, signal: AbortSignal) {
    this.#destinations(whom)
    const image = this.#image(osimage)
    await this.#mustBeHere(image)
    await this.#checkPush(image, whom, signal)
    const to = this.#destinations(whom)
    // Work on a node never overlaps.
    const lanes = to.map(({ node }) => `node ${node}`)
    return this.#submit('push', image, actor, lanes, job => pushImage(this.context, to, osimage, dryrun, job))
  }

  /** Returns the nodes that a push goes to. Throws 404 for a missing node or group. */
  #destinations(whom: To): Destination[] {
    if ('node' in whom) return [{ node: whom.node, address: this.#addressOf(whom.node) }]
    this.o.model.get('group', whom.group)
    const names = this.o.model.view.index.members(whom.group)?.all.values ?? []
    return [...names].map(node => ({ node, address: this.#addressOf(node) }))
  }

  /** Throws 404 with the reason for a push that cannot start here. */
  async #checkPush(image: OsimageDoc, whom: To, signal: AbortSignal): Promise<void> {
    await treeToPush(this.context, image)
    const to = this.#destinations(whom)
    if ('node' in whom) return this.#canReach(whom.node, to[0]?.address, signal)
    const { group } = whom
    if (to.length === 0) throw notFound(`group ${group} has no nodes`)
    await checkPrograms().catch(asNotFound)
    if (to.every(({ address }) => address === undefined))
      throw notFound(`group ${group}: none of its nodes has an address to be reached at`)
  }

  async #submit(
    kind: string,
    image: OsimageDoc,
    actor: Actor,
    lanes: readonly string[],
    run: (job: JobContext) => Promise<void>
  ): Promise<SubmittedJob> {
    const { name } = image
    // An import makes its image.
    const isStored = this.o.model.view.get('osimage', name) !== undefined
    const meant = (image: OsimageDoc) => imageDirectoryOf(this.#directory, image)
    // Two images may have one directory.
    const tree = await this.trees.laneOf(meant(image))
    const own = [`osimage ${name}`, tree]
    return this.o.jobs.submit({
      kind,
      object: `OS image ${name}`,
      by: actor.who,
      lanes: [...own, ...lanes],
      run: async job => {
        // The lanes are those of the directory that the image had when the request came.
        const now = isStored ? this.#image(name) : image
        const why = `OS image ${name}: field "path" was changed while the request waited`
        if (meant(now) !== meant(image) || (await this.trees.laneOf(meant(now))) !== tree)
          throw unavailable(why, 'image-changed')
        return this.trees.locked([...own, ...lanes], job.signal, () => run(job))
      }
    })
  }

  /** Throws 404 for a directory on another controller: a grab or a push cannot start. */
  async #mustBeHere(image: OsimageDoc): Promise<void> {
    await checkHere(this.context, image).catch(({ message }) => {
      throw notFound(message, 'image-not-ready')
    })
  }

  /** Follows a node's report. A node that was installed again has a new host key. Never throws. */
  async reported(node: string, state: string): Promise<void> {
    if (!/^installer\.completed\b/.test(state)) return
    const { remote, log } = this.o
    await remote.forget(node).catch(error => log.warn(`host key of node ${node}: ${error.message}`))
  }

  /** Returns the address of a node's provision interface. Throws 404 for a missing node. */
  #addressOf(name: string): string | undefined {
    const { model } = this.o
    return model.effective(model.get('node', name)).provision?.ipaddress
  }

  async #canReach(node: string, address: string | undefined, signal: AbortSignal): Promise<void> {
    await checkReachable(this.o.remote, node, address, signal).catch(asNotFound)
  }

  #image(name: string): OsimageDoc {
    return this.o.model.get('osimage', name)
  }

  get #directory(): string {
    return this.o.config.image.directory
  }
}
