// Shared by the cases: children that end with them, rounds in turn, and figures.
import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const here = name => fileURLToPath(new URL(name, import.meta.url))
const children = new Set()
/** A directory of this process, taken away at its end with all that it started. */
export const temporary = mkdtempSync(join(process.env.BENCH_DIRECTORY ?? tmpdir(), 'svcd-bench-'))
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1))
process.on('disconnect', () => process.exit(1))
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(temporary, { recursive: true, force: true, maxRetries: 3 })
})

/** Starts a program that ends with this process. */
export function program(command, args, options = {}) {
  const child = spawn(command, args, options)
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

/** Starts a script of this directory, to which messages can be sent. */
export const start = (file, { args = [], execArgv = [], output = 'inherit', env = process.env } = {}) =>
  program(process.execPath, [...execArgv, here(file), ...args], {
    stdio: ['ignore', output, output, 'ipc'],
    env
  })

/**
 * The next message of a child; it throws what the child names as `error`, and when the child ends without
 * one.
 */
export const answerOf = child =>
  new Promise((resolve, reject) => {
    const ended = code => reject(new Error(`${child.spawnargs.at(-1)} ended with ${code}`))
    child.once('exit', ended)
    child.once('message', message => {
      child.off('exit', ended)
      if (message.error === undefined) resolve(message)
      else reject(new Error(message.error))
    })
  })

export function ask(child, message) {
  child.send(message)
  return answerOf(child)
}

/** Milliseconds of CPU time of a process and all its threads so far. */
export const cpuOf = pid =>
  readdirSync(`/proc/${pid}/task`)
    .map(thread => Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]))
    .reduce((sum, nanoseconds) => sum + nanoseconds / 1e6, 0)

/** Memory of a process in MiB: `VmRSS` now, `VmHWM` at most so far. */
export const memoryOf = (pid, what = 'VmRSS') =>
  Number(new RegExp(`^${what}:\\s+(\\d+) kB`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) /
  1024

export async function timed(work) {
  const from = performance.now()
  await work()
  return performance.now() - from
}

/**
 * Runs each of `series` (functions of the round's number) in turn, `rounds` times; gives the results of each.
 */
export async function inTurn(rounds, series) {
  const results = series.map(() => [])
  for (let round = 0; round < rounds; round++)
    for (const [i, work] of series.entries()) results[i].push(await work(round))
  return results
}
