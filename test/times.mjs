// How long each test file took in its last run: .cache/test-times.json gives the order of the next run.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

/** Path of the record, from the checkout. */
export const record = '.cache/test-times.json'

/** Returns the milliseconds of each file of a run, file → ms, by the lines of its TAP. */
export const timesIn = lines =>
  Object.fromEntries(
    lines.flatMap(line => {
      const [, file, ms] = /^(?:not )?ok \d+ - (\S+).* # time=([\d.]+)ms/.exec(line) ?? []
      return file === undefined ? [] : [[file, Number(ms)]]
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

/**
 * Returns the files in the order of a run: the slowest first, so that nothing waits for one of them at the
 * end. Files without a time come before all others, the largest first.
 */
export function ordered(files, times, sizeOf) {
  const rank = file => [times[file] ?? Infinity, file in times ? 0 : sizeOf(file)]
  const ranked = files.map(file => [file, ...rank(file)])
  return ranked
    .sort(([a, msA, sizeA], [b, msB, sizeB]) => (msA === msB ? sizeB - sizeA || (a < b ? -1 : 1) : msB - msA))
    .map(([file]) => file)
}

const seconds = ms => (ms / 1000).toFixed(1).padStart(7)

/** Returns lines for the ten slowest files and the sum of all; none for a single file. */
export function slowest(times) {
  const sorted = Object.entries(times).sort(([, a], [, b]) => b - a)
  if (sorted.length < 2) return []
  const sum = sorted.reduce((total, [, ms]) => total + ms, 0)
  return [
    'the slowest files, in seconds:',
    ...sorted.slice(0, 10).map(([file, ms]) => `${seconds(ms)}  ${file}`),
    `${seconds(sum)}  all ${sorted.length} files, of which several run at a time`
  ]
}
