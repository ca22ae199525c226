import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { PackRequest } from '../../lib/helper/packer/packer.js'
import { locate } from '../support/programs.js'

/** A request to pack, and what its packer said. */
export function request(tree: string, output: string, more: Partial<PackRequest> = {}) {
  const lines: string[] = []
  const fractions: number[] = []
  const asked: PackRequest = {
    tree,
    output,
    excludes: [],
    signal: new AbortController().signal,
    timeLimitMs: 300_000,
    progress: fraction => fractions.push(fraction),
    line: text => lines.push(text),
    ...more
  }
  return { ...asked, lines, fractions }
}

/**
 * A PATH for the rest of the test with nothing on it but these programs, each the system's own (true) or a
 * shell script. The system directories of root are looked at as well; none of these is there.
 */
export function onlyPrograms(test: Test, directory: string, programs: Record<string, string | true>): void {
  const bin = join(directory, 'bin')
  mkdirSync(bin)
  const before = process.env.PATH
  for (const [name, script] of Object.entries(programs)) {
    if (script === true) symlinkSync(locate(name) ?? `no ${name}`, join(bin, name))
    else writeFileSync(join(bin, name), `#!/bin/sh\nPATH='${before}'\n${script}\n`, { mode: 0o755 })
  }
  process.env.PATH = bin
  test.teardown(() => {
    process.env.PATH = before
  })
}

/** A tree of files that do not compress, of 1 MB each. */
export function bulkyTree(tree: string, megabytes: number): void {
  mkdirSync(tree)
  for (let i = 0; i < megabytes; i++) {
    const content = Buffer.alloc(1 << 20)
    for (let at = 0, x = i + 1; at < content.length; at += 4) {
      x = (Math.imul(x, 1_664_525) + 1_013_904_223) >>> 0
      content.writeUInt32LE(x, at)
    }
    writeFileSync(join(tree, `file-${String(i).padStart(3, '0')}`), content)
  }
}
