import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { FileMedium } from '../../lib/store/files/medium.js'
import { Store } from '../../lib/store/store.js'
import { start } from '../support/child.js'
import { onDisk } from '../support/scratch.js'
import { optionsFor } from './fixtures.js'
import { openJobs, openLines, openValues } from './node-values.js'

/** Four writers of objects, one of many at once, five of records. */
const kinds = ['s1', 's2', 'm1', 'm2', 'many', 'r1', 'r2', 'b1', 'b2', 'w1']
const rounds = Number(process.env.SVCD_KILL_ROUNDS ?? (process.env.SVCD_LONG ? 200 : 20))

/** Values by name, as a start after the kill finds them. */
async function valuesFound(directory: string): Promise<Map<string, number>> {
  const found = new Map<string, number>()
  const medium = new FileMedium({ directory })
  const store = await Store.open({ ...optionsFor(directory), medium })
  for (const name of store.current.names('counter'))
    found.set(name, store.current.get('counter', name)?.value ?? 0)
  for (const [name, value] of (await openValues(medium, false)).values) found.set(name, Number(value))
  for (const [name, lines] of (await openLines(medium, 'node-boots')).lines) {
    found.set(name, Number(lines.at(-1)))
    // None twice, and none left out.
    if (lines.some((line, i) => i > 0 && Number(line) !== Number(lines[i - 1]) + 1))
      found.set(name, Number.NaN)
  }
  for (const [name, value] of (await openJobs(medium)).values) found.set(name, value)
  await store.close()
  return found
}

function halfChanges(found: ReadonlyMap<string, number>): string[] {
  const many = Array.from({ length: 200 }, (_, i) => `many-${i}`).filter(
    member => found.get(member) !== found.get('many')
  )
  const several = ['m1', 'm2'].flatMap(name => {
    const value = found.get(name)
    const expected = value === undefined || value % 3 === 0 ? undefined : value
    return ['a', 'b', 'c'].map(member => `${name}-${member}`).filter(member => found.get(member) !== expected)
  })
  return [...several, ...many]
}

// rules 11.1
t.test(`kill -9 at ${rounds} random moments`, { timeout: 300_000 + rounds * 5000 }, async t => {
  const directory = onDisk(t)
  const acknowledged = new Map<string, number>()
  const lost: string[] = []
  const halves: string[] = []
  let [unfinished, tables] = [0, 0]
  // Further rounds until what a kill may leave was seen: with luck none of the first ones leaves it.
  const isSeen = () => unfinished > 0 && acknowledged.size === kinds.length
  for (let round = 1; round <= rounds || (!isSeen() && round < 20 * rounds); round++) {
    const program = start(process.execPath, [join(import.meta.dirname, 'writer-program.js'), directory])
    t.teardown(() => program.kill())
    // Every fourth is killed while it starts, where it may be finishing what the one before it left.
    const starting = round % 4 === 0
    if (!starting) t.equal(await program.says(/^open$/m), 'open', `round ${round}: starts without a hand`)
    // A busy machine may take longer than the pause for the first changes: some kills come after them.
    if (round % 4 === 2) for (const name of kinds) await program.says(new RegExp(`^${name} `, 'm'))
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
    for (const [name, value] of acknowledged)
      if (!((found.get(name) ?? 0) >= value))
        lost.push(`round ${round}: ${name} was acknowledged with ${value}, and is ${found.get(name)}`)
    halves.push(...halfChanges(found).map(name => `round ${round}: ${name}`))
    if (existsSync(join(directory, 'node-boots.journal'))) tables++
  }
  t.same(lost, [], 'nothing that was acknowledged is lost, and no line of records is twice')
  t.same(halves, [], 'no half change')
  t.comment(
    `acknowledged: ${[...acknowledged].join(' ')}; ${unfinished} rounds left a log; lost ${lost.length}, half done ${halves.length}`
  )
  t.equal(acknowledged.size, kinds.length, 'each writer had changes acknowledged')
  t.ok(tables > 0, 'tables were written')
  t.ok(unfinished > 0, 'some kills came between a commit and its files')
})
