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

const control = { c: 0x03, d: 0x04, backspace: 0x08, u: 0x15, delete: 0x7f, newline: 0x0a, return: 0x0d }

/** What was typed before the next question. */
let pending: number[] = []

/**
 * Asks on the terminal without echo, until Enter or Ctrl-D, and gives the bytes typed. The question goes to stderr,
 * so that stdout holds only the result. Throws an Error on Ctrl-C.
 */
export async function askHidden(question: string): Promise<Uint8Array> {
  const { stdin, stderr } = process
  stdin.setRawMode(true)
  stderr.write(question)
  const typed: number[] = []
  try {
    if (take(typed)) return Uint8Array.from(typed)
    for await (const chunk of stdin.iterator({ destroyOnReturn: false })) {
      pending = [...(chunk as Buffer)]
      if (take(typed)) break
    }
    return Uint8Array.from(typed)
  } finally {
    stdin.setRawMode(false)
    stdin.pause()
    stderr.write('\n')
  }
}

/** Moves what is pending to `typed`, as a line editor would; true at the end of the line. */
function take(typed: number[]): boolean {
  for (let byte = pending.shift(); byte !== undefined; byte = pending.shift()) {
    if (byte === control.c) throw new Error('interrupted')
    if (byte === control.newline || byte === control.return || byte === control.d) return true
    if (byte === control.u) typed.length = 0
    else if (byte === control.backspace || byte === control.delete) removeCharacter(typed)
    else typed.push(byte)
  }
  return false
}

/** A character of UTF-8 is its first byte and those that continue it (10xxxxxx). */
function removeCharacter(typed: number[]): void {
  while (typed.length > 0 && ((typed.pop() ?? 0) & 0xc0) === 0x80);
}
