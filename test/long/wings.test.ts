// The tests of one controller, on a copy of the project without the wing for several controllers.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { copyForOneController, importsIn, sourcesIn } from '../support/one-controller.js'
import { checkout, output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

/** Names that the copy shares with the checkout, or makes anew. */
const leftOut = ['node_modules', 'dist', '.cache', '.git', '.tap', 'var']
/** These look at the whole of lib/, or copy it. */
const ofTheHouse = ['test/architecture.test.ts', 'test/recipes.test.ts', 'test/wings.test.ts']

/** Whether a test has several controllers: it uses the wing, or etcd. */
function hasPeers(file: string, seen = new Set<string>()): boolean {
  if (/^lib\/peers\/|^test\/support\/etcd\.ts$/.test(file)) return true
  if (!file.startsWith('test/') || seen.has(file)) return false
  seen.add(file)
  return importsIn(checkout, file).some(target => hasPeers(target, seen))
}

t.test('the tests of one controller pass without it', { timeout: 7_200_000 }, async t => {
  const directory = scratch(t)
  copyForOneController(
    directory,
    readdirSync(checkout).filter(name => !leftOut.includes(name))
  )
  if (readdirSync(checkout).includes('dist')) symlinkSync(join(checkout, 'dist'), join(directory, 'dist'))
  const config = { extends: './tsconfig.json', include: ['lib'] }
  writeFileSync(join(directory, 'tsconfig.lib.json'), JSON.stringify(config))
  const tsc = join(checkout, 'node_modules', 'typescript', 'bin', 'tsc')
  await output(process.execPath, [tsc, '--noEmit', '-p', join(directory, 'tsconfig.lib.json')], {
    timeout: 600_000
  })
  // Narrows the run down while this test is worked on.
  const only = new RegExp(process.env.SVCD_WINGS_ONLY ?? '')
  const files = sourcesIn(checkout, 'test').filter(
    file =>
      /^test\/(?!long\/).*\.test\.ts$/.test(file) &&
      only.test(file) &&
      !ofTheHouse.includes(file) &&
      !hasPeers(file)
  )
  t.ok(files.length > 0, `${files.length} files`)
  // Without what this run has set: its runner, long tests, and the mounts, which would hide the copy.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(NODE_OPTIONS|SVCD_.*|_?TAP.*)$/.test(name))
  )
  const run = spawn('sh', ['test/run.sh', ...files], { cwd: directory, env })
  let said = ''
  for (const stream of [run.stdout, run.stderr]) stream.on('data', text => (said += text))
  const [status] = await once(run, 'close')
  t.equal(status, 0, said.slice(-20_000))
  t.match(said, /^\d+ passed, 0 failed$/m)
  t.comment(said.trim().split('\n').at(-1))
})
