// Its words are `loop DIRECTORY`, which replaces files without end, `once FILE`, `killed FILE`, which ends by
// SIGKILL in the middle of the file, or `hold LOCK`, which takes a lock and keeps it. It prints what came of it.
import { existsSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { replaceFile } from '../../lib/disk/file.js'
import { withLock } from '../../lib/disk/lock-file.js'

const [what = '', path = ''] = process.argv.slice(2)
const say = (line: string) => writeSync(1, `${line}\n`)
const forever = () => new Promise<never>(() => setInterval(() => {}, 1000))

function* halfOf(text: string) {
  yield text
  process.kill(process.pid, 'SIGKILL')
  yield text
}

if (what === 'hold')
  await withLock({ lock: path, file: path, busy: 'busy' }, async () => {
    say('held')
    await forever()
  })
else if (what === 'once') {
  // Twice: the first failure must not change what the second is.
  for (const content of ['x'.repeat(5000), ['y'.repeat(900), 'y'.repeat(900)]])
    say(
      await replaceFile(path, content).then(
        () => 'done',
        (error: NodeJS.ErrnoException) => `${error.code}`
      )
    )
  say(existsSync(path) ? readFileSync(path, 'utf8') : 'none')
} else if (what === 'killed') await replaceFile(path, halfOf('new '.repeat(10_000)))
else
  for (let i = 0; ; i++) {
    const names = ['holder.json', 'node-status.journal']
    await Promise.all(names.map(name => replaceFile(join(path, name), `${i % 10}`.repeat(20_000))))
    if (i === 3) say('writing')
  }
