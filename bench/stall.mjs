// Loaded into a daemon under measurement: tells what it spent, and its longest stall, since it was asked last.
import { monitorEventLoopDelay } from 'node:perf_hooks'

const delay = monitorEventLoopDelay({ resolution: 1 })
delay.enable()
let before = process.cpuUsage()
process.on('message', () => {
  const now = process.cpuUsage()
  const cpu = (now.user + now.system - before.user - before.system) / 1000
  before = now
  process.send({ cpu, stall: delay.max / 1e6 })
  delay.reset()
})
