import { readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { blocksOf } from '../support/page.js'
import { checkout } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

// The programs and commands of docs/clients.md, as they stand there. npm is not asked: the packages are those
// of this checkout.

const page = 'docs/clients.md'
const c = await Controller.start(t)
const { address, port } = c.daemon
const password = readFileSync(join(c.directory, 'state', 'admin-password'), 'utf8').trim()

async function typed(t: Test, heading: string, files: readonly string[]): Promise<string> {
  const directory = scratch(t)
  symlinkSync(join(checkout, 'node_modules'), join(directory, 'node_modules'))
  const blocks = blocksOf(page).filter(block => block.heading === heading)
  const programs = blocks.filter(({ language }) => language !== 'sh')
  t.equal(programs.length, files.length, `${heading}: its programs`)
  for (const [i, { text }] of programs.entries()) writeFileSync(join(directory, files[i] as string), text)
  const commands = blocks.filter(({ language }) => language === 'sh').map(({ text }) => text)
  const script = commands
    .join('')
    .replace(/^npm install .*\n/m, '')
    // The declarations of the packages are not ours: to check them takes most of the time of all this.
    .replace(/^npx tsc (?=--strict )/m, process.env.SVCD_LONG === undefined ? '$&--skipLibCheck ' : '$&')
  t.match(script, /day/, `${heading}: its commands`)
  const env = {
    // Without the loader that the test runner gives to its children.
    NODE_OPTIONS: '',
    ...{ SVCD_URL: `http://${address}:${port}`, SVCD_USER: 'admin', SVCD_PASSWORD: password }
  }
  const { code, stdout, stderr } = await start('sh', ['-c', `set -eu\ncd ${directory}\n${script}`], {
    input: '',
    env
  }).ended
  t.equal(code, 0, `${stdout}${stderr}`)
  return stdout
}

/** The steps of a day's work, which both programs take. */
function checkDay(t: Test, said: string, [first, second]: readonly [string, string], address: string) {
  t.match(said, /dry run, nothing was changed: 1 node would be changed/)
  t.match(said, new RegExp(`^address ${address}$`, 'm'))
  t.match(said, /^attempt 1 done$/m)
  t.match(said, /^attempt 2 changed-meanwhile$/m)
  t.match(said, new RegExp(`^power .*${first}`, 'm'), 'the power request is refused, and its code is known')
  t.match(said, new RegExp(`^export .*\\b${first} ${second}\\b`, 'm'))
}

t.test('a TypeScript client is generated from /openapi.json, and does a day of work', async t => {
  const said = await typed(t, 'TypeScript', ['day.ts'])
  t.match(said, /^ts001 201\nts002 201$/m)
  checkDay(t, said, ['ts001', 'ts002'], '10.160.0.1')
  t.equal((await c.get('/config/node/ts001')).body.config.node.ts001.comment, 'attempt 1')
})

t.test("a Python client is made of the document by Python's own library, and does the same", async t => {
  const said = await typed(t, 'Python', ['svcd.py', 'day.py'])
  t.match(said, /^node py001 created\nnode py002 created$/m)
  checkDay(t, said, ['py001', 'py002'], '10.161.0.1')
  t.equal((await c.get('/config/node/py001')).body.config.node.py001.comment, 'attempt 1')
})
