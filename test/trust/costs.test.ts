import t from 'tap'
import { TrustKeys } from '../../lib/trust/keys.js'
import { judge, readEvidence } from '../../lib/trust/verdict.js'
import { Controller } from '../support/controller.js'
import { bootEvents, grubOf, Machine } from './machine.js'

// The figures are told, not asserted: machines differ. The bodies of strangers are not read (rules 15.6).

t.test('the cost of a verification, of quotes of strangers, and of nonces', async t => {
  const controller = await Controller.start(t)
  await controller.cluster()
  await controller.post('/config/node/node001', {
    group: 'compute',
    macaddr: '52:54:00:00:00:01',
    trust: 'require'
  })
  controller.daemon.trust.measured = () => [grubOf()]
  const machine = await Machine.start(t)
  const many = Array.from({ length: 300 }, (_, i) => ({
    pcr: 2,
    type: 8,
    data: Buffer.from(`option ROM ${i}`)
  }))
  await machine.boot([...many, ...bootEvents(grubOf())])
  const nonce = await machine.nonce(controller)
  const body = await machine.body(nonce)
  const evidence = readEvidence('node001', { ek_certificate: null, ...body } as never)
  const by = {
    ...{ node: 'node001', ek: { sha256: evidence.ek.spkiSha256 }, isBound: true, measured: [grubOf()] },
    ...{ accepted: undefined, needsSecureBoot: true, lastGood: undefined, authorities: [], now: Date.now() }
  }
  t.match(judge(evidence, by), { verdict: 'unknown', isQuoted: true })
  const rounds = 100
  const began = process.cpuUsage()
  for (let i = 0; i < rounds; i++)
    judge(readEvidence('node001', { ek_certificate: null, ...body } as never), by)
  const { user, system } = process.cpuUsage(began)
  const ms = (user + system) / 1000 / rounds
  t.comment(`a verification takes ${ms.toFixed(2)} ms of CPU`)

  // Strangers send long logs: they are refused for their address, and their bodies are not read.
  const text = JSON.stringify({ ...body, log: 'A'.repeat(300_000) })
  const stranger = { token: null, source: '10.141.9.9' }
  const t0 = process.cpuUsage()
  const answers = await Promise.all(
    Array.from({ length: 200 }, () => controller.post('/trust/node001/quote', text, stranger))
  )
  const spent = process.cpuUsage(t0)
  t.strictSame([...new Set(answers.map(({ status }) => status))], [401])
  t.comment(`200 quotes of strangers take ${(spent.user + spent.system) / 1000} ms of CPU, with the sender's`)
  t.match((await machine.post(controller, 'quote', body)).body, { verdict: 'unknown' }, 'the node as before')

  // One with the address of the node is bounded, and the others are served.
  const statuses = new Set<number>()
  for (let i = 0; i < 70; i++)
    statuses.add((await machine.post(controller, 'quote', { ...body, nonce })).status)
  t.strictSame([...statuses].sort(), [403, 503])
  await controller.post('/config/node/node002', { group: 'compute', macaddr: '52:54:00:00:00:02' })
  const other = await controller.get('/boot/install/node002', { token: null, source: '10.141.0.2' })
  t.equal(other.status, 200)
  t.end()
})

t.test('keys: a nonce counts for its node and for two minutes, and all keys follow from one', t => {
  const derived = (seed: number) =>
    new TrustKeys(purpose => Buffer.from(purpose.padEnd(32, String(seed)).slice(0, 32)))
  const keys = derived(1)
  const now = 1_800_000_000_000
  const nonce = keys.nonce('node001', now)
  t.equal(keys.nonceFault('node001', nonce, now + 119_000), undefined)
  t.match(keys.nonceFault('node001', nonce, now + 121_000), /two minutes/)
  t.match(keys.nonceFault('node002', nonce, now), /not made for this node/)
  t.match(
    keys.nonceFault('node001', `${nonce.slice(0, -1)}${nonce.endsWith('0') ? '1' : '0'}`, now),
    /not made/
  )
  t.match(keys.nonceFault('node001', nonce.slice(2), now), /not made/)
  t.match(keys.nonceFault('node001', nonce, now - 60_000), /two minutes/, 'a clock that was set back')
  t.not(keys.nonce('node001', now), nonce)
  t.match(derived(2).nonceFault('node001', nonce, now), /not made/)
  t.equal(derived(1).fingerprint, keys.fingerprint, 'controllers with one token.key have one key')
  const exchange = { node: 'node001', nonce, ek: 'e', ak: 'a', salt: 's' }
  for (const field of Object.keys(exchange))
    t.notOk(keys.secretFor(exchange).equals(keys.secretFor({ ...exchange, [field]: 'x' })), field)
  t.end()
})
