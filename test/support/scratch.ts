import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { checkout, output } from './programs.js'

/**
 * A directory of its own, removed after the test. Unlike `t.testdir` it lies outside the checkout and has a
 * short path: for sockets, mounts, and programs that other users run.
 */
export function scratch(t: Pick<Test, 'teardown'>): string {
  return removed(t, mkdtempSync(join(tmpdir(), 'svcd-test-')))
}

/** The same on a disk, for what has to outlive a crash: test/run.sh may keep the others in memory. */
export function onDisk(t: Pick<Test, 'teardown'>): string {
  return removed(t, mkdtempSync(join(checkout, '.cache', 'disk-')))
}

function removed(t: Pick<Test, 'teardown'>, directory: string): string {
  // Servers that run as other users look in.
  chmodSync(directory, 0o711)
  t.teardown(() => {
    // A mount there stays. A program would cost ten times as much as the removal of most directories.
    const isMounted = readFileSync('/proc/self/mounts', 'utf8').includes(` ${directory}`)
    if (isMounted) return output('rm', ['-rf', '--one-file-system', directory])
    return rmSync(directory, { recursive: true, force: true })
  })
  return directory
}
