import { createInterface } from 'node:readline'

/** Asks on the terminal; no answer, Ctrl-C and Ctrl-D are a no. */
export async function confirmed(question: string): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  const answer = await new Promise<string>(resolve => {
    terminal.once('close', () => resolve(''))
    terminal.question(question, resolve)
  })
  terminal.close()
  return /^y(es)?$/i.test(answer.trim())
}
