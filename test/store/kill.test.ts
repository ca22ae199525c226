import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { FileMedium } from '../../lib/store/files/medium.js'
import { Store } from '../../lib/store/store.js'
import { start } from '../support/child.js'
import { onDisk } from '../support/scratch.js'
import { optionsFor } from './fixtures.js'
import { openValues } from './node-values.js'

const rounds = Number(process.env.SVCD_KILL_ROUNDS ?? (process.env.SVCD_LONG ? 200 : 20))

/** Values by name, as a start after the kill finds them. */
async function valuesFound(directory: string): Promise<Map<string, number>> {
  const found = new Map<string, number>()
  const medium = new FileMedium({ directory })
  const store = await Store.open({ ...optionsFor(directory), medium })
  for (const name of store.current.names('counter'))
    found.set(name, store.current.get('counter', name)?.value ?? 0)
  for (const [name, value] of (await openValues(medium)).values) found.set(name, Number(value))
  await store.close()
  return found
}

function halfChanges(found: ReadonlyMap<string, number>): string[] {
  return ['m1', 'm2'].flatMap(name => {
    const value = found.get(name)
    const expected = value === undefined || value % 3 === 0 ? undefined : value
    return ['a', 'b', 'c'].map(member => `${name}-${member}`).filter(member => found.get(member) !== expected)
  })
}

// rules 11.1
t.test(`kill -9 at ${rounds} random moments`, { timeout: 60_000 + rounds * 5000 }, async t => {
  const directory = onDisk(t)
  const acknowledged = new Map<string, number>()
  let unfinished = 0
  // Further rounds until what a kill may leave was seen: with luck none of the first ones leaves it.
  const isSeen = () => unfinished > 0 && acknowledged.size === 6
  for (let round = 1; round <= rounds || (!isSeen() && round < 20 * rounds); round++) {
    const program = start(process.execPath, [join(import.meta.dirname, 'writer-program.js'), directory])
    t.teardown(() => program.kill())
    // Every fourth is killed while it starts, where it may be finishing what the one before it left.
    const starting = round % 4 === 0
    if (!starting) t.equal(await program.says(/^open$/m), 'open', `round ${round}: starts without a hand`)
    await setTimeout(Math.random() * 150)
    await program.kill()
    const { stdout } = await program.ended
    for (const line of stdout.split('\n').slice(0, -1)) {
      const [name = '', value] = line.split(' ')
      if (value !== undefined) acknowledged.set(name, Number(value))
    }
    const log = join(directory, 'log')
    if (existsSync(log) && readdirSync(log).length > 0) unfinished++
    // Every third round the next program itself finds the state as the kill left it.
    if (round % 3 === 0 && round < rounds) continue
    const found = await valuesFound(directory)
    for (const [name, value] of acknowledged) {
      if ((found.get(name) ?? 0) < value) {
        t.fail(`round ${round}: ${name} was acknowledged with ${value}, and is ${found.get(name)}`)
      }
    }
    t.same(halfChanges(found), [], `round ${round}: no half change`)
  }
  t.comment(`acknowledged: ${[...acknowledged].join(' ')}; ${unfinished} rounds left a log`)
  t.equal(acknowledged.size, 6, 'all six kinds of change were acknowledged')
  t.ok(unfinished > 0, 'some kills came between a commit and its files')
})
