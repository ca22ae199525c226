// The thread that carries out steps on the disk (steps.ts) for DiskThread.
import { parentPort } from 'node:worker_threads'
import { carryOut, type DiskStep, StepError } from './steps.js'

parentPort?.on('message', (steps: readonly DiskStep[]) => {
  parentPort?.postMessage(failureOf(steps))
})

/** An error loses its fields on its way between threads: they are sent as an object. */
function failureOf(steps: readonly DiskStep[]) {
  try {
    carryOut(steps)
    return undefined
  } catch (error) {
    if (!(error instanceof StepError)) throw error
    const { message, step, code, errno } = error
    return { message, step, code, errno }
  }
}
