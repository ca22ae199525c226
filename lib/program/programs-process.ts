import { ProgramError, run } from './program.js'
import type { Outcome, ProcessMessage, RunMessage } from './programs.js'

// The process that programs.ts starts. When the connection closes, it ends its programs and then itself.
const running = new Map<number, AbortController>()

process.on('message', (told: ProcessMessage) => {
  if ('stop' in told) running.get(told.id)?.abort()
  else void perform(told)
})
process.on('disconnect', () => {
  for (const controller of running.values()) controller.abort()
})

async function perform({ id, program, args, options }: RunMessage): Promise<void> {
  const controller = new AbortController()
  running.set(id, controller)
  const outcome = await run(program, args, { ...options, signal: controller.signal }).then(
    ({ stdout }): Outcome => ({ stdout }),
    (error: Error): Outcome =>
      error instanceof ProgramError
        ? { why: error.kind, stderr: error.stderr, message: error.message }
        : { why: 'failed', stderr: '', message: error.message }
  )
  running.delete(id)
  // The parent may be gone.
  if (process.connected) process.send?.({ id, outcome }, () => {})
}
