// Requests that are on disk when they are answered, and the least that makes as much durable.
import { closeSync, fdatasyncSync, fsyncSync, mkdirSync, openSync, renameSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { nameOf, nodeOf } from './cluster.mjs'
import { temporary } from './harness.mjs'

/** Times per second that `work` (given a running number) can be done in `ms`. */
function loop(ms, work) {
  const from = performance.now()
  let done = 0
  while (performance.now() - from < ms) work(done++)
  return (done * 1000) / (performance.now() - from)
}

/** One append and one fdatasync for each line, to a file of its own. */
export function appends() {
  const file = openSync(join(temporary, 'appended'), 'a')
  const line = `${'x'.repeat(119)}\n`
  return ms =>
    loop(ms, () => {
      writeSync(file, line)
      fdatasyncSync(file)
    })
}

/** A new file for each: write, fsync, rename, fsync of the directory. */
export function newFiles() {
  const directory = join(temporary, 'written')
  mkdirSync(directory)
  const handle = openSync(directory, 'r')
  let count = 0
  return ms =>
    loop(ms, () => {
      const path = join(directory, `${count}.json`)
      const file = openSync(`${path}.part`, 'w')
      writeSync(file, `${JSON.stringify(nodeOf(count++), null, 2)}\n`)
      fsyncSync(file)
      closeSync(file)
      renameSync(`${path}.part`, path)
      fsyncSync(handle)
    })
}

const STEPS = ['started', 'partscript', 'download', 'unpack', 'network', 'completed']

/** A status report of each step for each of the first `count` nodes, as their install scripts send them. */
export function reportsOf(daemon, count) {
  const requests = STEPS.flatMap(step =>
    Array.from({ length: count }, (_, i) => {
      const body = JSON.stringify({ monitor: { status: { [nameOf(i)]: { state: `installer.${step}` } } } })
      return daemon.raw('POST', `/monitor/node/${nameOf(i)}`, body)
    })
  )
  return Promise.all(requests)
}

/**
 * So long creations are asked for before any is counted: V8 has compiled all that they run after some
 * thousands only.
 */
export const WARM_MS = 4000

/** Requests that create `count` nodes, the first one with the number `from`. */
export const creations = (daemon, from, count) =>
  Promise.all(
    Array.from({ length: count }, (_, i) => nodeOf(from + i)).map(node =>
      daemon.raw('POST', `/config/node/${node.name}`, JSON.stringify(node))
    )
  )
