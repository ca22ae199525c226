import { createPublicKey, hash, randomBytes, type X509Certificate } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { badRequest, forbidden, notFound } from '../base/errors.js'
import { firstOf } from '../base/log.js'
import type { MeasuredBoot } from '../boot/grub/script.js'
import { groupOf, settingsOf } from '../model/effective.js'
import type { Actor, Model } from '../model/model.js'
import type { Change, View } from '../model/stored.js'
import { ekOf, forgotten, isEnrolledWith } from '../model/trust.js'
import type { NodeDoc, RevokedDoc } from '../model/types/node.js'
import { NodeRate } from '../monitor/node-rate.js'
import { currentName } from '../monitor/node-status.js'
import type { RecordMap } from '../store/record-map.js'
import { tried } from '../tpm/cursor.js'
import { makeCredential } from '../tpm/keys.js'
import { type Firmware, firmwareName, withAccepted } from './firmware.js'
import { agreeWith, sealWith, type TrustKeys } from './keys.js'
import { type Evidence, type Finding, judge, type QuoteBody, readEvidence, type Verdict } from './verdict.js'

/** The last quote of a node's machine, with its verdict (rules 15.5). */
interface TrustRecord {
  /** Its table knows the record by this field. */
  readonly node: string
  readonly verdict: Verdict
  readonly reason: string
  /** Times in ISO 8601, UTC: of the last quote, and since when verdict and reason are these. */
  readonly time: string
  readonly since: string
  readonly secureboot: boolean | null
  readonly firmware: Firmware
  readonly pcrs: Readonly<Record<string, string>>
  /** The lines that an acceptance adds to the accepted firmware. */
  readonly measured: readonly string[]
  readonly isNewFirmware: boolean
  /** PCR 8 and 9 of the last good boot. */
  readonly lastGood?: string
  /** The present boot of the node's machine: tokens of earlier ones are void (rules 15.7). */
  readonly boot?: {
    readonly ek: string
    /** How often its TPM was reset before it. */
    readonly resets: number
    /** Milliseconds since 1970 of its first quote. */
    readonly since: number
  }
  readonly tpm: {
    /** The EK in PEM, and its SHA-256. */
    readonly key: string
    readonly ek: string
    /** Name of the AK in hex, and whether it was proved to live in that TPM. */
    readonly ak: string
    readonly isBound: boolean
    /** An authority of `[trust] ek_ca` vouches for the EK. */
    readonly isVouched: boolean
  }
}

/** Reads a stored record; throws for what is none. */
export function readRecord(json: unknown): TrustRecord {
  const record = json as TrustRecord
  if (!['good', 'bad', 'unknown'].includes(record.verdict) || typeof record.tpm?.ek !== 'string')
    throw new Error('it is no verdict on a node')
  return record
}

/** SHA-256 of what an admin sees of a machine's firmware before its acceptance. */
export const seenOf = ({ firmware, measured, secureboot }: TrustRecord): string =>
  hash('sha256', JSON.stringify([firmware, measured, secureboot]))

interface TrustOptions {
  readonly model: Model
  readonly keys: TrustKeys
  readonly records: RecordMap<TrustRecord>
  /** Milliseconds since 1970. */
  readonly now: () => number
  readonly secureboot: 'required' | 'any'
  readonly authorities: readonly X509Certificate[]
  /** Called with each verdict that is new, or no good one. */
  readonly onVerdict?: (node: string, from: string, record: TrustRecord, isNew: boolean) => void
}

/** Quotes that count once are remembered for longer than their nonce lives, of 10,000 nodes at once. */
const mostNonces = 20_000
/** Names of nodes in a warning. */
const mostNames = 5

/** Trust in the machines of nodes: enrolment, verdicts, and scripts that only their TPMs can read. */
export class Trust {
  readonly #rate = new NodeRate()
  readonly #used = new LRUCache<string, true>({ max: mostNonces })

  /** Returns the measurements of GRUB when the node boots as it is configured, or why they are not known. */
  measured: (node: string) => readonly MeasuredBoot[] | string = () => ''

  constructor(private readonly o: TrustOptions) {}

  nonce(node: string): string {
    return this.o.keys.nonce(node, this.o.now())
  }

  /** Throws 503 if a node asks too often. Called before a body is read. */
  limit(node: string): void {
    this.#rate.takeOrThrow(node)
  }

  of(node: string): TrustRecord | undefined {
    return this.o.records.get(node)
  }

