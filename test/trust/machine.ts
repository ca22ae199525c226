// A machine with a TPM of swtpm: it measures a boot as firmware, shim and GRUB do, and asks as a node does.
import {
  createDecipheriv,
  createHash,
  createHmac,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  type KeyObject,
  verify
} from 'node:crypto'
import type { Test } from 'tap'
import type { MeasuredBoot } from '../../lib/boot/grub/script.js'
import type { Controller, Reply } from '../support/controller.js'
import { attesting, startTpm, type Tpm } from '../support/tpm.js'

export const sha256 = (data: Buffer | string) => createHash('sha256').update(data).digest()
const hexOf = (data: Buffer | string) => sha256(data).toString('hex')

/** An event of the log: what is measured is the digest of its data, if it names none. */
export interface Event {
  readonly pcr: number
  readonly type: number
  readonly data: Buffer
  readonly digest?: Buffer
}

const text = (pcr: number, type: number, words: string, measured = words): Event => ({
  ...{ pcr, type, data: Buffer.from(words), digest: sha256(measured) }
})

const separator = (pcr: number): Event => ({ pcr, type: 4, data: Buffer.alloc(4) })

/** The variable that tells whether Secure Boot is on, as firmware measures it. */
function secureBoot(isOn: boolean): Event {
  const name = Buffer.from('SecureBoot', 'utf16le')
  const lengths = Buffer.alloc(16)
  lengths.writeUInt32LE(name.length / 2, 0)
  lengths.writeUInt32LE(1, 8)
  const guid = Buffer.from('61dfe48bca93d211aa0d00e098032b8c', 'hex')
  const data = Buffer.concat([guid, lengths, name, Buffer.from([isOn ? 1 : 0])])
  return { pcr: 7, type: 0x80000001, data }
}

/** The events of a boot; the kernel is measured by shim and by GRUB. */
export const bootEvents = (measured: MeasuredBoot, isSecure = true, version = '1.0'): Event[] => [
  text(0, 8, `firmware ${version}`),
  text(4, 0x80000007, 'Calling EFI Application from Boot Option'),
  secureBoot(isSecure),
  ...[0, 1, 2, 3, 4, 5, 6, 7].map(separator),
  ...[...measured.programs, ...measured.programs.slice(-1)].map(({ sha256: digest }) => ({
    ...{ pcr: 4, type: 0x80000003, data: Buffer.from('path'), digest: Buffer.from(digest, 'hex') }
  })),
  text(14, 0x0d, 'MokList'),
  ...measured.commands.map(({ what, text: command }) => text(8, 0x0d, `${what}: ${command}\0`, command)),
  ...measured.files.map(({ name, sha256: digest }) => ({
    ...{ pcr: 9, type: 0x0d, data: Buffer.from(`${name}\0`), digest: Buffer.from(digest, 'hex') }
  }))
]

const u32 = (...values: readonly number[]) => {
  const bytes = Buffer.alloc(4 * values.length)
  for (const [i, value] of values.entries()) bytes.writeUInt32LE(value >>> 0, 4 * i)
  return bytes
}
const digestOf = ({ data, digest = sha256(data) }: Event) => digest

/** The log of events in the form of the kernel's binary_bios_measurements, with SHA-256 alone. */
export function logOf(events: readonly Event[]): Buffer {
  const spec = Buffer.concat([
    Buffer.from('Spec ID Event03\0'),
    Buffer.from([0, 0, 0, 0, 0, 2, 0, 2]),
    u32(1),
    Buffer.from([0x0b, 0, 32, 0, 0])
  ])
  const all = events.map(event =>
    Buffer.concat([
      u32(event.pcr, event.type, 1),
      Buffer.from([0x0b, 0]),
      digestOf(event),
      u32(event.data.length),
      event.data
    ])
  )
  return Buffer.concat([u32(0, 3), Buffer.alloc(20), u32(spec.length), spec, ...all])
}

/** The work of GRUB for a node; `change` is at the end of the kernel's command line. */
export const grubOf = (change = '', initramfs = 'initramfs'): MeasuredBoot => {
  const line = `/kernel root=svc svc.node=node001 svc.trust=require${change}`
  const file = (what: string, name: string) => ({ what, name, sha256: hexOf(name) })
  return {
    commands: [
      { what: 'grub_cmd', text: `linux ${line}` },
      { what: 'kernel_cmdline', text: line },
      { what: 'grub_cmd', text: 'initrd /compute-initrd' },
      { what: 'grub_cmd', text: 'boot' }
    ],
    programs: [
      file('shim', 'shimx64.efi'),
      file('GRUB', 'grubx64.efi'),
      file('the kernel', 'compute-kernel')
    ],
    files: [
      file('the configuration of GRUB', 'grub.cfg'),
      file('the kernel', 'compute-kernel'),
      { ...file('the initramfs', 'compute-initrd'), sha256: hexOf(initramfs) }
    ]
  }
}

export const firmware = { vendor: 'ACME', product: 'R1', bios_version: '1.0' }

/**
 * A node makes its keys at each boot (test/node/trust.test.ts). They follow from the TPM's seeds, so they are
 * the same ones each time. Here they stay in the TPM, which saves a dozen programs a boot. Without `noda` a TPM
 * that lost its power a few times refuses to use the attestation key.
 */
