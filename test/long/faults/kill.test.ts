import t from 'tap'
import { killRounds } from '../../api/kill-rounds.js'
import { Daemon } from '../../support/daemon.js'

const rounds = Number(process.env.SVCD_KILL_ROUNDS ?? 2000)

// rules 11.1
t.test(`kill -9 at ${rounds} random moments`, { timeout: 60_000 + rounds * 10_000 }, async t => {
  const daemon = new Daemon({
    directory: t.testdir(),
    set: ['boot.new_nodes=1000000', 'auth.token_lifetime=1d']
  })
  t.teardown(() => daemon.kill())
  await daemon.start()
  await killRounds(t, daemon, rounds)
})
