import { runInThread } from '../../base/thread.js'
import { fillNew } from '../../disk/file.js'
import { contentsOf } from './contents.js'
import { WORKER } from './in-worker.js'
import type { Packer, PackRequest, PackResult } from './packer.js'

const NEVER_CARRIED = [
  'extended attributes, access control lists, file capabilities and SELinux labels are not carried',
  'modification times are kept to the millisecond'
]

/** Packs with the npm package `tar` and node's gzip, in a thread: slower, and no program is needed. */
export const builtinPacker: Packer = {
  name: 'builtin',
  suffix: '.tar.gz',

  async pack(request: PackRequest): Promise<PackResult> {
    const { tree, excludes, output, owner, signal, timeLimitMs, progress } = request
    const contents = await contentsOf(tree, excludes)
    const packed = await fillNew(
      output,
      ({ fd }) =>
        runInThread<PackResult>(
          WORKER,
          { kind: 'archive', contents, output: fd },
          { name: 'the builtin packer', signal, timeLimitMs, progress }
        ),
      owner
    )
    return { ...packed, omitted: [...NEVER_CARRIED, ...packed.omitted] }
  }
}
