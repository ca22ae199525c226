import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { compiled, node } from './support/programs.js'
import { scratch } from './support/scratch.js'

const bench = (file: string) => join(compiled, 'bench', file)
const { figure, met, ratios } = await import(bench('figures.mjs'))
const { withRun, runsOf } = await import(bench('reports.mjs'))
const { table } = await import(bench('table.mjs'))

interface Case {
  readonly name: string
  readonly title: string
  readonly figures: readonly unknown[]
}

const one = (name: string, ...rounds: number[]): Case => ({
  name,
  title: `the case ${name}`,
  figures: [figure('', 's', rounds, { less: true })]
})
const report = (commit: string, ...cases: Case[]) => {
  const head = { date: '2026-01-02T03:04:05.678Z', node: 'v20', machine: '2 CPUs', load: 0, loadAfter: 0 }
  return { commit, ...head, rounds: 5, ms: 800, cases }
}

/** What bench/compare.mjs says of two reports, and how it ends. */
function compared(before: unknown, now: unknown): Promise<{ text: string; code: number }> {
  const dir = scratch(t)
  const [base, run] = [join(dir, 'base.json'), join(dir, 'run.json')]
  writeFileSync(base, JSON.stringify(before))
  writeFileSync(run, JSON.stringify(now))
  const [program = '', ...args] = [...node, bench('compare.mjs'), '--base', base, '--run', run]
  return new Promise(resolve =>
    execFile(program, args, (error, text) => resolve({ text, code: Number(error?.code ?? 0) }))
  )
}

t.test('a target is met by the median, or always', async t => {
  const lost = (target: object) => figure('machines lost', '', [0, 0, 1, 0, 0], { less: true, target })
  t.equal(met(lost({ atMost: 0 })), true)
  t.equal(met(lost({ atMost: 0, always: true })), false, 'one lost is one lost')
  t.equal(met(figure('', '', [0, 0], { target: { atMost: 0, always: true } })), true)
  t.equal(met(figure('', '', [5, 9], { target: { atLeast: 6, always: true } })), false)
  t.equal(met(figure('', '', [5, 9])), undefined)
})

t.test('a yardstick that is apart is shown, and nothing is divided by it', async t => {
  const lost = figure('', '', [1, 2], { beside: { what: 'bare', rounds: [0, 3], apart: true } })
  t.equal(ratios(lost), undefined)
  const text = table(report('abc', { name: 'storm', title: 'a storm', figures: [lost] }))
  t.match(text, /a storm +2 \(1\.\.2\) +bare 3 \(0\.\.3\)$/m)
})

t.test('what a comparison cannot say, it says', async t => {
  const before = report('old', one('both', 1, 2, 3), one('gone', 1, 2), one('single', 5))
  const now = report('new', one('both', 7, 8, 9), one('added', 1, 2), one('single', 9))
  const { text, code } = await compared(before, now)
  t.match(text, /only in the run before, so not compared:\n {2}the case gone\n/)
  t.match(text, /only in this run, so not compared:\n {2}the case added\n/)
  t.match(text, /the case single .* one round\n/)
  t.match(
    text,
    /in one round, which has no spread: whether they became slower is not known:\n {2}the case single\n/
  )
  t.match(text, /slower than the spread explains:\n {2}the case both\n/)
  t.equal(code, 1)
  const same = await compared(before, before)
  t.match(same.text, /Of what can be compared, nothing became slower/)
  t.equal(same.code, 0)
})

t.test(
  'of a baseline the cases that were measured are replaced, and its head says which are of which run',
  async t => {
    const first = report('old', one('a', 1), one('b', 2), one('c', 3))
    const second = withRun(first, report('mid', one('b', 5), one('d', 6)))
    t.strictSame(
      second.cases.map((each: Case) => [each.name, each.figures]),
      [one('a', 1), one('b', 5), one('c', 3), one('d', 6)].map(each => [each.name, each.figures])
    )
    const third = withRun(second, report('new', one('a', 7), one('c', 8)))
    t.strictSame(
      runsOf(third).map(({ commit, cases }: { commit: string; cases: string[] }) => [commit, cases]),
      [
        ['mid', ['b', 'd']],
        ['new', ['a', 'c']]
      ]
    )
    t.match(runsOf(first), [{ commit: 'old', cases: ['a', 'b', 'c'] }], 'a report of one run')
    const { text } = await compared(third, third)
    t.match(
      text,
      /Before: svcd mid \(2 CPUs, 2026-01-02T03:04: b, d\) and svcd new \(2 CPUs, 2026-01-02T03:04: a, c\)/
    )
  }
)
