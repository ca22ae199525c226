import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { scratch } from '../support/scratch.js'
import { svcctlFor } from '../support/svcctl.js'

const page = readFileSync(fileURLToPath(new URL('../../docs/day.md', import.meta.url)), 'utf8')
const c = await Controller.start(t)
await c.cluster()
const env = svcctlFor(scratch(t), c)

/**
 * Types the commands below a heading as they stand there, `after` behind the last, and returns their output.
 */
async function typed(heading: string, after = ''): Promise<string> {
  const section = page.split(/^## /m).find(part => part.startsWith(`${heading}\n`)) ?? ''
  const commands = [...section.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block = '']) => block).join('')
  t.not(commands, '', heading)
  const script = `set -eu\ncd ${c.directory}\n${commands.trimEnd()}${after}`
  const { code, stdout, stderr } = await start('sh', ['-c', script], { input: '', env }).ended
  if (code !== 0) throw new Error(`${heading}: ${stdout}${stderr}`)
  return stdout + stderr
}

// rules 12.1 to 12.8
t.test("the commands of docs/day.md, as they are typed, in the page's order", async t => {
  const added = await typed('New nodes')
  t.match(added, /dry run, nothing was changed: 3 nodes would be created\n/)
  t.match(added, /3 nodes created, 0 changed/)
  const there = await typed('What is there')
  t.match(there, /^name +group +osimage/m)
  t.match(there, /^node013 +10\.141\.\S+ +rack 2$/m)
  t.match(there, /^node012,compute\r?$/m)
  t.match(there, /52:54:00:00:01:01 +\(node\)|macaddr +52:54:00:00:01:01/)
  const change = await typed('What will this change do')
  t.match(
    change,
    /nodes node\[011-012\] would be changed:[\s\S]*2 nodes updated[\s\S]*group compute would be changed:/
  )
  // No node is stale.
  const stale = await typed('Which nodes run something else than they should', ' || echo "code $?"')
  t.match(stale, /^name +osimage$/m)
  t.match(stale, /code 1\n/)
  t.match(stale, /svcctl: @stale:yes names no node: nothing was done\n/)
  const why = await typed('Why did this one not come up')
  t.match(why, /^node011 +- +-/m)
  t.match(why, /node011/)
  // No node is stale, or has a BMC: it may fail, but the command line is right.
  t.notMatch(await typed('Off and on again', ' || echo "code $?"'), 'code 2')
  const gone = await typed('Gone for good')
  t.match(gone, /2 nodes would be deleted[\s\S]*2 nodes deleted/)
  t.same(Object.keys((await c.get('/config/node')).body.config.node), ['node011'])
  t.notMatch([added, there, change, why, gone].join(''), /is not known|there is no/)
})
