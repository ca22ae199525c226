import t from 'tap'
import { acknowledge, answerWhenDone } from '../../lib/api/jobs.js'
import { badRequest, ServiceError } from '../../lib/base/errors.js'
import { withUsers } from '../support/callers.js'
import { Controller } from '../support/controller.js'
import { Gate, spec } from '../support/jobs.js'
import { until } from '../support/until.js'

const { c, as } = await withUsers(t)
const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

// rules 2.9
t.test('a request from queued to its end, as its users see it', async t => {
  const gates = ['a', 'b'].map(name => new Gate(name, ['osimage compute'])) as [Gate, Gate]
  const a = await c.daemon.jobs.submit(gates[0].spec)
  const b = await c.daemon.jobs.submit(gates[1].spec)
  const status = async (id: string, token = as.admin) => {
    const { status, body } = await c.get(`/config/status/${id}`, { token })
    return [status, body]
  }
  const told = (id: string, message: string, state: string, progress: number, status = 200) => [
    200,
    { request_id: id, message, status, state, progress }
  ]
  const context = await gates[0].began
  context.line('tar;;zstd')
  context.progress(0.5)
  t.same(await status(a.id), told(a.id, 'tar; ;zstd', 'running', 0.5))
  t.same(await status(a.id), told(a.id, '', 'running', 0.5))
  t.same(await status(b.id), told(b.id, '', 'queued', 0))
  const list = (await c.get('/monitor/request')).body.monitor.request
  t.same(Object.keys(list).slice(0, 2), [b.id, a.id], 'newest first')
  t.match(list[a.id], {
    ...{ request_id: a.id, kind: 'pack', object: 'OS image a', by: 'user admin', state: 'running' },
    ...{ queued: iso, started: iso, ended: null, progress: 0.5, message: 'running' }
  })
  t.notOk('lines' in list[a.id])

  gates[0].end(new Error('disk full'))
  await until(() => c.daemon.jobs.records().some(({ state }) => state === 'failed'))
  t.same(await status(a.id), told(a.id, 'failed: disk full', 'failed', 0.5, 500))
  t.equal((await status(a.id))[0], 404)
  t.same(await status(a.id, as.viewer), told(a.id, 'tar; ;zstd;;failed: disk full', 'failed', 0.5, 500))
  t.equal((await status(a.id, as.viewer))[0], 404)
  await gates[1].began
  gates[1].end()
  await b.done
  t.same(await status(b.id), told(b.id, '', 'done', 1))

  await c.restart()
  t.equal((await status(a.id))[0], 404, 'who had the end does not get it again after a restart')
  t.same(await status(b.id, as.viewer), told(b.id, '', 'done', 1), 'who had not, does')
  const { body } = await c.get(`/monitor/request/${a.id}`, { token: as.viewer })
  t.match(body.monitor.request[a.id], {
    ...{ state: 'failed', message: 'failed: disk full', results: {} },
    ...{ lines: ['tar;;zstd', 'failed: disk full'], ended: iso }
  })
})

// rules 2.5
t.test('HEAD takes no lines away', async t => {
  const job = await c.daemon.jobs.submit(spec(({ line }) => line('one')))
  await job.done
  t.equal((await c.get(`/config/status/${job.id}`, { method: 'HEAD' })).status, 405)
  t.equal((await c.get(`/config/status/${job.id}`)).body.message, 'one')
})

// rules 2.9
t.test('ids: only whole ones, no token of a node, none at all', async t => {
  const job = await c.daemon.jobs.submit(spec(() => {}))
  await job.done
  for (const id of [job.id.slice(1), `${job.id}0`, '*', '..', 'x'])
    for (const path of [`/config/status/${id}`, `/config/status/${id}/_cancel`, `/monitor/request/${id}`])
      t.equal(
        (await c.get(path)).status,
        id === job.id.toUpperCase() && !/[a-f]/.test(job.id) ? 200 : 404,
        path
      )
  for (const path of [`/config/status/${job.id}`, `/monitor/request/${job.id}`, '/monitor/request']) {
    t.equal((await c.get(path, { token: null })).status, 401)
    t.equal((await c.get(path, { token: as.own })).status, 403)
  }
})

