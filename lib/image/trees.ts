import { realpathSync } from 'node:fs'
import { realpath, stat } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { ServiceError, unavailable } from '../base/errors.js'
import { exists } from '../disk/file.js'
import { hasAnyInside, mountsBelow } from '../disk/open-directory.js'
import { daemonActor } from '../model/model.js'
import type { ObjectPatch } from '../model/object-type.js'
import { docsOf, type Tx, type View } from '../model/stored.js'
import { imageDirectoryOf, type OsimageDoc } from '../model/types/osimage.js'
import { type Controllers, type ImageContext, unusable } from './context.js'

export type Shared = Pick<ImageContext, 'config' | 'controllers'>

/** Whether the directory of an image is on another controller. */
export const isOfAnother = (controllers: Controllers | undefined, image: OsimageDoc | undefined): boolean =>
  controllers !== undefined && image?.controller !== undefined && image.controller !== controllers.own

/** Throws 503 for an image on another controller (rules 9.15): a path of that name here may be old. */
export async function checkHere({ config, controllers }: Shared, image: OsimageDoc): Promise<void> {
  const { name, controller = '' } = image
  if (!controllers || !isOfAnother(controllers, image)) return
  const { own } = controllers
  const path = imageDirectoryOf(config.image.directory, image)
  const there = `OS image ${name}: its directory ${path} is on controller ${controller}`
  if (controllers.others().includes(controller))
    throw unavailable(
      `${there}, and controller ${own} writes: make ${controller} the one that writes (type systemctl ` +
        'stop svcd on the others, and systemctl start svcd there once svcctl cluster show lists ' +
        `${controller} as primary), and ask again`,
      'image-elsewhere'
    )
  const instead = (await exists(path))
    ? `to use the directory ${path} of controller ${own} from now on, set path again`
    : `bring the directory to controller ${own}, and set path again`
  throw unavailable(
    `${there}, which is not there: start svcd on ${controller}; or ${instead}: svcctl osimage set ` +
      `${name} path=${path}`,
    'image-elsewhere'
  )
}

/**
 * Whether a request moves the directory of an image to this controller: it sets `path` alone, and the noted
 * controller is away. An image that was read and is posted back sets other fields too.
 */
export async function isMovedHere({ config, controllers }: Shared, image: OsimageDoc, given: ObjectPatch) {
  if (!isOfAnother(controllers, image)) return false
  if (given.values.size !== 1 || !given.values.has('path') || given.newName) return false
  if (controllers?.others().includes(image.controller ?? '')) return false
  return exists(imageDirectoryOf(config.image.directory, image))
}

/** Returns the field that names this controller; none where there is one controller alone. */
export const here = ({ controllers }: Shared) => (controllers ? { controller: controllers.own } : {})

/** Notes this controller in the images whose directories are here, where no controller is noted. */
export async function noteFound({ config, controllers, ownsObjects, model }: ImageContext): Promise<void> {
  if (!controllers || !ownsObjects()) return
  const { directory } = config.image
  const found: string[] = []
  for (const image of docsOf(model.view, 'osimage'))
    if (image.controller === undefined && (await exists(imageDirectoryOf(directory, image))))
      found.push(image.name)
  if (found.length === 0) return
  await model.change(daemonActor, tx => {
    for (const name of found) {
      const image = tx.get('osimage', name)
      if (image && image.controller === undefined)
        tx.put('osimage', name, { ...image, controller: controllers.own })
    }
  })
}

/**
 * Returns the real directory of a path. Throws an Error that calls it `name` unless it is a directory
 * strictly below `[image] directory`, whatever links are on the way.
 */
export async function realBelow(directory: string, path: string, name = path): Promise<string> {
  const real = (path: string, name: string) =>
    realpath(path).catch(({ code, message }: NodeJS.ErrnoException) => {
      if (code === 'EACCES')
        throw new Error(
          `svcd may not enter it; type, as root: chgrp svcd-images ${directory} && chmod 0710 ${directory}`
        )
      throw new Error(code === 'ENOENT' ? `${name} does not exist` : `${name}: ${code ?? message}`)
    })
  if (!isAbsolute(path)) throw new Error(`${name} is relative`)
  if (path.split('/').includes('..')) throw new Error(`${name} holds ..`)
  const home = await real(directory, 'that directory')
  const tree = await real(path, name)
  if (tree === home) throw new Error(`${name} is that directory itself`)
  if (!tree.startsWith(home === '/' ? '/' : `${home}/`)) throw new Error(`${name} leads to ${tree}`)
  if (!(await stat(tree)).isDirectory()) throw new Error(`${name} is a file`)
  return tree
}

/** Returns the real directory of a `path`. Throws 503 for what `realBelow` refuses (rules 3.12). */
export function imageTree(directory: string, osimage: string, path: string): Promise<string> {
  return realBelow(directory, path, 'it').catch(error => {
    const why = `is no directory below [image] directory ${directory}: ${error.message}`
    throw unusable(osimage, `path ${path} ${why}`, error)
  })
}

