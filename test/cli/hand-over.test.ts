import { chownSync, lchownSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { start } from '../support/child.js'
import { checkout, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

requireRoot()
const nobody = 65534
const script = join(checkout, 'libexec/hand-over.sh')

t.test('a path with a link that is not root’s is refused, and nothing changes (rules 11.10)', async t => {
  const at = (...names: string[]) => join(top, ...names)
  const top = scratch(t)
  for (const name of ['state', 'files', 'images', 'elsewhere/below']) mkdirSync(at(name), { recursive: true })
  writeFileSync(at('elsewhere/below/victim'), '')
  writeFileSync(at('state/own'), '')
  const link = (name: string, target: string, uid: number) => {
    symlinkSync(target, at(name))
    lchownSync(at(name), uid, uid)
  }
  link('planted', at('elsewhere'), nobody)
  link('of-root', at('elsewhere'), 0)
  link('by-way-of-planted', 'planted/below', 0)
  link('to-nothing', at('none'), 0)
  const handOver = (state: string, files: string, images: string) =>
    start('env', ['-C', top, 'sh', script, state, files, images, 'nobody'], { input: '' }).ended
  for (const [state, files, images] of [
    [at('planted'), at('files'), at('images')],
    [at('state'), at('planted'), at('images')],
    [at('state'), at('files'), `${at('planted')}//`],
    [at('state'), at('planted/below'), at('images')],
    ['state', './planted/.', 'images'],
    [at('state'), at('planted/none'), at('images')],
    [at('state'), at('by-way-of-planted'), at('images')]
  ] as const) {
    const { code, stderr } = await handOver(state, files, images)
    t.equal(code, 1, `${state} ${files} ${images}`)
    t.match(stderr, /planted is a link that belongs to user 65534: remove it, .*nothing is changed/)
  }
  t.match((await handOver(at('state'), at('to-nothing'), at('images'))).stderr, /leads to nothing/)
  t.equal(statSync(at('state/own')).uid, 0)
  t.equal(statSync(at('elsewhere/below/victim')).uid, 0)

  chownSync(at('files'), nobody, nobody)
  const { code, stderr } = await handOver(at('state'), at('files'), at('of-root/images'))
  t.equal(code, 0, stderr)
  t.equal(statSync(at('state/own')).uid, nobody, 'a link of root’s is followed')
  t.equal(statSync(at('elsewhere/images')).uid, 0)
  t.equal(
    statSync(at('elsewhere/images')).mode & 0o7777,
    0o710,
    'devices and setuid programs of images are not for others'
  )
})
