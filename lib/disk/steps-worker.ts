// The thread of DiskThread, which runs disk steps (steps.ts).
import { answerQuestions } from '../base/thread.js'
import { type DiskStep, type Failure, runSteps, StepError } from './steps.js'

answerQuestions((steps: readonly DiskStep[]): Failure | readonly string[] => {
  try {
    return runSteps(steps)
  } catch (error) {
    if (!(error instanceof StepError)) throw error
    const { message, step, code, errno, kept } = error
    return { message, step, code, errno, kept }
  }
})
