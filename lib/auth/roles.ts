/** Roles of users (rules 5.2). */
export const roles = ['admin', 'viewer'] as const
export type Role = (typeof roles)[number]
/** Whether a word names a role. */
export const isRole = (word: string): word is Role => roles.some(role => role === word)

/** A user of `[users]`: `name = role hash`. */
export interface User {
  readonly name: string
  readonly role: Role
  /** As `svcd passwd` prints it: salted scrypt. */
  readonly hash: string
}
