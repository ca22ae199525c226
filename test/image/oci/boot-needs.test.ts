import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { systemIn } from '../../../lib/image/oci/import.js'
import { scratch } from '../../support/scratch.js'
import { makeTree } from '../small-tree.js'

const release = 'ID=debian\nVERSION_ID="12"\n'

t.test('what /etc/os-release says of a system', async t => {
  const table: [text: string, distribution: string | undefined, osrelease: string | undefined][] = [
    [release, 'debian', '12'],
    ["ID='rocky' \t\r\nVERSION_ID=9.4\n", 'rocky', '9.4'],
    ['ID="a"b"\n', undefined, undefined],
    ['# ID=no\n id=no\n', undefined, undefined]
  ]
  for (const [text, distribution, osrelease] of table) {
    const tree = makeTree(scratch(t), { 'etc/os-release': text })
    const { distribution: one, osrelease: other } = await systemIn(tree)
    t.strictSame([one, other], [distribution, osrelease], JSON.stringify(text))
  }
})

t.test('a hostile /etc/os-release takes no quadratic time', async t => {
  const timeOf = async (line: string) => {
    const tree = makeTree(scratch(t), {
      'etc/os-release': `${line.padEnd(60_000, line.at(-2))}"x\n${release}`
    })
    const began = performance.now()
    t.match(await systemIn(tree), { distribution: 'debian' })
    return performance.now() - began
  }
  // An expression that takes quadratic time, on a third of the length: a ninth of its time.
  const began = performance.now()
  t.notMatch(`A=${' '.repeat(20_000)}"x`, /^A=[^"]*\s*$/)
  const quadratic = performance.now() - began
  for (const line of ['A=  ', 'A=\t\t', 'A=""', "A=''", 'A=" "'])
    t.ok((await timeOf(line)) < 2 * quadratic, JSON.stringify(line))
})

t.test('a directory of very many files is read no further than a bound', async t => {
  const tree = makeTree(scratch(t), { 'etc/os-release': release, 'boot/config': '' })
  for (let i = 0; i < 10_000; i++) writeFileSync(join(tree, 'boot', `f${i}`), '')
  await t.rejects(systemIn(tree), { status: 503, message: /^\/boot of the image holds over 10000 files$/ })
})
