import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { debianKernel } from '../support/kernel.js'
import { checkout, compiled, node, programEnv } from '../support/programs.js'

const run = promisify(execFile)

// Nobody, with one right that says nothing about networks: to read a checkout below /root or a closed home.
const asNobody = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'].concat([
  '--inh-caps=-all,+dac_read_search',
  '--ambient-caps=-all,+dac_read_search',
  '--bounding-set=-all,+dac_read_search'
])

t.test('make demo installs a machine without root', async t => {
  // Nobody may not write the cache.
  await debianKernel()
  const [program = '', ...args] = [
    ...(process.getuid?.() === 0 ? asNobody : []),
    ...[...node, join(compiled, 'test/demo/demo.js')]
  ]
  const { stdout, stderr } = await run(program, args, {
    cwd: checkout,
    env: programEnv()
  }).catch(error => error)
  t.equal(stderr, '', 'nothing went wrong', { stdout })
  t.match(stdout, /\/boot\/search\/mac\/52%3A54%3A00%3A14%3A00%3A01\.{3,} ok/, 'the console was shown')
  t.match(stdout, /What svcd knows of node001: .*installer\.completed/)
  t.match(stdout, /The disk holds what was packed/)
})
