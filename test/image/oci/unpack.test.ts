import { lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { runCommand } from '../../../lib/helper/local.js'
import { output, requireRoot } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { imageOf, tarEntry, tarOf, writeLayout } from './hostile.js'

const layout = '.svcd-0123456789abcdef.oci'
const work = '.svcd-0123456789abcdef'

/** A helper that serves an svcd without root, and an image for it. */
function beginning(test: Test, ...layers: readonly Buffer[]) {
  requireRoot()
  const directory = scratch(test)
  const [images, files] = [join(directory, 'images'), join(directory, 'files')]
  const blobs = join(files, layout, 'layout/blobs/sha256')
  mkdirSync(images)
  writeLayout(join(files, layout, 'layout'), imageOf(...layers))
  const places = { images, files, state: directory, sshKey: '', sshPort: 22, byRoot: false, units: [] }
  const unpack = (more: object = {}, course: object = {}) =>
    runCommand(places, 'unpack', { layout, parent: '', work, bytes: 2 ** 30, layers: 1, ...more }, course)
  return { directory, images, files, blobs, tree: join(images, work), unpack }
}

// rules 9.14, 9.16
t.test('owners, modes, devices and whiteouts', async t => {
  const { unpack, tree, files } = beginning(
    t,
    tarOf(
      tarEntry('./', '5', '', '', 0, 0o700),
      tarEntry('su', '0', 'x', '', 1, 0o4755),
      tarEntry('null', '3', '', '', 0, 0o666),
      tarEntry('gone', '0', 'x'),
      tarEntry('bin', '2', '', 'usr')
    ),
    tarOf(tarEntry('.wh.gone', '0'), tarEntry('bin/tool', '0', 'tool'))
  )
  const lines: string[] = []
  await unpack({ layers: 2 }, { line: (text: string) => lines.push(text) })
  t.equal(lstatSync(join(tree, 'su')).mode & 0o7777, 0o4755)
  t.ok(lstatSync(join(tree, 'null')).isCharacterDevice())
  t.strictSame(readdirSync(tree).sort(), ['bin', 'null', 'su', 'usr'])
  t.equal(readFileSync(join(tree, 'usr/tool'), 'utf8'), 'tool', 'a link in the tree is followed in the tree')
  t.equal(lstatSync(tree).mode & 0o7777, 0o755, 'the root directory is one that nodes can have')
  t.strictSame(lines, ['unpacking layer 1 of 2', 'unpacking layer 2 of 2'])
  t.strictSame(readdirSync(join(files, layout)), ['layout'], 'nothing is written there')
})

t.test('a layer that was changed after it came', async t => {
  const { unpack, blobs, images } = beginning(t, tarOf(tarEntry('file', '0', 'text')))
  const names = readdirSync(blobs).filter(name => readFileSync(join(blobs, name))[0] === 0x1f)
  t.equal(names.length, 1)
  const file = join(blobs, names[0] as string)
  writeFileSync(file, [...imageOf(tarOf(tarEntry('file', '0', 'evil'))).blobs.values()][1] as Buffer)
  await t.rejects(unpack(), { message: /umoci failed/ })
  t.notOk(readdirSync(images).some(name => readdirSync(join(images, name)).includes('file')))
})

t.test('places that are not those of an import', async t => {
  const { unpack, files, images, directory } = beginning(t, tarOf(tarEntry('file', '0', 'text')))
  for (const more of [{ layout: '../state' }, { layout: 'x' }, { work: 'compute' }, { parent: '..' }])
    await t.rejects(unpack(more), { message: /./ }, JSON.stringify(more))
  const other = '.svcd-fedcba9876543210.oci'
  symlinkSync(join(files, layout), join(files, other))
  await t.rejects(unpack({ layout: other }), { message: /ENOTDIR|ELOOP/ })
  await output('mv', [join(files, layout, 'layout'), join(directory, 'layout')])
  symlinkSync(join(directory, 'layout'), join(files, layout, 'layout'))
  await t.rejects(unpack(), { message: /ENOTDIR|ELOOP/ })
  t.strictSame(readdirSync(images), [])
})
