import { chmod, chown, statfs } from 'node:fs/promises'
import type { OpenDirectory } from '../disk/open-directory.js'
import { type Course, run } from '../program/program.js'
import { bounded, LEFT_FREE } from './growth.js'

/** An image in the OCI layout, and the new directory for its files. */
interface Unpacking extends Course {
  /** The command prefix and the paths with which umoci sees both. */
  readonly through: readonly string[]
  readonly layout: string
  readonly into: string
  readonly opened: OpenDirectory
  readonly bytes: number
  readonly layers: number
  /** 0..1. */
  progress(fraction: number): void
}

/** Files and directories: a large system has half a million. */
const MOST_FILES = 5_000_000

/** The name of the layout in the hidden directory of an import, and of the image in it. */
export const LAYOUT = 'layout'
export const LAYOUT_TAG = 'image'

/**
 * Unpacks the layers with owners, devices and attributes; umoci checks digests and stays in the directory.
 * Throws Error above `bytes` or on a nearly full disk: a small layer may hold terabytes of zeros.
 */
export async function unpackLayout(unpacking: Unpacking): Promise<void> {
  const { through, layout, into, opened, bytes, layers, line, progress, signal, timeLimitMs } = unpacking
  const before = await statfs(opened.at())
  const room = before.bavail * before.bsize - LEFT_FREE
  let files = 0
  const growth = {
    measure: async () => {
      const now = await statfs(opened.at())
      files = before.ffree - now.ffree
      return (before.bfree - now.bfree) * before.bsize
    },
    tooMuch: (written: number) => {
      if (files > MOST_FILES) return `the image holds more than ${MOST_FILES} files`
      if (written > bytes) return `the image takes more than ${bytes} bytes unpacked: [image] max_unpacked`
      return written > room
        ? `[image] directory has no room for the image: ${LEFT_FREE} bytes have to stay free there`
        : undefined
    }
  }
  let begun = 0
  const heard = (text: string) => {
    if (!/unpack layer: /.test(text)) return
    progress(begun / layers)
    begun++
    return line(`unpacking layer ${begun} of ${layers}`)
  }
  const words = ['--log', 'info', 'raw', 'unpack', '--image', `${layout}:${LAYOUT_TAG}`, into]
  await bounded(growth, signal, signal =>
    run('umoci', words, { signal, timeLimitMs, wrapper: through, onLine: heard, onErrorLine: heard })
  )
  // A layer may name the root directory or not, with any owner and mode: it becomes that of the nodes.
  await chown(opened.at(), 0, 0)
  await chmod(opened.at(), 0o755)
}
