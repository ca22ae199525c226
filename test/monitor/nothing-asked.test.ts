import t from 'tap'
import type { Facts } from '../../lib/monitor/boot-facts.js'
import { newBoot, newStep } from '../../lib/monitor/boot-steps.js'
import { why } from '../../lib/monitor/why.js'

const at = Date.UTC(2026, 0, 1, 12)
const minutes = (count: number) => at + count * 60_000

const facts = (more: Partial<Facts>): Facts => ({
  ...{ node: 'node001', now: minutes(0), macs: ['52:54:00:00:00:01'], address: '10.141.0.1' },
  ...{ boot: undefined, reportedBoot: undefined, foreignSteps: [], obstacle: () => undefined },
  ...{ running: undefined, wouldInstall: undefined, netboot: true, unknownMachines: [], neverSeenCount: 0 },
  ...{ leased: undefined, trackerProblem: '', diskProblem: '', consoleLines: [] },
  ...more
})

// rules 15.13
t.test(
  'a machine that svcd switched on and that asks nothing: the firmware may have refused the loader',
  t => {
    const boot = newBoot(minutes(-60), '10.141.0.1')
    boot.steps.push(newStep('running', 'pack', '10.141.0.1', minutes(-60)))
    for (const earlier of [undefined, boot]) {
      const seen = facts({ boot: earlier, switchedOn: minutes(-6) })
      t.match(why(seen), {
        rule: 'nothing-asked',
        verdict:
          /^since node001 was switched on at 2026-01-01 11:54:00 UTC, nothing was asked of svcd; the firmware/
      })
      t.not(why({ ...seen, netboot: false }).rule, 'nothing-asked', 'it boots from its disk')
      t.not(why({ ...seen, switchedOn: minutes(-4) }).rule, 'nothing-asked', 'machines start slowly')
      t.not(why({ ...seen, switchedOn: undefined }).rule, 'nothing-asked', 'svcd does not know')
    }
    const asked = newBoot(minutes(-5), '10.141.0.1')
    asked.steps.push(newStep('script', 'kernel', '10.141.0.1', minutes(-5)))
    t.not(why(facts({ boot: asked, switchedOn: minutes(-6) })).rule, 'nothing-asked', 'it has asked')
    t.match(
      why(facts({ switchedOn: minutes(-6), leased: '10.141.0.9' })).verdict,
      /lent it the address 10\.141\.0\.9/
    )
    t.end()
  }
)

// rules 15.13
t.test('a kernel that Secure Boot would refuse is told beside the verdict', t => {
  const unsignedKernel = 'the kernel of pack p carries no signature: a machine with Secure Boot on refuses it'
  t.match(
    why(facts({ unsignedKernel })).verdict,
    / Besides, the kernel of pack p carries no signature: .* refuses it$/
  )
  const boot = newBoot(minutes(-1), '10.141.0.1')
  boot.steps.push(newStep('running', 'p', '10.141.0.1', minutes(-1)))
  t.notMatch(why(facts({ unsignedKernel, boot })).verdict, /Besides/, 'it has booted it')
  t.end()
})
