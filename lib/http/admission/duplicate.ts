// Gets a listening socket from its parent, sends it back several times, and exits. Each transfer makes a new
// descriptor of the socket; Node has no other way to duplicate one.

// `on`: without a listener this process would end at once.
process.on('message', (count: number, handle) => {
  let left = count
  const sent = () => {
    if (--left === 0) process.disconnect()
  }
  for (let n = 0; n < count; n++) process.send?.(n, handle, {}, sent)
})
