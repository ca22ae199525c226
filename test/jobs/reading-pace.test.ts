import t from 'tap'
import { ReadingPace } from '../../lib/jobs/jobs.js'

const MIB = 1024 * 1024
const KIB = 1024

// rules 11.20
t.test('32 MiB at once, and then 64 KiB a second; what is too much is made up for', t => {
  let now = 5_000_000
  const pace = new ReadingPace(() => now)
  const refused = (seconds: number) => ({
    status: 503,
    message: new RegExp(`^requests of user alice .* try again in ${seconds} s$`),
    headers: { 'Retry-After': String(seconds) }
  })
  pace.check('user alice')
  pace.took('user alice', 32 * MIB - 2 * KIB)
  pace.check('user alice')
  // It runs already. Each write counts for 1 KiB more.
  pace.took('user alice', 640 * KIB)
  t.throws(() => pace.check('user alice'), refused(11))
  pace.check('user bob')
  now += 9000
  t.throws(() => pace.check('user alice'), refused(2))
  now += 2000
  pace.check('user alice')
  now += 3_600_000
  pace.took('user alice', 32 * MIB)
  t.throws(() => pace.check('user alice'), refused(1), 'no more is saved up')
  t.end()
})
