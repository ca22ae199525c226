// When the directories of deleted images are asked for that another controller has to remove.
import t, { type Test } from 'tap'
import { unavailable } from '../../lib/errors.js'
import { until } from '../support/until.js'
import { oneOfSeveral } from './one-of-several.js'

const MINUTE_MS = 60_000

/** The image copy is deleted, and c2 has its directory. */
async function deleted(t: Test) {
  const site = await oneOfSeveral(t)
  const { bench } = site
  await bench.put(tx =>
    tx.put('tree', 'copy', { name: 'copy', osimage: 'copy', at: 1, controller: 'c2', abandoned: true })
  )
  const isGone = () => bench.context.model.view.get('tree', 'copy') === undefined
  return { ...site, isGone }
}

// rules 9.15
t.test('a directory that could not be removed is asked for again, whatever the reason was', async t => {
  const { bench, images, jobs, site, look, isGone, ended } = await deleted(t)
  site.unrecorded = 'etcd does not answer'
  await look()
  await until(() => bench.log.some(line => /images are removed later: etcd does not answer/.test(line)))
  site.unrecorded = ''

  bench.now += MINUTE_MS
  site.ask = async () => {
    throw unavailable('the other one refuses')
  }
  await look()
  await ended(1)
  t.match(jobs.records()[0], { state: 'failed', message: /the other one refuses/ })

  // As when another controller takes over.
  bench.now += MINUTE_MS
  let isAsked = false
  site.ask = (_name, _task, { signal }) => {
    isAsked = true
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  }
  await look()
  await until(() => isAsked)
  jobs.cancel(jobs.records()[0]?.id ?? '')
  site.ask = async () => ({ removed: true })
  images.promoted()
  await until(isGone, () => [jobs.records(), bench.log])
})

// rules 9.15
t.test('a pause is longer each time, and ends when this controller begins to write', async t => {
  const { bench, images, site, look, isGone, ended } = await deleted(t)
  let asked = 0
  site.ask = async () => {
    asked++
    throw unavailable('the other one refuses')
  }
  await look()
  await ended(1)
  for (const [afterMs, expected] of [
    [4000, 1],
    [2000, 2],
    [6000, 2],
    [5000, 3]
  ] as const) {
    bench.now += afterMs
    await look()
    await ended(expected)
    await look()
    t.equal(asked, expected)
  }
  site.ask = async () => ({ removed: true })
  images.promoted()
  await until(isGone, () => bench.log)
})

// rules 9.15
t.test('that a controller is not there is said once, with the way out', async t => {
  const { bench, site, look } = await deleted(t)
  site.others = []
  await look()
  await look()
  t.notOk(
    bench.log.some(line => /on controller c2/.test(line)),
    'it may be started again'
  )
  bench.now += 2 * MINUTE_MS
  for (let i = 0; i < 3; i++) await look()
  const said = bench.log.filter(line => /on controller c2/.test(line))
  t.equal(said.length, 1)
  t.match(
    said[0],
    /OS image copy is deleted, and its directory \S+\/images\/copy is on controller c2, which is not there: .* \[controller\] name = c2\n$/
  )
})
