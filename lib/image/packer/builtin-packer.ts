import { pattern } from './excludes.js'
import { inWorker } from './in-worker.js'
import { mountedIn } from './mounted.js'
import { toOutput } from './output.js'
import type { Packed, Packer, PackRequest } from './packer.js'

const NEVER_CARRIED = [
  'extended attributes, access control lists, file capabilities and SELinux labels are not carried',
  'modification times are kept to the millisecond'
]

/**
 * Packs with the npm package `tar` and node's own gzip, in a worker thread: no program is needed. Slower than the
 * system packer, and what it cannot carry is in `omitted`.
 */
export const builtinPacker: Packer = {
  name: 'builtin',
  suffix: '.tar.gz',

  async pack({ tree, excludes, output, signal, timeLimitMs, progress }: PackRequest): Promise<Packed> {
    const contents = {
      tree,
      excludes: excludes.map(pattern),
      mounts: (await mountedIn(tree)).map(({ path }) => path)
    }
    const packed = await toOutput(output, ({ fd }) =>
      inWorker<Packed>(new URL('./builtin-worker.js', import.meta.url), {
        name: 'the builtin packer',
        workerData: { contents, output: fd },
        signal,
        timeLimitMs,
        progress
      })
    )
    return { ...packed, omitted: [...NEVER_CARRIED, ...packed.omitted] }
  }
}
