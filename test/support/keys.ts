import { copyFileSync, mkdirSync } from 'node:fs'
import type { Daemon } from './daemon.js'

/** Gives a second controller what it needs of the first one. */
export function giveKeys(from: Daemon, to: Daemon): void {
  mkdirSync(to.path('state'), { recursive: true, mode: 0o700 })
  for (const name of ['secret.key', 'token.key', 'admin-password'])
    copyFileSync(from.path('state', name), to.path('state', name))
}