/** Returns the real directory of an image; undefined without `path` and one of its name. Throws 503. */
export async function treeIfAny(directory: string, image: OsimageDoc): Promise<string | undefined> {
  const path = imageDirectoryOf(directory, image)
  if (image.path === undefined && !(await exists(path))) return undefined
  return imageTree(directory, image.name, path)
}

/** Resolves the links in the part of a path that exists. */
export async function realPlace(path: string): Promise<string> {
  return realpath(path).catch(async () =>
    path === dirname(path) ? path : join(await realPlace(dirname(path)), basename(path))
  )
}

/** Returns the real directory of an image. Throws 503 with the field or the ini key if there is none. */
export async function treeOf(shared: Shared, image: OsimageDoc): Promise<string> {
  const { directory } = shared.config.image
  try {
    const tree = await treeIfAny(directory, image)
    if (tree !== undefined) return tree
  } catch (error) {
    const looked = whereLooked(shared, image)
    throw looked !== '' && error instanceof ServiceError
      ? unavailable(error.message + looked, 'image-unusable', error)
      : error
  }
  throw unusable(
    image.name,
    `field "path" is not set, and there is no ${imageDirectoryOf(directory, image)}: set path, or make ` +
      `that directory${whereLooked(shared, image)}`
  )
}

/** The places where a kernel looks for an init. */
export const usualInits = ['sbin/init', 'etc/init', 'bin/init']

/** Throws 503 for a directory that no node could run from: it needs root's owner and an init (rules 9.2). */
export async function checkSystem({ name, kerneloptions = '' }: OsimageDoc, tree: string): Promise<void> {
  const { uid, gid, mode } = await stat(tree)
  const bits = mode & 0o7777
  // Red Hat's root directory is not writable. An svcd that is not root and has no helper packs its own trees.
  const isOurs = (id: number, own: number | undefined) => id === 0 || id === own
  const { geteuid, getegid } = process
  if (!isOurs(uid, geteuid?.()) || !isOurs(gid, getegid?.()) || (bits !== 0o755 && bits !== 0o555))
    throw unusable(
      name,
      `its directory ${tree} belongs to user ${uid} and group ${gid} with mode ${bits.toString(8)}, which ` +
        'would become those of the root directory of its nodes: type, as root: ' +
        `chown root:root ${tree} && chmod 00755 ${tree}`
    )
  const given = /(?:^| )init=(\S+)/.exec(kerneloptions)?.[1]
  if (await hasAnyInside(tree, given === undefined ? usualInits : [given])) return
  throw unusable(
    name,
    `its directory ${tree} has no ${given ?? '/sbin/init'}, and no node could start it: install ` +
      'systemd-sysv (Debian, Ubuntu) or systemd in the image, as docs/node-side.md says'
  )
}

/** Returns the end of a refusal: which controller looked. Empty with one controller alone. */
export function whereLooked({ controllers }: Shared, { controller }: OsimageDoc): string {
  if (!controllers) return ''
  const { own } = controllers
  return controller === undefined
    ? `; controller ${own}, which writes, has looked: a directory on another one is known once that one ` +
        'writes (stop svcd on the others for a moment)'
    : `; controller ${own}, which had the directory, has looked`
}

/** Throws 503 for mounts in a tree, which may lie outside, and at one that is to be replaced. */
export async function checkUnmounted(osimage: string, tree: string, done: 'copied' | 'pushed' | 'replaced') {
  const mounted = (await mountsBelow(tree)).find(point => point !== tree || done === 'replaced')
  if (mounted !== undefined)
    throw unusable(osimage, `${tree} cannot be ${done}: something is mounted at ${mounted}`)
}

/** Returns the name of an image whose directory is `name`, or lies in it, also by a link. */
export function imageIn(view: View, directory: string, name: string): string | undefined {
  const tree = join(directory, name)
  const real = realIfAny(tree)
  const within = (path: string, tree: string) => path === tree || path.startsWith(`${tree}/`)
  return docsOf(view, 'osimage').find(image => {
    const path = imageDirectoryOf(directory, image)
    return within(path, tree) || within(realIfAny(path), real)
  })?.name
}

function realIfAny(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return path
  }
}

/** Part of a rename of an image: it keeps its directory by `path`, if that `stands` (rules 3.2, 9.1). */
export function keepTree(tx: Tx, directory: string, from: string, to: string, stands: boolean): void {
  const image = tx.get('osimage', to)
  if (image && image.path === undefined && stands) {
    tx.put('osimage', to, { ...image, path: join(directory, from) })
    if (!tx.get('tree', from)) tx.put('tree', from, { name: from, osimage: to })
  }
  const tree = tx.get('tree', to)
  if (tree?.osimage !== to || tree.at !== undefined || image?.path === undefined) return
  const isThere = (one: OsimageDoc) => imageDirectoryOf(directory, one) === join(directory, to)
  if (!isThere(image) || docsOf(tx, 'osimage').some(one => one.name !== to && isThere(one))) return
  const { path: _, ...rest } = image
  tx.put('osimage', to, rest)
  tx.remove('tree', to)
}
