import { run } from '../../lib/program/program.js'

// Prints the pid of the program it runs.
await run('sh', ['-c', 'echo $$; exec sleep 1000'], {
  timeLimitMs: 3_600_000,
  onLine: line => process.stdout.write(`${line}\n`)
})
