import type { Test } from 'tap'
import type { Controller } from './controller.js'
import { complaints } from './routes.js'
import { stored } from './state.js'

/** A body, and all that the message of its refusal must say. */
export type Wrong = readonly [body: unknown, ...says: RegExp[]]

/**
 * Posts each body to a path: every one must be 400 as JSON with a message that says this, change nothing, and
 * leave no error in the log.
 */
export async function refused(t: Test, c: Controller, path: string, bodies: readonly Wrong[]): Promise<void> {
  const before = await stored(c)
  const wrong: string[] = []
  for (const [body, ...says] of bodies) {
    const what = Buffer.isBuffer(body) ? body.toString('hex') : JSON.stringify(body)
    const { status, body: answer, headers } = await c.post(path, body)
    const { message, code, ...rest } = answer ?? {}
    if (status !== 400) wrong.push(`${what}: ${status}`)
    else if (headers['content-type'] !== 'application/json') wrong.push(`${what}: ${headers['content-type']}`)
    else if (typeof message !== 'string' || typeof code !== 'string' || Object.keys(rest).length > 0)
      wrong.push(`${what}: ${JSON.stringify(answer)}`)
    else for (const said of says) if (!said.test(message)) wrong.push(`${what}: ${message} (${said})`)
  }
  t.same(wrong, [], path)
  t.same(await stored(c), before, `${path}: nothing changed`)
  t.same(complaints(c), [], `${path}: nothing logged as an error`)
}

/** A pattern that matches a text as it is. */
export const literal = (text: string) => new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