  /** Whether a node is `pending`, or has this verdict; `unknown` as well if it owes a proof. */
  is(node: string, standing: string): boolean {
    if (standing === 'pending') return this.isPending(node)
    const verdict = this.of(node)?.verdict
    return verdict === undefined ? standing === 'unknown' && this.isWanted(node) : verdict === standing
  }

  /** Whether field trust asks the node for proofs. */
  isWanted(node: string): boolean {
    const doc = this.o.model.view.get('node', node)
    return doc !== undefined && this.o.model.effective(doc).settings.trust !== 'none'
  }

  /** Returns a warning if nodes that get `trust` = require have not proved themselves (rules 15.1). */
  warningsOf(required: readonly string[]): string[] {
    const found = required.filter(name => !this.is(name, 'good'))
    if (found.length === 0) return []
    const [subject, verb] = found.length === 1 ? ['node', 'has'] : [`${found.length} nodes:`, 'have']
    return [
      `${subject} ${firstOf(found, mostNames)} ${verb} trust = require and no good verdict: without one a ` +
        'node gets no install script, and its tokens are void; begin with trust = report'
    ]
  }

  /** `good`, or another verdict with its reason; '' before the first quote. */
  shortOf(node: string): string {
    const { verdict = '', reason } = this.of(node) ?? {}
    return verdict === '' || verdict === 'good' ? verdict : `${verdict}: ${reason}`
  }

  /** How many nodes have each verdict. */
  counts(): Map<Verdict, number> {
    const counts = new Map<Verdict, number>((['good', 'bad', 'unknown'] as const).map(one => [one, 0]))
    for (const { verdict } of this.o.records.values()) counts.set(verdict, (counts.get(verdict) ?? 0) + 1)
    return counts
  }

  /** Whether an admin has to decide on the machine that asked last: its TPM or its firmware is new. */
  isPending(node: string): boolean {
    const record = this.of(node)
    const own = this.o.model.view.get('node', node)
    if (!record?.tpm.isBound || record.verdict === 'good' || !own) return false
    return record.isNewFirmware || ekOf(own).sha256 !== record.tpm.ek
  }

  /**
   * Judges a quote from an address and answers it. `script` makes the install script, with tokens that have
   * this proof of a good boot, or none. It is sealed to the TPM unless trust is required and the verdict is
   * not good. Throws 403 for a nonce that does not count, and 400 for no evidence.
   */
  quote(name: string, body: QuoteBody, from: string, script: (proof?: string) => string) {
    const { model, now } = this.o
    const evidence = readEvidence(name, body)
    this.#checkNonce(name, evidence.nonce)
    const node = model.get('node', name)
    const finding = judge(evidence, this.#yardstick(node, evidence))
    if (finding.isQuoted) this.#used.set(evidence.nonce, true)
    this.#record(name, from, evidence, finding, new Date(now()).toISOString())
    const isGood = finding.verdict === 'good'
    const isOut = isGood || model.effective(node).settings.trust !== 'require'
    const { boot } = this.of(name) ?? {}
    const made = isOut ? script(isGood && boot ? `${boot.ek} ${boot.since}` : undefined) : undefined
    return this.#answer(name, evidence, finding, made)
  }

  /** Whether a token with this proof is valid for a node: with `require`, of this boot (rules 15.7). */
  takes(name: string, proof = ''): boolean {
    const { model } = this.o
    const node = model.view.get('node', name)
    // Each request of a node asks.
    if (!node || settingsOf(node, groupOf(model.view, node), model.cluster).trust !== 'require') return true
    const [ek = '', since] = proof.split(' ')
    const { boot } = this.of(name) ?? {}
    // A follower may not know the newest boot yet.
    return boot !== undefined && Number(since) >= boot.since && isEnrolledWith(node, ek)
  }

  #checkNonce(name: string, nonce: string): void {
    const { keys, now } = this.o
    const fault = this.#used.has(nonce) ? 'it was used already' : keys.nonceFault(name, nonce, now())
    if (fault !== undefined)
      throw forbidden(`node ${name}: the nonce of its proof does not count: ${fault}`, 'nonce-refused')
  }

