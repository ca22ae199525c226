import { chmodSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { output } from './programs.js'

/**
 * A directory of its own, removed after the test. Unlike `t.testdir` it lies outside the checkout and has a
 * short path: for sockets, mounts, and programs that other users run.
 */
export function scratch(t: Pick<Test, 'teardown'>): string {
  const directory = mkdtempSync(join(tmpdir(), 'svcd-test-'))
  // Servers that run as other users look in.
  chmodSync(directory, 0o711)
  // What is mounted there stays.
  t.teardown(() => output('rm', ['-rf', '--one-file-system', directory]))
  return directory
}
