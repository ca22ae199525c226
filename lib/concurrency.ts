/** Runs `work` on every item, at most `limit` at a time. Ends when none is running; throws the first failure. */
export async function inParallel<V>(
  items: Iterable<V>,
  limit: number,
  work: (item: V) => Promise<void>
): Promise<void> {
  const left = items[Symbol.iterator]()
  let failure: { error: unknown } | undefined
  const worker = async () => {
    for (let item = left.next(); !item.done && failure === undefined; item = left.next()) {
      try {
        await work(item.value)
      } catch (error) {
        failure ??= { error }
      }
    }
  }
  await Promise.all(Array.from({ length: limit }, worker))
  if (failure !== undefined) throw failure.error
}
