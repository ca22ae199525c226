import t from 'tap'
import { Changes } from '../../lib/image/transfers.js'
import { openJobs, spec } from '../support/jobs.js'

/** The record of a dry run on `nodes` nodes with 5,000 changes each, of which the last fails. */
async function recordOf(nodes: number) {
  const { jobs } = await openJobs(t)
  const names = Array.from({ length: nodes }, (_, i) => `node${String(i + 1).padStart(3, '0')}`)
  const last = names.at(-1)
  const job = await jobs.submit(
    spec(async job => {
      for (const name of names) {
        const changes = new Changes(job, name, true, nodes)
        const work = async () => {
          for (let i = 0; i < 5000; i++) changes.add(`changed usr/share/some/directory/file-${i}`)
          if (name === last) throw new Error(`node ${name} is away`)
          return { changes: 5000 }
        }
        await changes.during(work).catch(() => {})
      }
    })
  )
  await job.done
  return { record: await jobs.record(job.id), names, last: last ?? '' }
}

t.test('the outcome of every node of a large group is in the record', async t => {
  const { record, names, last } = await recordOf(40)
  const { results = {}, lines = [] } = record ?? {}
  for (const name of names) {
    const expected =
      name === last ? { state: 'failed', message: `node ${last} is away` } : { state: 'done', changes: 5000 }
    t.same(results[name], expected)
    t.ok((results[`${name}.changes`] as string[]).length > 100, 'and a share of its changes')
  }
  t.match(lines[0], /^node001: 5000 changes, none made, the first \d+ listed$/)
  t.equal(lines.length, names.length - 1, 'a line for each node that did not fail, none for a change')
})

t.test('all changes of one node are listed, and are lines in a dry run', async t => {
  const { record } = await recordOf(1)
  t.equal((record?.results['node001.changes'] as string[] | undefined)?.length, 5000)
  t.equal(record?.lines[0], 'node001: changed usr/share/some/directory/file-0')
})
