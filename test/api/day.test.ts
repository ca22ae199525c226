import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { output } from '../support/programs.js'

const page = readFileSync(fileURLToPath(new URL('../../docs/day.md', import.meta.url)), 'utf8')
const c = await Controller.start(t)
await c.cluster()

/** What the commands below a heading print, typed as they stand there. */
async function typed(heading: string): Promise<string> {
  const section = page.split(/^## /m).find(part => part.startsWith(`${heading}\n`)) ?? ''
  const commands = [...section.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block = '']) => block).join('')
  t.not(commands, '', heading)
  const auth = `auth=x-access-tokens: ${c.token}`
  const url = `url=http://127.0.0.1:${c.daemon.port}`
  const script = `set -eu\ncd ${c.directory}\n${commands.replaceAll('curl ', "curl -w '\\n' ")}`
  return output('env', [auth, url, 'sh', '-c', script])
}

// rules 12.1 to 12.8
t.test("the commands of docs/day.md, as they are typed, in the page's order", async t => {
  const added = await typed('Twenty new nodes')
  t.match(added, /dry run, nothing was changed: 3 node create/)
  t.match(added, /"message":"3 nodes created, 0 changed"/)
  const there = await typed('What is there')
  t.match(there, /^name +group +osimage/m)
  t.match(there, /^node003 +10\.141\.\S+ +rack 2$/m)
  t.match(there, /^node002,compute\r?$/m)
  t.match(there, /^ {6}"node001": \{$/m)
  const change = await typed('What will this change do')
  t.match(
    change,
    /nothing was changed: 2 node update[\s\S]*"2 nodes updated"[\s\S]*nothing was changed: 1 group/
  )
  t.match(await typed('Which nodes run something else than they should'), /^name +osimage$/m)
  const why = await typed('Why did this one not come up')
  t.match(why, /^node001 +- +-/m)
  t.match(why, /node001/)
  t.match(await typed('Off and on again'), /request_id|message/)
  const gone = await typed('Gone for good')
  t.match(gone, /2 node delete[\s\S]*"2 nodes deleted"/)
  t.same(Object.keys((await c.get('/config/node')).body.config.node), ['node001'])
  t.notMatch([added, there, change, why, gone].join(''), /is not known|there is no/)
})
