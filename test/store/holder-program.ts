// Opens a store, says so or says why not, and stays.
import { writeSync } from 'node:fs'
import { openStore } from './fixtures.js'

const [directory = ''] = process.argv.slice(2)
try {
  await openStore(directory)
  writeSync(1, 'open\n')
} catch (error) {
  writeSync(1, `refused ${error instanceof Error ? `${error.name}: ${error.message}` : error}\n`)
  process.exit(1)
}
setInterval(() => {}, 1000)
