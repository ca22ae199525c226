import { existsSync, utimesSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import type { Test } from 'tap'
import type { Client } from '../support/client.js'
import type { Daemon } from '../support/daemon.js'
import { proof } from '../support/proof.js'
import { isWritten } from '../support/stored-texts.js'
import { until } from '../support/until.js'
import { damage, Known, prepare, WRITERS } from './writers.js'

/**
 * Kills a daemon that much is written to, again and again: what was acknowledged has to be there after each
 * start, and nothing by half (rules 11.1). It makes more rounds, up to 20 times as many, until all that a kill
 * may leave was seen. In every `loneEvery`-th round one of the first three writers writes alone.
 */
export async function killRounds(t: Test, program: Daemon, rounds: number, loneEvery = 4): Promise<void> {
  const first = program.client()
  await prepare(first)
  first.close()
  const all = WRITERS.map(writer => new Known(writer))
  let unfinished = 0
  let starting = 0
  let alone = 0
  let tried = 0
  const figures = { lost: 0, halfDone: 0, backMs: 0 }
  const isSeen = () => unfinished > 0 && alone > 0 && all.every(({ acknowledged }) => acknowledged > 0)
  for (let round = 1; round <= rounds || (!isSeen() && round < 20 * rounds); round++) {
    tried = round
    // Some changes have a write of the log each, with no other file on its way.
    const lone = round % loneEvery === 0 ? all[(round / loneEvery) % 3] : undefined
    if (lone) await until(() => isWritten(program.path('state')))
    const some = lone ? [lone] : all
    const clients = some.map(() => program.client())
    const before = some.map(({ acknowledged }) => acknowledged)
    const writing = Promise.all(some.map((known, i) => known.write(clients[i] as Client)))
    // Also in a daemon so slow that the first answers take longer than this, some rounds come to the middle
    // of the writing.
    if (round % 2 === 0)
      await until(
        () => some.every(({ acknowledged }, i) => acknowledged > (before[i] as number)),
        () => some.map(({ writer, acknowledged }) => [writer.name, acknowledged])
      )
    await delay(Math.random() * 250)
    await program.kill()
    t.strictSame((await writing).filter(Boolean), [], `round ${round}: nothing was refused`)
    for (const client of clients) client.close()
    if (!isWritten(program.path('state'))) unfinished++
    if (lone) alone++
    if (round % 5 === 0) {
      // Killed again while it starts, where it may be finishing what was left.
      const starts = program.launch()
      await delay(Math.random() * 400)
      if (!starts.output().includes('next, ask')) starting++
      await starts.kill()
    }
    // A lock that looks as if it had just been taken, for hours: nobody waits until it is stale.
    const lock = program.path('state', 'lock')
    const later = Date.now() / 1000 + 3600
    if (existsSync(lock)) utimesSync(lock, later, later)
    const from = performance.now()
    await program.start()
    figures.backMs = Math.max(figures.backMs, performance.now() - from)
    const reader = program.client()
    const { gone, halves } = await damage(reader, all)
    reader.close()
    figures.lost += gone.length
    figures.halfDone += halves.length
    t.strictSame(
      [...gone, ...halves],
      [],
      `round ${round}: what was acknowledged is there, and nothing by half`
    )
  }
  await program.kill()
  proof('kill -9', { tried, crashes: 0, ...figures })
  const counts = all.map(({ writer, acknowledged }) => `${writer.name} ${acknowledged}`)
  t.comment(
    `${counts.join(', ')}; ${unfinished} kills left files behind the log, ${starting} came during a start`
  )
  for (const { writer, acknowledged } of all) t.ok(acknowledged > 0, `acknowledged: ${writer.name}`)
  t.ok(unfinished > 0, 'some kills came between the log and the files')
  t.ok(alone > 0, 'some came while one object was changed at a time')
}
