// The thread of DiskThread, which runs disk steps (steps.ts).
import { parentPort } from 'node:worker_threads'
import { type DiskStep, runSteps, StepError } from './steps.js'

parentPort?.on('message', (steps: readonly DiskStep[]) => {
  parentPort?.postMessage(failureOf(steps))
})

/** Sent as an object, because an error loses its fields between threads. */
function failureOf(steps: readonly DiskStep[]) {
  try {
    runSteps(steps)
    return undefined
  } catch (error) {
    if (!(error instanceof StepError)) throw error
    const { message, step, code, errno } = error
    return { message, step, code, errno }
  }
}
