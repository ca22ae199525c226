// Reports of run.mjs: `{ commit, date, node, machine, load, loadAfter, rounds, ms, cases }`. That of a
// baseline may have cases of several runs: `runs` then has the head of each, with the names of its cases.

/** The runs that the cases of a report are from, each with the names of its cases. */
export function runsOf(report) {
  const { cases, runs, ...head } = report
  return runs ?? [{ ...head, cases: cases.map(({ name }) => name) }]
}

/**
 * A report with the cases of a further run, in place of those of the same name. Its head is that of the
 * further run.
 */
export function withRun(report, further) {
  const names = new Set(further.cases.map(({ name }) => name))
  const kept = runsOf(report)
    .map(run => ({ ...run, cases: run.cases.filter(name => !names.has(name)) }))
    .filter(run => run.cases.length > 0)
  const known = new Set(report.cases.map(({ name }) => name))
  const { cases, ...head } = further
  return {
    ...head,
    runs: [...kept, ...runsOf(further)],
    cases: [
      ...report.cases.map(one => cases.find(({ name }) => name === one.name) ?? one),
      ...cases.filter(({ name }) => !known.has(name))
    ]
  }
}
