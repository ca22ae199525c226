// One verification of a machine: both keys, the quote, the event log of a boot by OVMF, shim and GRUB with
// its PCRs, and a credential; beside the least that node:crypto has to do for it. Real structures of swtpm,
// in this process.
import { constants, createPublicKey, publicEncrypt, verify } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, macOf, nameOf, writeCluster } from '../cluster.mjs'
import { checkout, startDaemon } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { ask, cpuOf, here, inTurn, start, temporary } from '../harness.mjs'
import { loaded } from '../loaded.mjs'

/** Imports the module that has one of these names: a checkout that is compared may be older. */
const from = async names => {
  const files = names.map(name => join(checkout, 'dist/tpm', `${name}.js`))
  return import(files.find(existsSync))
}

/** Milliseconds of CPU of one, of as many as fit into `ms`. */
function cpuOfOne(ms, work) {
  const before = process.cpuUsage()
  const until = performance.now() + ms
  let count = 0
  for (; performance.now() < until; count++) work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000 / count
}

async function structures(t) {
  const { startTpm } = await import(here('../.cache/js/test/support/tpm.js'))
  const { bootLog } = await import(here('../.cache/js/test/support/tpm-log.js'))
  const tpm = await startTpm(t)
  await tpm.tool('createek', '-Q', '-G', 'rsa', '-c', 'ek.ctx', '-u', 'ek.pub', '-f', 'tss')
  const ak = await tpm.key('ak')
  return { ek: tpm.read('ek.pub'), ak, quote: await tpm.quote('ak', 'a1'.repeat(32)), log: bootLog }
}

const verifying = {
  name: 'verify',
  title: 'one quote of a machine verified: keys, signature, event log and a credential',
  async run({ rounds, ms }) {
    const [{ parsePublic }, { checkQuote, pcrDigest }, log, { makeCredential }] = await Promise.all(
      [
        ['keys', 'public'],
        ['measurements', 'quote'],
        ['measurements', 'event-log'],
        ['keys', 'credential']
      ].map(from)
    )
    const stops = []
    const given = await structures({ teardown: stop => stops.push(stop) })
    const secret = Buffer.alloc(32, 1)
    const ours = () => {
      const [ek, ak] = [parsePublic(given.ek), parsePublic(given.ak)]
      const { pcrs } = checkQuote(ak, ...given.quote)
      const events = log.readEventLog(given.log)
      pcrDigest(log.replay(events), pcrs)
      log.secureBootOf(events)
      makeCredential(ek, ak.name, secret)
    }
    const [ek, ak] = [parsePublic(given.ek).key, parsePublic(given.ak).key]
    const jwks = [ek, ak].map(key => ({ key: key.export({ format: 'jwk' }), format: 'jwk' }))
    const [quote, signature] = given.quote
    const value = Buffer.concat([signature.subarray(6, 38), signature.subarray(40, 72)])
    const padding = constants.RSA_PKCS1_OAEP_PADDING
    const theirs = () => {
      const [ek, ak] = jwks.map(createPublicKey)
      if (!verify('sha256', quote, { key: ak, dsaEncoding: 'ieee-p1363' }, value))
        throw new Error('not signed')
      publicEncrypt({ key: ek, padding, oaepHash: 'sha256' }, secret)
    }
    const work = [ours, theirs].map(one => () => cpuOfOne(ms, one))
    await inTurn(1, work)
    const [cpu, beside] = await inTurn(rounds, work)
    for (const stop of stops.reverse()) await stop()
    return [
      figure('CPU', 'ms', cpu, {
        less: true,
        beside: { what: 'two keys, verify and encrypt', rounds: beside },
        target: { atMost: 2 }
      })
    ]
  }
}

const CONNECTIONS = 64
const PER_SECOND = 1000
/** Bytes of a quote with the event log of a usual machine. */
const QUOTE_BYTES = 60_000

const strangers = {
  name: 'strangers',
  title: `boot scripts while strangers send ${PER_SECOND} quotes a second`,
  async run({ rounds, ms }) {
    const nodes = 1000
    writeCluster(temporary, nodes)
    const daemon = await startDaemon(temporary)
    const sources = Array.from({ length: CONNECTIONS }, (_, i) => addressOf(i))
    const client = start('load.mjs')
    const requests = sources.map((_, i) => `GET /boot/search/mac/${macOf(i)} HTTP/1.1\r\nHost: bench\r\n\r\n`)
    const others = Array.from({ length: 250 }, (_, i) => addressOf(nodes + i))
    const task = { port: daemon.port, path: `/trust/${nameOf(0)}/quote`, bytes: QUOTE_BYTES }
    /** Does `work` between strangers; `each`: microseconds of the daemon's CPU for each of them. */
    const crowded = async work => {
      const crowd = start('strangers.mjs')
      const [from, before] = [performance.now(), cpuOf(daemon.pid)]
      await ask(crowd, { ...task, perSecond: PER_SECOND, sources: others })
      const result = await work()
      const { statuses } = await ask(crowd, 'stop')
      crowd.kill()
      const [other] = Object.keys(statuses).filter(status => status !== '401')
      if (other !== undefined) throw new Error(`a stranger's quote was answered with ${other}`)
      const count = statuses[401]
      const perSecond = (count * 1000) / (performance.now() - from)
      return { result, refused: perSecond, each: ((cpuOf(daemon.pid) - before) * 1000) / count }
    }
    const scripts = () => loaded(client, daemon, { requests, sources, ms })
    const work = [scripts, () => crowded(scripts), () => crowded(() => sleep(ms))]
    await inTurn(1, work)
    const [without, between, only] = await inTurn(rounds, work)
    const rates = [between.map(({ result }) => result), without].map(list => list.map(one => one.perSecond))
    const of = (list, key) => list.map(one => one[key])
    return [
      figure('boot scripts', '/s', rates[0], { beside: { what: 'without strangers', rounds: rates[1] } }),
      figure('quotes refused meanwhile', '/s', of(between, 'refused')),
      figure('CPU of one that is refused', 'us', of(only, 'each'), { less: true })
    ]
  }
}

export default [verifying, strangers]
