import type { Duplex } from 'node:stream'
import type { ErrorCode } from '../base/error-codes.js'

// The protocol between svcd and its helper: one JSON object per line. svcd numbers the tasks.

/** Where svcd-helper.socket listens. */
export const HELPER_SOCKET_PATH = '/run/svcd/helper.sock'
/** The descriptor of the socket in the helper. */
export const SOCKET_FD = 3
/** Environment variable of a helper that svcd started itself. */
export const CHILD_VARIABLE = 'SVCD_HELPER'

/** To the helper. */
export type HelperRequest =
  | { readonly id: number; readonly command: string; readonly args: unknown; readonly timeLimitMs?: number }
  | { readonly id: number; readonly stop: true }

/** From the helper: reports of a task, and finally its result or error. */
export type HelperReport =
  | { readonly id: number; readonly line: string }
  | { readonly id: number; readonly progress: number }
  | { readonly id: number; readonly change: string }
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: string; readonly status?: number; readonly code?: ErrorCode }

const LONGEST_LINE = 16 * 1024 * 1024

/** Receives messages until the socket closes. A malformed or long message destroys the socket. */
export function receive<M extends { readonly id: number }>(socket: Duplex, take: (message: M) => void): void {
  let begun = ''
  socket.setEncoding('utf8').on('data', (text: string) => {
    const lines = (begun + text).split('\n')
    begun = lines.pop() ?? ''
    if (begun.length > LONGEST_LINE) socket.destroy(new Error('a message is too long'))
    for (const line of lines) {
      let message: M
      try {
        message = JSON.parse(line)
        if (typeof message?.id !== 'number') throw new Error('it has no number')
      } catch (error) {
        return void socket.destroy(new Error(`a message cannot be read: ${(error as Error).message}`))
      }
      take(message)
    }
  })
}

/** Sends a message if the socket is still writable. */
export function send(socket: Duplex, message: HelperRequest | HelperReport): void {
  if (socket.writable) socket.write(`${JSON.stringify(message)}\n`)
}
