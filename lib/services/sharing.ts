/**
 * Shares work among all who ask for it: one piece is under way at most, and each is given what was begun after it asked.
 */
export function shared<T>(work: () => Promise<T>): () => Promise<T> {
  let current: Promise<unknown> = Promise.resolve()
  let next: Promise<T> | undefined
  return () => {
    if (next) return next
    next = current.then(() => {
      next = undefined
      return work()
    })
    current = next.catch(() => undefined)
    return next
  }
}
