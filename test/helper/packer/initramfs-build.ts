// Builds the initramfs of the tree named by the first argument, in a process that a test can kill. Says what
// it is told.
import { buildInitramfs } from '../../../lib/helper/packer/initramfs.js'
import { kernel } from '../../image/initramfs-tree.js'

await buildInitramfs({
  tree: process.argv[2] ?? '',
  byRoot: true,
  kernelversion: kernel,
  dracutmodules: [],
  kernelmodules: [],
  signal: new AbortController().signal,
  timeLimitMs: 3_600_000,
  line: text => console.log(text)
})