  #yardstick(node: NodeDoc, { ek, ak, firmware }: Evidence) {
    const { model, secureboot, authorities, now } = this.o
    const record = this.of(node.name)
    return {
      ...{ node: node.name, ek: ekOf(node), authorities, now: now(), lastGood: record?.lastGood },
      isBound: isBound(node, record, ek.spkiSha256, ak.name.toString('hex')),
      measured: this.measured(node.name),
      accepted: model.view.get('firmware', firmwareName(firmware)),
      needsSecureBoot: secureboot === 'required'
    }
  }

  #record(name: string, from: string, { ek, ak, firmware }: Evidence, found: Finding, time: string): void {
    const before = this.of(name)
    const { verdict, reason, secureBoot } = found
    const isNew = before?.verdict !== verdict || before.reason !== reason
    const [digest, akName] = [ek.spkiSha256, ak.name.toString('hex')]
    const lastGood = verdict === 'good' ? found.booted : before?.lastGood
    const node = this.o.model.view.get('node', name)
    const boot = node && bootOf(node, before, { ek: digest, ak: akName }, found, Date.parse(time))
    const record: TrustRecord = {
      node: name,
      ...{ verdict, reason, time, since: isNew ? time : (before?.since ?? time) },
      ...{ secureboot: secureBoot ?? null, firmware, pcrs: found.pcrs, measured: found.firmware },
      isNewFirmware: found.isNewFirmware,
      ...(lastGood === undefined ? {} : { lastGood }),
      ...(boot ? { boot } : {}),
      tpm: {
        key: String(ek.key.export({ format: 'pem', type: 'spki' })),
        ...{ ek: digest, ak: akName, isVouched: found.isVouched },
        isBound: found.isQuoted && node !== undefined && isBound(node, before, digest, akName)
      }
    }
    this.o.records.setSoon(name, record)
    if (isNew || verdict !== 'good') this.o.onVerdict?.(name, from, record, isNew)
  }

  /** Makes the answer (rules 15.6). An EK that can open nothing gets an empty credential. */
  #answer(
    node: string,
    { nonce, ek, ak, exchange: theirs }: Evidence,
    found: Finding,
    script: string | undefined
  ) {
    const { keys } = this.o
    const salt = randomBytes(16).toString('hex')
    const secret = keys.secretFor({ node, nonce, ek: ek.spkiSha256, ak: ak.name.toString('hex'), salt })
    const made = found.isQuoted && tried(() => makeCredential(ek, ak.name, secret))
    const credential = Buffer.isBuffer(made) ? made : Buffer.alloc(0)
    const isSealed = script !== undefined && credential.length > 0
    const { key, exchange } = agreeWith(theirs.key, secret)
    const sealed = isSealed ? sealWith(key, script) : Buffer.alloc(0)
    const sums = [credential, sealed, theirs.der, exchange].map(bytes => hash('sha256', bytes)).join(' ')
    const signed = `svcd-trust ${node} ${nonce} ${salt} ${sums}`
    return {
      ...{ verdict: found.verdict, reason: found.reason, salt, credential: credential.toString('base64') },
      ...(isSealed ? { sealed: sealed.toString('base64') } : {}),
      exchange: exchange.toString('base64'),
      ...{ key: Buffer.from(keys.pem).toString('base64'), signature: keys.sign(signed) }
    }
  }

  /**
   * Takes the proof that the AK of the last quote lives in the TPM with its EK. A node with that EK, or one
   * without any whose EK an authority vouches for, is enrolled by it (rules 15.2). Throws 403.
   */
  async proof(name: string, nonce: string, salt: string, proof: string, actor: Actor): Promise<void> {
    const { keys, model, now, records } = this.o
    const record = this.of(name)
    const fault = keys.nonceFault(name, nonce, now())
    const isRight = record && keys.isProof({ node: name, nonce, ...record.tpm, salt }, proof)
    if (!record || fault !== undefined || !isRight)
      throw forbidden(`node ${name}: the proof of its attestation key is not right`, 'nonce-refused')
    records.setSoon(name, { ...record, tpm: { ...record.tpm, isBound: true } })
    const { sha256: own, fault: wrong, isForgotten } = ekOf(model.get('node', name))
    const isFree = own === undefined && wrong === undefined && !isForgotten
    const isKnown = own === record.tpm.ek || (isFree && record.tpm.isVouched && this.isWanted(name))
    if (isKnown) await model.change(actor, tx => enrol(model.get('node', name, tx), record, tx))
  }

  /**
   * Enrols the machine that asked last, and accepts its firmware, as the admin saw them (`seenOf`).
   * Throws 404 if none asked, 400 if another one has asked meanwhile, or has not proved its key.
   */
  async accept(
    name: string,
    { ek, ak, seen }: { readonly ek: string; readonly ak: string; readonly seen: string },
    actor: Actor
  ): Promise<void> {
    const { model } = this.o
    // Checked inside: a precondition of the request comes first.
    await model.change(actor, tx => {
      const node = model.get('node', name, tx)
      const record = this.of(name)
      if (!record) throw notFound(`node ${name}: no machine has shown a TPM yet`, 'no-object')
      const isOther = record.tpm.ek !== ek || record.tpm.ak !== ak
      if (isOther || seenOf(record) !== seen)
        throw badRequest(
          `node ${name}: another machine${isOther ? '' : ', or another boot of it,'} has asked meanwhile: ` +
            `svcctl node trust ${name}`,
          'invalid-field'
        )
      if (!record.tpm.isBound)
        throw badRequest(
          `node ${name}: its machine has not proved its attestation key yet: wait until it asks again`
        )
      enrol(node, record, tx)
      const key = firmwareName(record.firmware)
      tx.put('firmware', key, withAccepted(tx.get('firmware', key), record.firmware, record.measured))
    })
  }

  /** Forgets a node's TPM: authorities enrol no other one. */
  async forget(name: string, firmware: boolean, actor: Actor): Promise<void> {
    const { model, records, authorities } = this.o
    const record = this.of(name)
    await model.change(actor, tx => {
      const { tpm_sha256: _, tpm_pubkey: __, tpm_uuid: ___, ...rest } = model.get('node', name, tx)
      tx.put('node', name, authorities.length === 0 ? rest : { ...rest, tpm_sha256: forgotten })
      // With `firmware`, it also forgets what was accepted of the firmware that the machine told last.
      const key = record && firmwareName(record.firmware)
      if (firmware && key !== undefined && tx.get('firmware', key)) tx.remove('firmware', key)
    })
    if (!actor.dryRun) await records.set(name, undefined)
  }

  /** Follows committed changes: a record goes with its node, and follows its new name. */
  follow(changes: readonly Change[]): void {
    for (const { type, name, after } of changes)
      if (type === 'revoked' && after) this.#move(name, (after as RevokedDoc).renamed)
  }

  /** Repairs names after a crash between the change of a node and that of its record. */
  catchUp(view: View): void {
    for (const node of this.o.records.names()) {
      const now = currentName(view, node)
      if (now !== node) this.#move(node, now)
    }
  }

  #move(node: string, to: string | undefined): void {
    const { records } = this.o
    const record = records.get(node)
    if (!record) return
    // A follower takes the records of its leader, which does the same.
    const ignored = () => undefined
    records.set(node, undefined).catch(ignored)
    if (to !== undefined) records.set(to, { ...record, node: to }).catch(ignored)
  }
}

