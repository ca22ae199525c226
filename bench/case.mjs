// One case, in a process of its own: gets its name and sizes, and sends its figures.
import { cases } from './cases.mjs'

process.once('message', async ({ name, ...options }) => {
  let answer
  try {
    answer = { figures: await cases.find(one => one.name === name).run(options) }
  } catch (error) {
    answer = { failed: error.message.slice(0, 300) }
  }
  process.send(answer, () => process.exit())
})
