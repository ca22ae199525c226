import type { Caller } from '../auth/access.js'
import type { Logins } from '../auth/logins.js'
import type { Tokens } from '../auth/tokens.js'
import type { Boot } from '../boot/boot.js'
import type { Install } from '../boot/install.js'
import type { Config } from '../config/types.js'
import type { Answer, Request, Route } from '../http/route.js'
import type { Model } from '../model/model.js'
import type { Health } from '../monitor/health.js'
import type { NodeStatus } from '../monitor/node-status.js'

/** The parts of the daemon that routes call. */
export interface Parts {
  readonly config: Config
  readonly model: Model
  readonly status: NodeStatus
  readonly health: Health
  readonly logins: Logins
  readonly tokens: Tokens
  readonly boot: Boot
  readonly install: Install
}

export type ApiRequest = Request<Caller>
export type ApiRoute = Route<Caller>

/** 200 with an iPXE script, an install script or a kickstart. */
export const plain = (text: string): Answer => ({ status: 200, text, type: 'text/plain; charset=utf-8' })

/** A change's answer: 204 is empty, the others say what happened (decisions 1.5). */
export const done = (status: number, message: string): Answer =>
  status === 204 ? { status } : { status, body: { message } }

/** A path parameter that the route's own path holds. */
export function param(request: ApiRequest, name: string): string {
  const value = request.params[name]
  if (value === undefined) throw new TypeError(`route ${request.path} has no parameter ${name}`)
  return value
}
