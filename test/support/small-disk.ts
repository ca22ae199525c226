import { execFileSync } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { requireRoot } from './programs.js'
import { scratch } from './scratch.js'

/** A disk of our own, of 256 KiB or as mount says it; gone after the test. */
export function smallDisk(t: Pick<Test, 'teardown'>, size = '256k'): string {
  requireRoot()
  const directory = scratch(t)
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=0700`, 'tmpfs', directory])
  t.teardown(() => execFileSync('umount', ['--lazy', directory]))
  return directory
}

/** Fills a disk to the last byte; returns how to free it. */
export function fillDisk(directory: string): () => void {
  const file = join(directory, 'filler')
  for (let sizeBytes = 65_536; sizeBytes >= 1; sizeBytes >>= 1)
    try {
      for (;;) writeFileSync(file, Buffer.alloc(sizeBytes), { flag: 'a' })
    } catch {
      // This much is too much: half of it.
    }
  return () => rmSync(file)
}
