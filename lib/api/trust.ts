import { asPauses, runFairly } from '../base/concurrency.js'
import { anObject, base64, boolean, matching, sha256 } from '../model/field.js'
import { ekOf } from '../model/trust.js'
import { firmwareText } from '../trust/firmware.js'
import { seenOf } from '../trust/trust.js'
import { longestQuote } from '../trust/verdict.js'
import { type ApiRequest, type ApiRoute, actorOf, config, done, ok, type Parts, param } from './context.js'
import { type Listing, listed } from './listing.js'
import { nodesFor, nodesQuery } from './node-sets.js'
import { bodyOf, get, post, script } from './row.js'
import { at, object, orNull, string, time, word } from './schema.js'

const hexText = matching('hexadecimal digits in lower case', /^[\da-f]{2,200}$/)
/** Bytes that a body has at least if two keys, a quote and its signature are in it, whatever the log is. */
const shortest = 512
const about = { about: 'node {node}' } as const
const evidence = (meaning: string) => ({ type: base64, required: true, meaning }) as const

const quoteBody = bodyOf(about, {
  nonce: { type: sha256, required: true, meaning: 'what /trust/{node}/nonce gave' },
  exchange: evidence('one-time public key of the boot: P-256, DER; the quote is bound to it'),
  ek: evidence('endorsement key, TPM2B_PUBLIC'),
  ak: evidence('attestation key, TPM2B_PUBLIC'),
  ek_certificate: { type: base64, meaning: 'certificate of the endorsement key, DER' },
  quote: evidence('TPMS_ATTEST over the PCRs sha256:0-9,14'),
  signature: evidence('TPMT_SIGNATURE of the quote'),
  log: evidence('binary_bios_measurements'),
  firmware: { type: anObject, meaning: 'vendor, product and bios_version, as SMBIOS has them' }
})
const proofBody = bodyOf(about, {
  nonce: { type: sha256, required: true, meaning: 'nonce of the quote' },
  salt: { type: hexText, required: true, meaning: 'salt of its answer' },
  proof: {
    type: sha256,
    required: true,
    meaning: 'HMAC-SHA256 of "svcd-bound" with the secret of the credential'
  }
})
const acceptBody = bodyOf(
  { ...about, at: 'config.node.{node}' },
  {
    ek: { type: sha256, required: true, meaning: 'SHA-256 of the endorsement key, as it was shown' },
    ak: { type: hexText, required: true, meaning: 'name of the attestation key, as it was shown' },
    seen: { type: sha256, required: true, meaning: 'SHA-256 of its firmware, as it was shown' }
  }
)
const forgetBody = bodyOf(
  { ...about, at: 'config.node.{node}' },
  { firmware: { type: boolean, meaning: 'also what was accepted of the firmware that it told last' } }
)

const verdict = word('good', 'bad', 'unknown')
const fields = {
  ...{ name: string(), trust: word('none', 'report', 'require') },
  ...{ verdict: orNull(verdict), reason: orNull(string()), time: orNull(time), since: orNull(time) },
  ...{ firmware: orNull(string()), secureboot: orNull({ type: 'boolean' }) },
  pending: { type: 'boolean', description: 'an admin has to decide: its TPM or its firmware is new' },
  ek: orNull(string('SHA-256 of the endorsement key that asked last')),
  ak: orNull(string('name of its attestation key')),
  bound: { type: 'boolean', description: 'whether that key was proved to live in that TPM' },
  enrolled: orNull(string('SHA-256 of the endorsement key that the node is enrolled with')),
  seen: orNull(string('SHA-256 of its firmware, which an acceptance names')),
  pcrs: { ...object({}), description: 'the SHA-256 of each PCR that was quoted' }
}
const columns = ['name', 'trust', 'verdict', 'pending', 'reason', 'time']
const listing: Listing = { title: 'node', place: 'config.trust.{node}', item: object(fields), columns }

/** Returns the last proof of a node's machine; all but its name is null before its first quote. */
export function trustOf({ trust, model }: Pick<Parts, 'trust' | 'model'>, name: string) {
  const node = model.get('node', name)
  const record = trust.of(name)
  return {
    ...{ name, trust: model.effective(node).settings.trust },
    ...{ verdict: record?.verdict ?? null, pending: trust.isPending(name) },
    ...{ reason: record?.reason ?? null, time: record?.time ?? null, since: record?.since ?? null },
    firmware: record ? firmwareText(record.firmware) : null,
    secureboot: record?.secureboot ?? null,
    ...{ ek: record?.tpm.ek ?? null, ak: record?.tpm.ak ?? null, bound: record?.tpm.isBound ?? false },
    ...{ enrolled: ekOf(node).sha256 ?? null, seen: record ? seenOf(record) : null, pcrs: record?.pcrs ?? {} }
  }
}

