import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import t from 'tap'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const howto = read('docs/howto.md')

t.test('docs/howto.md names every variable that scripts of the admin see', async t => {
  const section = howto.slice(howto.indexOf('## Run scripts'), howto.indexOf('## Install onto a disk'))
  const scripts = ['templ_install.cfg', 'kickstart_functions.cfg'].map(name =>
    read(`templates/install/${name}`)
  )
  const exported = scripts.flatMap(text =>
    [...text.matchAll(/^export (.*)$/gm)].flatMap(([, names = '']) => names.split(' '))
  )
  t.ok(exported.length > 10)
  for (const name of new Set(exported)) t.match(section, new RegExp(`\`\\$?${name}\``), name)
})

t.test('the commands of docs/howto.md are shell', async t => {
  const blocks = [...howto.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block = '']) => block)
  t.ok(blocks.length > 5)
  for (const block of blocks) {
    const { status, stderr } = spawnSync('sh', ['-n'], { input: block, encoding: 'utf8' })
    t.equal(status, 0, `${block.split('\n', 1)[0]}: ${stderr}`)
  }
})
