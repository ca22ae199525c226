// Loaded into a daemon under measurement: tells the longest stall of its event loop since it was asked last, and
// the longest without the time in which V8's garbage collector stopped it.
import { monitorEventLoopDelay, PerformanceObserver } from 'node:perf_hooks'

const RESOLUTION_MS = 1
/** Shorter stalls are not looked at. */
const LEAST_MS = 5

const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
delay.enable()
let stalls = []
let pauses = []
let lastMs = performance.now()
setInterval(() => {
  const now = performance.now()
  if (now - lastMs - RESOLUTION_MS > LEAST_MS) stalls.push({ from: lastMs + RESOLUTION_MS, to: now })
  lastMs = now
}, RESOLUTION_MS).unref()
const keep = entries => {
  for (const { startTime, duration } of entries) pauses.push({ from: startTime, to: startTime + duration })
}
const observer = new PerformanceObserver(list => keep(list.getEntries()))
observer.observe({ entryTypes: ['gc'] })

/** The part of a stall in which the collector ran; its own steps may overlap. */
function collected({ from, to }) {
  let [sum, upTo] = [0, from]
  for (const pause of pauses) {
    const [begin, end] = [Math.max(pause.from, upTo), Math.min(pause.to, to)]
    if (end <= begin) continue
    sum += end - begin
    upTo = end
  }
  return sum
}

process.on('message', () => {
  keep(observer.takeRecords())
  pauses.sort((a, b) => a.from - b.from)
  const longest = (sum, value) => Math.max(sum, value)
  process.send({
    stall: delay.max / 1e6,
    own: stalls.map(stall => stall.to - stall.from - collected(stall)).reduce(longest, 0),
    pause: pauses.map(({ from, to }) => to - from).reduce(longest, 0)
  })
  delay.reset()
  stalls = []
  pauses = []
})
