import t from 'tap'
import { Programs } from '../../lib/program/programs.js'

const options = { env: { PATH: process.env.PATH }, timeLimitMs: 10_000, maxOutput: 1000 }

// rules 13.3
t.test('programs run by a process of their own', async t => {
  const programs = new Programs()
  const { signal } = new AbortController()
  const sh = (script: string, by = signal) => programs.run('sh', ['-c', script], options, by)
  t.same(await sh('echo $IPMI_PASSWORD; echo "$PPID" >&2'), { stdout: '\n' })
  t.match(await sh('echo wrong >&2; exit 3'), {
    why: 'failed',
    stderr: 'wrong\n',
    message: 'sh failed with status 3: wrong'
  })
  t.match(await programs.run('no-such-program', [], options, signal), { why: 'missing' })
  t.match(await programs.run('sleep', ['30'], { ...options, timeLimitMs: 50 }, signal), { why: 'time limit' })

  const stopped = new AbortController()
  const slow = sh('echo begun; sleep 30', stopped.signal)
  stopped.abort()
  t.match(await slow, { why: 'aborted' })
  t.match(await sh('echo', stopped.signal), { why: 'aborted' }, 'and does not begin after that')

  const [killed, beside] = await Promise.all([sh('kill -9 $PPID; sleep 30'), sh('sleep 30')])
  for (const outcome of [killed, beside])
    t.match(outcome, { why: 'failed', message: 'the process that runs programs ended: SIGKILL' })
  t.same(await sh('echo again'), { stdout: 'again\n' }, 'another one is started')

  const left = sh('sleep 30')
  programs.close()
  t.match(await left, { why: 'aborted' })
})