/** Proofs of machines, and what admins do with them (rules 15.2 to 15.6). */
export const trustRoutes = (parts: Parts): ApiRoute[] => [...machineRoutes(parts), ...adminRoutes(parts)]

function machineRoutes({ trust, install, model }: Parts): ApiRoute[] {
  const own = (request: ApiRequest) => install.refuseOthers(param(request, 'node'), request, 'shows its TPM')
  const limited = async (request: ApiRequest) => {
    await own(request)
    const { 'content-length': length = shortest } = request.headers
    // A shorter body is no quote, and refused for little.
    if (Number(length) >= shortest) trust.limit(param(request, 'node'))
  }
  return [
    script('/trust/{node}/nonce', 'source', {
      summary: 'A nonce for the quote of a node, for that node alone',
      text: async request => {
        await own(request)
        return `${trust.nonce(param(request, 'node'))}\n`
      }
    }),
    post('/trust/{node}/quote', 'source', {
      summary:
        'Show what a machine is and what it booted; the answer holds its install script, sealed to its TPM',
      body: quoteBody,
      maxBody: longestQuote,
      admit: limited,
      output: object({
        ...{ verdict, reason: string(), salt: string() },
        ...{ credential: string(), sealed: string(), exchange: string(), key: string(), signature: string() }
      }),
      handler: async (request, body) => {
        const name = param(request, 'node')
        const { address } = request.source
        // One at a time for each network: a quote that its sender made costly takes some milliseconds.
        function* judged() {
          yield
          return trust.quote(name, body, address, proof => install.provenScript(name, request, proof))
        }
        return { status: 200, body: await runFairly(judged(), request) }
      }
    }),
    post('/trust/{node}/proof', 'source', {
      summary: 'Prove that an attestation key lives in the TPM that was shown',
      body: proofBody,
      maxBody: 8192,
      admit: own,
      handler: async (request, { nonce, salt, proof }) => {
        const { name } = model.get('node', param(request, 'node'))
        trust.limit(name)
        await trust.proof(name, nonce, salt, proof, { ...actorOf(request), who: `node ${name}` })
        return done(200, `node ${name}: its attestation key is of its TPM`)
      }
    })
  ]
}

function adminRoutes(parts: Parts): ApiRoute[] {
  const { trust, model } = parts
  return [
    get('/config/trust', 'user', {
      limited: 'filtered',
      summary: 'What the machines of nodes proved: those with field trust, and those that showed a TPM',
      query: nodesQuery,
      output: at(listing.place, object(fields)),
      handler: request =>
        listed(request, listing, function* () {
          const names = yield* asPauses(
            nodesFor(parts, request.caller, request.query.get('nodes'), model.view)
          )
          const rows = []
          for (const name of names) {
            yield ''
            const isShown = trust.isWanted(name) || (trust.of(name) && model.view.get('node', name))
            if (!isShown) continue
            const values = trustOf(parts, name)
            rows.push({ name, values: () => values })
          }
          return rows
        })
    }),
    get('/config/node/{node}/_trust', 'admin', {
      summary: 'What the machine of a node proved last',
      output: at('config.node.{node}', object(fields)),
      handler: request => {
        const name = param(request, 'node')
        return ok(config('node', { [name]: trustOf(parts, name) }))
      }
    }),
    post('/config/node/{node}/_trust', 'admin', {
      summary: 'Enrol the machine that showed its TPM last, and accept what its firmware measured',
      body: acceptBody,
      handler: async (request, { ek, ak, seen }) => {
        const name = param(request, 'node')
        await trust.accept(name, { ek, ak, seen }, actorOf(request))
        return done(
          200,
          `node ${name}: its machine is trusted; with trust=report it proves so at its next boot`
        )
      }
    }),
    post('/config/node/{node}/_distrust', 'admin', {
      summary: 'Forget the TPM of a node, and what it proved',
      body: forgetBody,
      handler: async (request, { firmware }) => {
        const name = param(request, 'node')
        await trust.forget(name, firmware === true, actorOf(request))
        return done(200, `node ${name}: its TPM is forgotten`)
      }
    })
  ]
}
