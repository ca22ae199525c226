import { parentPort, workerData } from 'node:worker_threads'
import { type Contents, measure } from './measure.js'

// The thread of measureAside.
parentPort?.postMessage({ result: measure(workerData as Contents, true) })