// rules 8.3
t.test('cancel: an admin may, the record says who; a second time there is nothing to cancel', async t => {
  const gate = new Gate('a')
  const job = await c.daemon.jobs.submit(gate.spec)
  const { signal } = await gate.began
  signal.addEventListener('abort', () => gate.end(signal.reason))
  const path = `/config/status/${job.id}/_cancel`
  t.equal((await c.get(path, { token: as.viewer })).status, 403)
  t.equal(signal.aborted, false)
  const { status, body } = await c.get(path)
  t.same([status, body], [200, { message: `request ${job.id} is cancelled` }])
  await job.done.catch(() => {})
  t.equal((await c.get(path)).status, 404)
  t.equal((await c.get(`/config/status/${job.id}`)).body.message, 'failed: cancelled by user root')
})

const source = { address: '10.141.0.7', loopback: false }

// rules 2.8
t.test('the answer to a request whose work is a job', async t => {
  const c = await Controller.start(t)
  const { jobs } = c.daemon
  const asking = (prefer?: string) => ({ source, headers: prefer === undefined ? {} : { prefer } })
  const refused = (work: () => void, prefer?: string) =>
    jobs.submit(spec(work)).then(job => answerWhenDone(asking(prefer), job, 204))
  const fail = (error: unknown) => () => {
    throw error
  }

  t.same(await answerWhenDone(asking(), await jobs.submit(spec(() => {})), 204), { status: 204 })
  t.same(await answerWhenDone(asking(), await jobs.submit(spec(() => {})), 201, 'image cloned'), {
    status: 201,
    body: { message: 'image cloned' }
  })
  await t.rejects(refused(fail(new Error('tar failed'))), new ServiceError(503, 'tar failed'))
  await t.rejects(refused(fail(badRequest('no such kernel'))), new ServiceError(400, 'no such kernel'))
  await t.rejects(refused(fail(new Error('tar failed')), 'wait=10'), new ServiceError(503, 'tar failed'))

  const gate = new Gate('a')
  const job = await jobs.submit(gate.spec)
  for (const prefer of ['respond-async', 'wait=10, Respond-Async; x=1', 'respond-async,wait=1'])
    t.same(
      await answerWhenDone(asking(prefer), job, 204),
      { ...acknowledge({ source }, job), headers: { 'Preference-Applied': 'respond-async' } },
      prefer
    )
  t.same(acknowledge({ source }, { id: 'x' }), { status: 200, body: { message: 'queued', request_id: 'x' } })
  t.match(
    acknowledge({ source: { ...source, isHandedOn: true } }, { id: 'x' }).body,
    { message: 'queued on the primary' },
    'asked of a standby, the message says so'
  )
  for (const prefer of ['respond-asynchronously', 'x="respond-async"', '']) {
    const answered = answerWhenDone(asking(prefer), await jobs.submit(spec(() => {})), 204)
    t.same(await answered, { status: 204 }, `${prefer} is not it`)
  }
  gate.end(new Error('nobody waits for it'))
})

t.test('shutting down answers who waits for a job', async t => {
  const c = await Controller.start(t)
  const gate = new Gate('a')
  const job = await c.daemon.jobs.submit(gate.spec)
  const { signal } = await gate.began
  signal.addEventListener('abort', () => gate.end(signal.reason))
  const answer = answerWhenDone({ source, headers: {} }, job, 204)
  const closing = c.daemon.close(200)
  await t.rejects(answer, new ServiceError(503, 'pack of OS image a was interrupted'))
  await closing
  await c.restart()
  const { body } = await c.get(`/monitor/request/${job.id}`)
  t.match(body.monitor.request[job.id], { state: 'failed', message: 'failed: interrupted' })
})
