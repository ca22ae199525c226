// A process that lives for a moment: what listens in its parent is sent to it, and sent back as often as the parent says.
// Each time the system makes a new descriptor of the same socket; Node has no other way to have one made.

// `on`: without a listener for what comes, this process would end at once.
process.on('message', (count: number, handle) => {
  let left = count
  const sent = () => {
    if (--left === 0) process.disconnect()
  }
  for (let n = 0; n < count; n++) process.send?.(n, handle, {}, sent)
})
