import { parentPort, workerData } from 'node:worker_threads'
import { renderJob } from './render-job.js'

// The thread that render.ts starts: one job, one answer.
parentPort?.postMessage(renderJob(workerData))
