import { escapeControls } from '../base/log.js'
import { type Problem, problemText } from '../config/problem.js'

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program listens there; stop it, or give svcd another port',
  EADDRNOTAVAIL: 'this machine does not have that address',
  EACCES: 'permission denied'
}

/** Formats an error as `file:line: message` lines or a sentence, never a stack trace; escapes controls. */
export function failureLines(error: unknown): string[] {
  return linesOf(error).map(escapeControls)
}

function linesOf(error: unknown): string[] {
  if (!(error instanceof Error)) return [`svcd: ${String(error)}`]
  const { problems } = error as { problems?: unknown }
  if (Array.isArray(problems) && problems.every(isProblem)) return problems.map(problemText)
  return [`svcd: ${sentence(error).replace(/\s*\n\s*/g, '; ')}`]
}

/** `key`: the key of the ini for the listening address. */
function sentence(error: NodeJS.ErrnoException & { address?: string; port?: number; key?: string }): string {
  const reason = reasons[error.code ?? '']
  if (error.syscall !== 'listen' || !reason) return error.message || error.name
  const { key = '[http] listen', address = '', port = '' } = error
  const wayOut =
    error.code === 'EADDRINUSE' ? ` (${key} in the ini, or --set ${key.replace(/^\[(\w+)\] /, '$1.')}=…)` : ''
  return `cannot listen on ${key}, ${address} port ${port}: ${reason}${wayOut}`
}

function isProblem(value: unknown): value is Problem {
  const { file, message } = (value ?? {}) as Partial<Record<keyof Problem, unknown>>
  return typeof file === 'string' && typeof message === 'string'
}
