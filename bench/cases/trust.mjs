// One verification of a machine: both keys, the quote, the event log of a boot by OVMF, shim and GRUB with
// its PCRs, and a credential; beside the least that node:crypto has to do for it. Real structures of swtpm,
// in this process.
import { constants, createPublicKey, publicEncrypt, verify } from 'node:crypto'
import { join } from 'node:path'
import { checkout } from '../daemon.mjs'
import { figure } from '../figures.mjs'
import { here, inTurn } from '../harness.mjs'

const from = async name => import(join(checkout, 'dist/tpm', `${name}.js`))

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
      ['public', 'quote', 'event-log', 'credential'].map(from)
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

export default [verifying]
