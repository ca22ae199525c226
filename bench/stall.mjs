// Loaded into a daemon under measurement: tells the longest stall of its event loop since it was asked last.
import { monitorEventLoopDelay } from 'node:perf_hooks'

const delay = monitorEventLoopDelay({ resolution: 1 })
delay.enable()
process.on('message', () => {
  process.send({ stall: delay.max / 1e6 })
  delay.reset()
})
