import t, { type Test } from 'tap'
import { createLog } from '../../lib/base/log.js'
import { ControllerDrift } from '../../lib/peers/checks.js'

const URL = '[http] url'
const own = { [URL]: 'a', '[boot]': 'b' }
const text = (words: string, name: string) =>
  `${words} of this controller is not that of controller ${name}: give both the same`

function comparing(
  t: Test,
  ...others: { name: string; digests?: Record<string, string>; aheadMs?: number }[]
) {
  const state = { others }
  const log: string[] = []
  const same = new ControllerDrift({
    ...{ name: 'c1', own },
    others: () => state.others,
    log: createLog('info', line => log.push(line))
  })
  t.teardown(() => same.close())
  return { state, log, same }
}

// rules 11.15
t.test('each difference is logged once, and again when it is another one or was mended', async t => {
  const { state, log, same } = comparing(t)
  const look = (...others: typeof state.others) => {
    log.length = 0
    state.others = others
    for (let i = 0; i < 3; i++) same.check()
    return log.map(line => line.replace(/^\S+ /, '').trim())
  }
  const c2 = { name: 'c2', digests: { ...own, [URL]: 'x' } }
  const c3 = { name: 'c3', digests: { ...own, [URL]: 'x', '[boot]': 'y' } }
  t.strictSame(look(), [])
  t.strictSame(look(c2), [`warn ${text(URL, 'c2')}`])
  t.strictSame(look(c2, c3), [`warn ${text(URL, 'c3')}`, `warn ${text('[boot]', 'c3')}`])
  t.strictSame(look(c3, c2), [])
  t.strictSame(look({ ...c2, digests: { ...own, [URL]: 'z' } }), [`warn ${text(URL, 'c2')}`], 'another one')
  t.strictSame(look({ ...c2, digests: own }), [], 'mended')
  t.strictSame(look(c2), [`warn ${text(URL, 'c2')}`], 'and not any more')
})

// rules 11.15
t.test(
  'the condition names what differs and where, until it is mended or the other one has left',
  async t => {
    const { state, same } = comparing(t)
    t.equal(same.condition, undefined, 'alone')
    const c2 = { name: 'c2', digests: { ...own, [URL]: 'x' } }
    const c3 = { name: 'c3', digests: { ...own, '[boot]': 'y' } }
    state.others = [c2, c3]
    t.same(same.condition, { ok: false, reason: `${text(URL, 'c2')}; ${text('[boot]', 'c3')}` })
    state.others = [{ ...c2, digests: own }, c3]
    t.same(same.condition, { ok: false, reason: text('[boot]', 'c3') }, 'one mended')
    state.others = [{ ...c2, digests: own }]
    t.equal(same.condition, undefined, 'the other one has left')
    state.others = [c2, { ...c2, digests: { ...own, [URL]: 'z' } }]
    t.same(same.condition, { ok: false, reason: text(URL, 'c2') }, 'one that was started again')
  }
)

// rules 11.15
t.test('what another release does not tell, or tells beside that, is not compared', async t => {
  const { log, same } = comparing(
    t,
    { name: 'old' },
    { name: 'part', digests: { '[boot]': 'b' } },
    { name: 'more', digests: { ...own, '[later]': 'x' } }
  )
  same.check()
  t.equal(same.condition, undefined)
  t.strictSame(log, [])
})

// rules 11.15
t.test('however many differ, some are named and the rest is counted', async t => {
  const many = Array.from({ length: 500 }, (_, i) => ({ name: `c${i}`, digests: { [URL]: 'x' } }))
  const { same } = comparing(t, ...many)
  const { reason = '' } = same.condition ?? {}
  t.match(reason, /controller c0: .* controller c9: .*; and 490 more$/)
  t.notMatch(reason, 'c10')
})

// rules 11.15
t.test('a clock that differs is told before it fails, and is a failure from 60 s on', async t => {
  const { state, log, same } = comparing(t)
  const said = (aheadMs?: number) => {
    log.length = 0
    state.others = [{ name: 'c2', digests: own, ...(aheadMs === undefined ? {} : { aheadMs }) }]
    for (let i = 0; i < 3; i++) same.check()
    return { lines: log.map(line => line.replace(/^\S+ /, '').trim()), condition: same.condition }
  }
  const text = (seconds: number, which: string) =>
    `the clock of controller c2 is ${seconds} s ${which} that of controller c1, and 60 s are allowed: type timedatectl on both, ` +
    'and have both set theirs by the same time servers (systemctl restart chrony)'
  for (const ms of [undefined, 0, 30_000, -30_000])
    t.strictSame(said(ms), { lines: [], condition: undefined }, String(ms))
  t.strictSame(said(59_000), {
    lines: [`warn ${text(59, 'ahead of')}`],
    condition: { ok: true, reason: text(59, 'ahead of') }
  })
  t.strictSame(said(45_000).lines, [], 'each is logged once')
  t.strictSame(said(-90_000), {
    lines: [`warn ${text(90, 'behind')}`],
    condition: { ok: false, reason: text(90, 'behind') }
  })
  t.strictSame(said(0), { lines: [], condition: undefined }, 'mended')
  t.match(said(61_000), { lines: [/ 61 s ahead of /], condition: { ok: false } }, 'it jumped')
  // What fails hides what is only told.
  state.others = [
    { name: 'c2', aheadMs: 40_000 },
    { name: 'c3', aheadMs: 4_000_000 }
  ]
  t.match(same.condition, { ok: false, reason: /^the clock of controller c3 is 4000 s ahead/ })
})
