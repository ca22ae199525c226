import { createInterface } from 'node:readline'
import { StringDecoder } from 'node:string_decoder'

/** Asks on the terminal. No answer, Ctrl-C and Ctrl-D mean no. */
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

/** Bytes that were typed ahead of the next question. */
let pending: number[] = []

/** Reads a line without echo. The question goes to stderr, not to the result. Throws Error on Ctrl-C. */
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

/** Passes each typed key on, also Ctrl-C. Returns a function that gives the terminal back. */
export function typed(take: (text: string) => void): () => void {
  const { stdin } = process
  const decoder = new StringDecoder('utf8')
  const onData = (bytes: Buffer) => take(decoder.write(bytes))
  stdin.setRawMode(true)
  stdin.on('data', onData)
  return () => {
    stdin.off('data', onData)
    stdin.setRawMode(false)
    stdin.pause()
  }
}

/** Moves pending bytes to `typed` and obeys editing keys. Returns true at the end of the line. */
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

/** Removes a UTF-8 character: its first byte and the continuation bytes (10xxxxxx). */
function removeCharacter(typed: number[]): void {
  while (typed.length > 0 && ((typed.pop() ?? 0) & 0xc0) === 0x80);
}
