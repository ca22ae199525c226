// How long each test file took in its last run: .cache/test-times.json gives the order of the next run.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

/** Path of the record, from the checkout. */
export const record = '.cache/test-times.json'

/** Returns this process's seconds of CPU, with those of the programs that it waited for (proc_pid_stat(5)). */
export function cpuSeconds() {
  const fields = readFileSync('/proc/self/stat', 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / 100
}

/** Returns the milliseconds of each file of a run, file → ms, by the lines of its TAP. */
export const timesIn = lines =>
  Object.fromEntries(
    lines.flatMap(line => {
      const [, file, ms] = /^ {4}(?:not )?ok \d+ - (\S+).* # time=([\d.]+)ms/.exec(line) ?? []
      return file === undefined ? [] : [[file, Number(ms)]]
    })
  )

/** Returns the seconds of CPU of each file of a run. */
export const cpuIn = lines =>
  Object.fromEntries(
    lines.flatMap(line => {
      const [, seconds, file] = /^ {4}# cpu=([\d.]+) (\S+)$/.exec(line) ?? []
      return file === undefined ? [] : [[file, Number(seconds)]]
    })
  )

/** Returns the record, {} when there is none or it cannot be read. */
export function readTimes(path = record) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'))
  } catch {
    return {}
  }
}

/** Puts times into the record. Other runs may write it meanwhile, so it is replaced as a whole. */
export function keepTimes(times, path = record) {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(`${path}.${process.pid}`, JSON.stringify({ ...readTimes(path), ...times }, null, 1))
  renameSync(`${path}.${process.pid}`, path)
}

/** A file that takes longer has a process of its own, and files share one until they take this long. */
const sharedMs = 20_000
/** The time that is assumed for a file without one. */
const usualMs = 2000

/** Returns lists of files for a process each: neighbours share one, unless they are long or `isAlone` says so. */
export function shared(files, times, isAlone) {
  const msOf = file => (isAlone(file) ? Infinity : (times[file] ?? usualMs))
  const groups = []
  let sum = Infinity
  for (const file of files.filter(file => msOf(file) <= sharedMs)) {
    sum += msOf(file)
    if (sum <= sharedMs) groups.at(-1).push(file)
    else {
      groups.push([file])
      sum = msOf(file)
    }
  }
  return [...files.filter(file => msOf(file) > sharedMs).map(file => [file]), ...groups]
}

/**
 * Returns the groups of files in the order of a run: the slowest first, so that nothing waits for one of them
 * at the end. A group with a file without a time comes before all others, the largest first.
 */
export function ordered(groups, times, sizeOf) {
  const total = (group, measure) => group.reduce((sum, file) => sum + measure(file), 0)
  const ranked = groups.map(group => {
    const ms = total(group, file => times[file] ?? Infinity)
    return { group, ms, size: ms === Infinity ? total(group, sizeOf) : 0 }
  })
  return ranked
    .sort((a, b) => (a.ms === b.ms ? b.size - a.size || (a.group[0] < b.group[0] ? -1 : 1) : b.ms - a.ms))
    .map(({ group }) => group)
}

const seconds = ms => (ms / 1000).toFixed(1).padStart(7)

/**
 * Returns lines for the ten slowest files, with their seconds of CPU beside, and the sum of all; none for a
 * single file.
 */
export function slowest(times, cpu = {}) {
  const sorted = Object.entries(times).sort(([, a], [, b]) => b - a)
  if (sorted.length < 2) return []
  const sum = sorted.reduce((total, [, ms]) => total + ms, 0)
  return [
    'the slowest files, in seconds, and their CPU:',
    ...sorted.slice(0, 10).map(([file, ms]) => `${seconds(ms)}${seconds(1000 * (cpu[file] ?? 0))}  ${file}`),
    `${seconds(sum)}  all ${sorted.length} files, of which several run at a time`
  ]
}