const keptKeys = `
tpm2_readpublic -Q -c 0x81010001 -f tss -o ek.pub -t ek.ctx
tpm2_createprimary -Q -C e -g sha256 -G ecc256:ecdsa-sha256:null -a '${attesting}' -c made.ctx
tpm2_evictcontrol -Q -C o -c made.ctx -o ak.ctx 0x81000001
tpm2_flushcontext -t
tpm2_readpublic -Q -c ak.ctx -f tss -o ak.pub
`

export class Machine {
  log: Buffer = Buffer.alloc(0)
  address = '10.141.0.1'
  /** The last answer to a quote, and what the TPM got of it. */
  secret: Buffer = Buffer.alloc(0)
  /** The key of this boot, which no other boot has. */
  exchange = generateKeyPairSync('ec', { namedCurve: 'P-256' })

  private constructor(
    readonly tpm: Tpm,
    readonly ek: Buffer,
    readonly ak: Buffer
  ) {}

  static async start(t: Test, authority?: string): Promise<Machine> {
    const tpm = await startTpm(t, authority === undefined ? {} : { authority })
    await tpm.shell(keptKeys)
    return new Machine(tpm, tpm.read('ek.pub'), tpm.read('ak.pub'))
  }

  /** Starts anew, with these measurements. */
  async boot(events: readonly Event[]): Promise<void> {
    const extended = events
      .filter(({ type }) => type !== 3)
      .map(event => `${event.pcr}:sha256=${digestOf(event).toString('hex')}`)
    await this.tpm.shell(`swtpm_ioctl --unix tpm.ctrl -i
tpm2_startup -c
tpm2_pcrextend ${extended.join(' ')}`)
    this.log = logOf(events)
    this.exchange = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  }

  async nonce(controller: Controller, node = 'node001'): Promise<string> {
    const { text } = await controller.get(`/trust/${node}/nonce`, { token: null, source: this.address })
    return text.trim()
  }

  /** The body of a quote. */
  async body(nonce: string, more: object = {}): Promise<Record<string, unknown>> {
    const exchange = derOf(this.exchange.publicKey)
    const bound = hexOf(Buffer.concat([Buffer.from(nonce), exchange]))
    const [quote, signature] = await this.tpm.quote('ak', bound)
    const base64 = Object.entries({ exchange, ek: this.ek, ak: this.ak, quote, signature, log: this.log })
    const texts = Object.fromEntries(base64.map(([key, value]) => [key, value.toString('base64')]))
    return { nonce, ...texts, firmware, ...more }
  }

  /**
   * The secret of a credential.
   * @throws Error when the TPM does not open it.
   */
  open(credential: string): Promise<Buffer> {
    return this.tpm.open(Buffer.from(credential, 'base64'), 'ak', 'ek.ctx')
  }

  post(controller: Controller, what: 'quote' | 'proof', body: unknown, node = 'node001'): Promise<Reply> {
    return controller.post(`/trust/${node}/${what}`, body, { token: null, source: this.address })
  }

  /** Asks with a fresh quote; returns the answer. */
  async quote(controller: Controller, more: object = {}): Promise<Reply> {
    return this.post(controller, 'quote', await this.body(await this.nonce(controller), more))
  }

  /** Opens the credential of an answer, and proves the attestation key with it. */
  async prove(controller: Controller, nonce: string, answer: Reply): Promise<Reply> {
    const { salt, credential } = answer.body
    this.secret = await this.open(credential)
    const proof = createHmac('sha256', this.secret).update('svcd-bound').digest('hex')
    return this.post(controller, 'proof', { nonce, salt, proof })
  }

  /** Quotes and proves, as the node side does where the verdict is unknown. */
  async enrol(controller: Controller, more: object = {}): Promise<Reply> {
    const nonce = await this.nonce(controller)
    const answer = await this.post(controller, 'quote', await this.body(nonce, more))
    return this.prove(controller, nonce, answer)
  }

  /** Decrypts the install script of an answer, with the TPM and the key of this boot; undefined without one. */
  async script(answer: Reply): Promise<string | undefined> {
    const { sealed, credential, exchange } = answer.body
    if (sealed === undefined) return undefined
    const secret = await this.open(credential)
    const theirs = { key: Buffer.from(exchange, 'base64'), format: 'der', type: 'spki' } as const
    const shared = diffieHellman({ ...this.exchange, publicKey: createPublicKey(theirs) })
    const key = createHmac('sha256', secret).update(shared).digest()
    const decipher = createDecipheriv('aes-256-cbc', key, Buffer.alloc(16))
    return Buffer.concat([decipher.update(Buffer.from(sealed, 'base64')), decipher.final()]).toString()
  }
}

export const derOf = (key: KeyObject) => key.export({ type: 'spki', format: 'der' })

/** Whether an answer is signed by the key with this fingerprint, for this node, nonce and key of the boot. */
export function isSigned(
  answer: Reply,
  node: string,
  nonce: string,
  asker: KeyObject,
  fingerprint: string
): boolean {
  const { salt, credential, sealed = '', exchange, key, signature } = answer.body
  const pem = Buffer.from(key, 'base64').toString()
  const der = derOf(createPublicKey(pem))
  const [opened, script, own] = [credential, sealed, exchange].map(one => hexOf(Buffer.from(one, 'base64')))
  const said = [opened, script, hexOf(derOf(asker)), own].join(' ')
  const signed = Buffer.from(`svcd-trust ${node} ${nonce} ${salt} ${said}`)
  return hexOf(der) === fingerprint && verify('sha256', signed, pem, Buffer.from(signature, 'base64'))
}
