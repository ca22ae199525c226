import { mkdirSync, realpathSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { compareTrees } from '../../image/compare-trees.js'
import { run, unpack, workDirectory } from '../../image/rich-tree.js'
import { builtTree } from '../../support/built-tree.js'
import { start } from '../../support/child.js'

const script = `
const [code, tree, output] = process.argv.slice(2)
const { choosePacker } = await import(code + '/dist/helper/packer/choose-packer.js')
const { hashFile } = await import(code + '/dist/helper/packer/in-worker.js')
const packer = await choosePacker('auto', 'zstd')
let longest = 0
let last = performance.now()
const beat = setInterval(() => {
  longest = Math.max(longest, performance.now() - last)
  last = performance.now()
}, 5)
const signal = new AbortController().signal
const packed = await packer.pack({
  tree, output, signal, excludes: [], timeLimitMs: 300_000, progress() {}, line() {}
})
const hashed = await hashFile(output)
clearInterval(beat)
console.log(JSON.stringify({ name: packer.name, packed, hashed, longest }))
`

t.test(
  'as it is installed, with no program on the machine: packed by the threads of the built tree',
  async t => {
    const directory = workDirectory(t)
    const code = join(directory, 'code')
    const tree = join(directory, 'tree')
    mkdirSync(code)
    builtTree(code)
    writeFileSync(join(code, 'pack.mjs'), script)
    mkdirSync(join(tree, 'a'), { recursive: true })
    writeFileSync(join(tree, 'a/file'), Buffer.alloc(20_000_000, 'content'))
    const output = join(directory, 'image.tar.gz')
    const node = realpathSync(process.execPath)
    const {
      code: status,
      stdout,
      stderr
    } = await start('env', ['PATH=/nowhere', node, join(code, 'pack.mjs'), code, tree, output]).ended
    t.strictSame([status, stderr], [0, ''])
    const { name, packed, hashed, longest } = JSON.parse(stdout)
    t.equal(name, 'builtin')
    t.strictSame(hashed, { sha256: packed.sha256, bytes: statSync(output).size })
    t.comment(`the event loop stood still for ${longest.toFixed(0)} ms at most`)
    run('gzip', '--test', output)
    unpack(output, join(directory, 'unpacked'))
    const compared = { attributes: false, nanoseconds: false, holes: false }
    t.strictSame(await compareTrees(tree, join(directory, 'unpacked'), compared), [])
  }
)
