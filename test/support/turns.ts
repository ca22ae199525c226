import { openSync, readSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'

/** Milliseconds of the processor that the main thread has used: other programs do not count. */
export function usage(): () => number {
  const file = openSync(`/proc/self/task/${process.pid}/schedstat`, 'r')
  const text = Buffer.alloc(100)
  return () => Number.parseInt(text.toString('latin1', 0, readSync(file, text, 0, 100, 0)), 10) / 1e6
}

/** The longest turn of the event loop while `work` goes on, in milliseconds of the processor. */
export async function longestTurn(work: () => Promise<unknown>): Promise<number> {
  const used = usage()
  let busy = true
  let before = used()
  let longest = 0
  const turn = () => {
    const now = used()
    longest = Math.max(longest, now - before)
    before = now
    if (busy) setImmediate(turn)
  }
  turn()
  await work()
  // The turn in which it ends counts too.
  await nextTurn()
  busy = false
  return longest
}

/** Milliseconds of the processor that a plain loop takes, which tells how fast this machine is. */
export function yardstick(): number {
  const used = usage()
  const before = used()
  const names = new Set<string>()
  for (let i = 0; i < 100_000; i++) names.add(`m${i}`)
  return used() - before
}
