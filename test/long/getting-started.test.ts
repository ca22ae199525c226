import { rmSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { builtTree } from '../support/built-tree.js'
import { start } from '../support/child.js'
import { freePort } from '../support/free-port.js'
import { blocksOf } from '../support/page.js'
import { checkout, requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

// docs/getting-started.md as a reader types it: debootstrap, a pack, two virtual machines without root's
// help. It prints the times that the page tells.

requireRoot()
requirePrograms('qemu-system-x86_64', 'debootstrap', 'curl', '/usr/lib/ipxe/qemu/pxe-virtio.rom')

const page = 'docs/getting-started.md'
const limitMs = 3_600_000

t.test(`the commands of ${page}, as they are typed`, { timeout: limitMs }, async t => {
  const directory = builtTree(scratch(t))
  t.teardown(() => rmSync(join(directory, 'var'), { recursive: true, force: true }))
  const port = await freePort()
  const blocks = blocksOf(page).filter(
    ({ language, heading }) => language === 'sh' && heading !== 'What you need'
  )
  t.ok(blocks.length >= 8, 'there are some')
  const typed = blocks
    .map(({ heading, line, text }) => `${text}echo "TIMED $SECONDS ${heading} (line ${line})"\n`)
    .join('')
    .replaceAll('7060', String(port))
  // What it leaves running ends with the process group of its own.
  const script = `set -eu; cd ${directory}; trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n${typed}`
  const reader = start('timeout', ['--kill-after=10', String(limitMs / 1000), 'bash', '-c', script], {
    input: '',
    env: { XDG_CACHE_HOME: join(directory, 'cache') }
  })
  t.teardown(() => reader.kill())
  const { code, stdout, stderr } = await reader.ended
  t.equal(code, 0, 'all went well', { stderr, stdout: stdout.slice(-4000), checkout })
  for (const [, time] of stdout.matchAll(/^TIMED (.*)$/gm)) t.comment(time)
  t.match(stdout, /^node001 +compute +debian .*installer\.completed/m)
  t.match(stdout, /^node002 +compute +debian .*installer\.completed/m)
  t.equal(
    [...stdout.matchAll(/ running +debian-\w+\.tar\.zst/g)].length >= 3,
    true,
    'both said that they run'
  )
})
