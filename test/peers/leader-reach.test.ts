import t from 'tap'
import { createLog } from '../../lib/base/log.js'
import { LeaderReach } from '../../lib/peers/checks.js'

const SHARED = 'http://10.141.0.10:7050'
const others = [
  { name: 'c1', url: SHARED },
  { name: 'c3', url: SHARED },
  { name: 'c4', url: 'http://10.141.0.4:7050' }
]

/** What a controller on the URL that others share says of the one that writes. */
function standby() {
  const state = { leader: SHARED as string | undefined, ticks: 0 }
  const log: string[] = []
  const reach = new LeaderReach({
    own: SHARED,
    others: () => others,
    leader: () => state.leader,
    log: createLog('info', line => log.push(line)),
    ticks: () => state.ticks
  })
  return { state, log, reach }
}

// rules 11.16
t.test('the log and health name who could not be asked, where, and the way out', async t => {
  const { state, log, reach } = standby()
  t.equal(reach.condition, undefined)
  for (let i = 0; i < 3; i++) reach.recordOutcome(SHARED, 'EHOSTUNREACH')
  const shared =
    `controller c1 or c3 (${SHARED}), which writes, cannot be asked (EHOSTUNREACH): the URL is that of this controller too; ` +
    'give each controller a URL of its own, [store] url'
  t.same(reach.condition, { ok: false, reason: shared })
  t.equal(log.length, 1, 'once')
  t.match(log[0], shared)
  state.leader = 'http://10.141.0.4:7050'
  t.equal(reach.condition, undefined, 'another one writes')
  reach.recordOutcome(state.leader, 'ECONNREFUSED')
  t.match(
    reach.condition?.reason,
    /^controller c4 \(http:\/\/10\.141\.0\.4:7050\), which writes, cannot be asked \(ECONNREFUSED\): look whether svcd runs there/
  )
  reach.recordOutcome(state.leader, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE')
  t.match(
    reach.condition?.reason,
    /cannot be asked \(UNABLE_TO_VERIFY_LEAF_SIGNATURE\): its certificate is not trusted; name its authority in \[store\] ca of this controller$/
  )
  reach.recordOutcome(state.leader, '')
  t.equal(reach.condition, undefined)
  t.match(log.at(-1), /controller c4 \(\S+\), which writes, can be asked again/)
  t.equal(log.length, 4)
})

// rules 11.16
t.test('a takeover: nobody is told to give a URL where each controller has one', async t => {
  const log: string[] = []
  const own = 'http://10.141.0.1:7050'
  let others = [{ name: 'c2', url: 'http://10.141.0.2:7050' }]
  let writer = own
  const reach = new LeaderReach({
    ...{ own, others: () => others, leader: () => writer, ticks: () => 0 },
    log: createLog('info', line => log.push(line))
  })
  // It was killed, and started again before its right has ended.
  reach.recordOutcome(own, 'another controller answers there, or it has just begun to write')
  t.match(
    reach.condition?.reason,
    /this controller wrote before it was started; another one, or this one, writes in/
  )
  writer = 'http://10.141.0.2:7050'
  reach.recordOutcome(writer, 'another controller answers there, or it has just begun to write')
  t.match(
    reach.condition?.reason,
    /^controller c2 .* look whether svcd runs there, and whether its \[store\] url/
  )
  t.notMatch(log.join(''), 'URL of its own')
  others = [...others, { name: 'c3', url: writer }]
  reach.recordOutcome(writer, 'another controller answers there, or it has just begun to write')
  t.match(
    reach.condition?.reason,
    /^controller c2 or c3 .* the URL is that of another controller too; give each/
  )
})

// rules 11.16
t.test('what could not be asked a while ago says nothing any more', async t => {
  const { state, reach, log } = standby()
  reach.recordOutcome(SHARED, 'it does not answer')
  state.ticks += 59_000
  t.equal(reach.condition?.ok, false)
  state.ticks += 1000
  t.equal(reach.condition, undefined)
  reach.recordOutcome(SHARED, '')
  t.equal(log.length, 1)
  state.leader = undefined
  reach.recordOutcome(SHARED, 'ECONNRESET')
  t.equal(reach.condition, undefined, 'nobody else writes any more')
})
