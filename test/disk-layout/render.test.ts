import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { shippedLayouts } from '../../lib/model/shipped-layouts.js'
import { layoutScript, shippedLayout, wholeLayout } from '../support/layout-script.js'
import { scratch } from '../support/scratch.js'

const layouts = [...Object.keys(shippedLayouts).map(shippedLayout), wholeLayout]

t.test('shellcheck finds nothing in the scripts', async t => {
  const directory = scratch(t)
  const files = layouts.flatMap(layout =>
    (['', '_kickstart'] as const).map(kind => {
      const file = join(directory, `${layout.name}${kind}.sh`)
      writeFileSync(file, layoutScript(layout, kind))
      return file
    })
  )
  const found = await promisify(execFile)('shellcheck', ['-s', 'sh', '-f', 'gcc', ...files]).catch(e => e)
  t.equal(found.stdout ?? String(found), '')
})

t.test('the description stands in the script as it can be read', t => {
  const script = layoutScript(shippedLayout('raid1-lvm'))
  const lines = /^layout\(\) \{\n([\s\S]*?)^\}$/m.exec(script)?.[1]?.trimEnd().split('\n')
  t.strictSame(lines, [
    "  disk 'system' 2 2 '' 3020 0 '' first gpt no ''",
    "  part 'firmware' 'firmware' '512' '' '' '' '' '' '' '' no no",
    "  part 'lvm' '' 'rest' '1' 'system' '' '' '' '' '' no no",
    "  volume 'system' 'swap' '2048' 'swap' '' '' '' '' no",
    "  volume 'system' 'root' 'rest' 'ext4' '/' '' '' '' no"
  ])
  t.match(script, /^programs='sfdisk mdadm lvm mkswap mkfs.ext4'$/m)
  t.match(script, /^kernel='raid1 dm_mod ext4'$/m)
  t.end()
})
