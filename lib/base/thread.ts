import { parentPort, type ResourceLimits, Worker } from 'node:worker_threads'

/** The maximum delay of a timer. Each thread loads this file, so it imports no other. */
export const LONGEST_MS = 2 ** 31 - 1

/** A message of a thread: its progress (0..1), and at the end its answer. */
type Report<Answer> = { readonly progress: number } | { readonly answer: Answer }

type Progress = (fraction: number) => void

interface Pending<Answer> {
  resolve(answer: Answer): void
  reject(error: Error): void
  readonly progress: Progress | undefined
}

/**
 * A worker thread that answers questions in their order. It starts with the first one, and does not keep the
 * process alive between them. The next question after its end starts another one.
 */
export class Thread<Question, Answer> {
  #worker: Worker | undefined
  /** A thread that reported an error may still be ending. */
  #last: Worker | undefined
  /** In the order of questions, which is that of the answers. */
  #pending: Pending<Answer>[] = []

  /** `file`: a module that calls `answerQuestions`. */
  constructor(
    private readonly file: URL,
    private readonly resourceLimits: ResourceLimits = {}
  ) {}

  get isRunning(): boolean {
    return this.#worker !== undefined
  }

  /** Rejects if the thread ends before its answer: whether the work is done is then unknown. */
  ask(question: Question, progress?: Progress): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#worker ??= this.#start()
      this.#worker.postMessage(question)
      if (this.#pending.push({ resolve, reject, progress }) === 1) this.#worker.ref()
    })
  }

  /** Ends the thread, and rejects what it has not answered. It holds no file when this resolves. */
  async stop(): Promise<void> {
    const worker = this.#worker
    if (worker) this.#ended(worker, new Error('was stopped'))
    await this.#last?.terminate()
  }

  #start(): Worker {
    const worker = new Worker(this.file, { execArgv: [], resourceLimits: this.resourceLimits })
    this.#last = worker
    worker.on('message', (report: Report<Answer>) => {
      // Answers of a dead thread may arrive after its error.
      if (this.#worker !== worker) return
      if ('progress' in report) return this.#pending[0]?.progress?.(report.progress)
      const asked = this.#pending.shift()
      if (this.#pending.length === 0) worker.unref()
      asked?.resolve(report.answer)
    })
    worker.on('error', error => this.#ended(worker, error))
    worker.once('exit', status => this.#ended(worker, new Error(`its thread ended with ${status}`)))
    return worker
  }

  #ended(worker: Worker, error: Error): void {
    if (this.#worker !== worker) return
    this.#worker = undefined
    for (const { reject } of this.#pending.splice(0)) reject(error)
  }
}

/** In a thread: answers each question by `work`, which may report its progress. */
export function answerQuestions<Question, Answer>(
  work: (question: Question, progress: Progress) => Answer | Promise<Answer>
): void {
  const post = (report: Report<Answer>) => parentPort?.postMessage(report)
  parentPort?.on('message', async (question: Question) =>
    post({ answer: await work(question, progress => post({ progress })) })
  )
}

interface RunOptions {
  /** For messages: "the builtin packer". */
  readonly name: string
  readonly signal?: AbortSignal | undefined
  readonly timeLimitMs?: number
  readonly progress?: Progress
}

/** Asks a thread of its own. Throws Error for a failure, an abort, or the time limit; it has ended then. */
export async function runInThread<Answer>(
  file: URL,
  question: unknown,
  options: RunOptions
): Promise<Answer> {
  const { name, signal, timeLimitMs = LONGEST_MS, progress } = options
  if (signal?.aborted) throw new Error(`${name} was stopped before it began`)
  const thread = new Thread<unknown, Answer>(file)
  let stop = () => {}
  let timer: NodeJS.Timeout | undefined
  try {
    return await new Promise<Answer>((resolve, reject) => {
      const fail = (what: string, cause?: unknown) => reject(new Error(`${name} ${what}`, { cause }))
      stop = () => fail('was stopped')
      signal?.addEventListener('abort', stop)
      const limit = Math.min(timeLimitMs, LONGEST_MS)
      timer = setTimeout(() => fail(`took longer than ${limit / 1000} s and was ended`), limit)
      thread.ask(question, progress).then(resolve, error => fail(`failed: ${error.message}`, error))
    })
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', stop)
    await thread.stop()
  }
}