/**
 * Whether an AK is known to live in the TPM with this EK: by the node, or by its last proof. A node that an
 * admin gave another digest alone has the AK of the TPM before.
 */
const isBound = (node: NodeDoc, record: TrustRecord | undefined, ek: string, ak: string) =>
  (ekOf(node).sha256 === ek && Boolean(node.tpm_pubkey) && node.tpm_uuid?.toLowerCase() === ak) ||
  (record?.tpm.isBound === true && record.tpm.ek === ek && record.tpm.ak === ak)

/** Returns the boot that a quote shows: a new one with another reset of the node's own TPM. */
function bootOf(
  node: NodeDoc,
  before: TrustRecord | undefined,
  { ek, ak }: { readonly ek: string; readonly ak: string },
  { resets }: Finding,
  since: number
): TrustRecord['boot'] {
  const last = before?.boot
  const own = ekOf(node).sha256
  // Another machine with the node's address ends no token.
  const isOwn = own === undefined || (own === ek && isBound(node, before, ek, ak))
  if (!isOwn || resets === undefined || (last?.ek === ek && last.resets === resets)) return last
  return { ek, resets, since }
}

function enrol(
  node: NodeDoc,
  { tpm: { key, ek, ak } }: TrustRecord,
  tx: { put(type: 'node', name: string, doc: NodeDoc): void }
): void {
  // The record may come from a store that lies: anything else than a key throws.
  const pem = String(createPublicKey(key).export({ format: 'pem', type: 'spki' })).trimEnd()
  tx.put('node', node.name, { ...node, tpm_sha256: ek, tpm_pubkey: pem, tpm_uuid: ak })
}
