import { unavailable } from '../base/errors.js'
import type { Tx } from '../model/stored.js'
import type { OsimageDoc } from '../model/types/osimage.js'

/** 503: the directory or a file of an OS image cannot be used. */
export const unusable = (image: string, why: string, cause?: unknown) =>
  unavailable(`OS image ${image}: ${why}`, 'image-unusable', cause)

/** Returns an image to store. Throws 503 if it has gone or its `path` was changed while `what`. */
export function sameImage(
  tx: Tx,
  { name, path }: { readonly name: string; readonly path?: string | undefined },
  what: string
): OsimageDoc {
  const now = tx.get('osimage', name)
  if (!now) throw unavailable(`OS image ${name} was deleted or renamed while ${what}`, 'image-changed')
  if (now.path === path) return now
  throw unavailable(`OS image ${name}: field "path" was changed while ${what}`, 'image-changed')
}
