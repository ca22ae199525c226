import { answerQuestions } from '../base/thread.js'
import { renderJob } from './render-job.js'

// The thread of renderInThread.
answerQuestions(renderJob)
