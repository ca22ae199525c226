import { createHmac, timingSafeEqual } from 'node:crypto'

/** As far apart may the clocks of controllers be. */
export const SLACK_MS = 60_000

/** What is told where they are further apart. */
export const clocksApart = `the clocks of two controllers are more than ${SLACK_MS / 1000} s apart: set them by time synchronisation`

/** The proof that one who has the key has said this, in hexadecimal digits. */
export const proofBy = (key: Uint8Array, said: readonly unknown[]): string =>
  createHmac('sha256', key).update(JSON.stringify(said)).digest('hex')

/** Whether two proofs are the same, in a time that does not tell where they differ. */
export function isSameProof(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}
