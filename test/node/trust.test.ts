import { execFile } from 'node:child_process'
import {
  createCipheriv,
  createHash,
  createHmac,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  randomBytes,
  sign
} from 'node:crypto'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { type Child, startChild } from '../support/child.js'
import { busyboxApplets } from '../support/node-root.js'
import { checkout, locate, output, requirePrograms, requireRoot } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

// The node's half of attestation (rules 15.8, 15.9): a real TPM, of swtpm, and a svcd that can be made to lie.

requireRoot()
requirePrograms('swtpm', 'swtpm_setup', 'tpm2', 'openssl', 'curl', 'wget', 'busybox', 'dash')
requirePrograms('/usr/lib/klibc/bin/sh')

const sha256 = (data: Buffer | string) => createHash('sha256').update(data).digest('hex')
const bytes = (text: unknown) => Buffer.from(String(text), 'base64')
const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const stranger = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const derOf = (key: typeof publicKey) => key.export({ type: 'spki', format: 'der' })
const fingerprint = sha256(derOf(publicKey))
const installScript = '#!/bin/sh\n: the token and the password\n'

/** The ways in which this svcd does otherwise than it should. */
interface Wish {
  readonly verdict?: string
  readonly reason?: string
  readonly withoutScript?: boolean
  readonly signedBy?: typeof stranger
  /** Changes the fields of the answer after they were signed. */
  readonly altered?: (answer: Record<string, string>) => void
  readonly nonce?: string
  readonly refuses?: number
  /** The answer to a choice in GRUB's menu. */
  readonly choice?: string
  /** A credential for another attestation key. */
  readonly forAnother?: boolean
  /** Answers for another key of a boot: with the answer, as it was recorded, or only by its signature. */
  readonly forBoot?: 'replayed' | 'sealed'
}

const directory = scratch(t)
/** The firmware's log; svcd gets these bytes. */
const log = randomBytes(200_000)

/** A svcd without a policy: each TPM is good after its proof. */
class Svcd {
  wish: Wish = {}
  readonly asked: string[] = []
  /** What the quotes say of all PCRs. */
  readonly digests: string[] = []
  readonly #secrets = new Map<string, Buffer>()
  /** The attestation key of the last quote, and the one that was proved. */
  #quoted = ''
  #bound = ''

  async answer(path: string, body: Buffer): Promise<{ status: number; text: string }> {
    this.asked.push(path)
    const text = (value: unknown) => ({ status: 200, text: JSON.stringify(value) })
    if (path === '/trust/node001/nonce')
      return { status: 200, text: `${this.wish.nonce ?? randomBytes(32).toString('hex')}\n` }
    if (path === '/boot/manual/hostname/node001/52:54:00:15:00:01')
      return { status: 200, text: this.wish.choice ?? '#!ipxe\nimgargs kernel root=svc svc.node=node001 x\n' }
    if (path === '/boot/install/node001') return { status: 200, text: '#!/bin/sh\n: the plain script\n' }
    if (path === '/trust/node001/proof') {
      const { nonce, salt, proof } = JSON.parse(String(body))
      const secret = this.#secrets.get(`${nonce} ${salt}`) ?? Buffer.alloc(1)
      const right = createHmac('sha256', secret).update('svcd-bound').digest('hex')
      if (proof !== right) return { status: 403, text: '{"message":"the proof is wrong"}' }
      this.#bound = this.#quoted
      return text({ bound: true })
    }
    if (path !== '/trust/node001/quote') return { status: 404, text: '{"message":"no such path"}' }
    if (this.wish.refuses) return { status: this.wish.refuses, text: '{"message":"the log is too long"}' }
    return text(await this.#quote(JSON.parse(String(body))))
  }

  async #quote(got: Record<string, string>): Promise<Record<string, string>> {
    const { ak = '', ek = '', ek_certificate, quote = '', log: sent, nonce = '', exchange = '' } = got
    this.#quoted = ak
    t.ok(bytes(sent).equals(log), 'the whole event log')
    const bound = createHash('sha256').update(nonce).update(bytes(exchange)).digest()
    t.ok(bytes(quote).includes(bound), 'the quote holds the nonce and the key of the boot')
    this.digests.push(bytes(quote).subarray(-32).toString('hex'))
    t.match(await lookedAt(String(ek_certificate), ak), 'SEQUENCE')
    const { verdict = this.#bound === ak ? 'good' : 'unknown', reason = '', signedBy, altered } = this.wish
    const name = `000b${this.wish.forAnother ? '00'.repeat(32) : sha256(bytes(ak).subarray(2))}`
    const { secret, credential } = await credentialFor(ek, name)
    const salt = randomBytes(16).toString('hex')
    this.#secrets.set(`${nonce} ${salt}`, secret)
    const { forBoot } = this.wish
    const own = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const asker = createPublicKey({ key: bytes(exchange), format: 'der', type: 'spki' })
    const boundTo = forBoot ? stranger.publicKey : asker
    const shared = diffieHellman({ privateKey: own.privateKey, publicKey: boundTo })
    const scriptKey = createHmac('sha256', secret).update(shared).digest()
    const cipher = createCipheriv('aes-256-cbc', scriptKey, Buffer.alloc(16))
    const sealed =
      verdict === 'good' && !this.wish.withoutScript
        ? Buffer.concat([cipher.update(installScript), cipher.final()])
        : Buffer.alloc(0)
    const ders = [forBoot === 'replayed' ? stranger.publicKey : asker, own.publicKey].map(derOf)
    const said = `svcd-trust node001 ${nonce} ${salt} ${[credential, sealed, ...ders].map(sha256).join(' ')}`
    const pem = (signedBy ?? { publicKey }).publicKey.export({ type: 'spki', format: 'pem' })
    const answer: Record<string, string> = {
      ...{ verdict, reason, salt, credential: credential.toString('base64') },
      ...(sealed.length > 0 ? { sealed: sealed.toString('base64') } : {}),
      exchange: derOf(own.publicKey).toString('base64'),
      key: Buffer.from(pem).toString('base64'),
      signature: sign('sha256', Buffer.from(said), (signedBy ?? { privateKey }).privateKey).toString('base64')
    }
    altered?.(answer)
    return answer
  }
}

function file(name: string, data: Buffer): string {
  writeFileSync(join(directory, name), data)
  return join(directory, name)
}

/** A TPM sends the same ones at each boot: what the tools say of them is asked once. */
const looked = new Map<string, Promise<string>>()
function lookedAt(certificate: string, ak: string): Promise<string> {
  const both = `${certificate} ${ak}`
  const look = async () => {
    await output('tpm2', ['print', '-t', 'TPM2B_PUBLIC', file('ak', bytes(ak))])
    const path = file('ek.crt', bytes(certificate))
    return output('openssl', ['asn1parse', '-inform', 'DER', '-in', path])
  }
  const found = looked.get(both) ?? look()
  looked.set(both, found)
  return found
}

interface Credential {
  readonly secret: Buffer
  readonly credential: Buffer
}

/** Two for each key, in turn, so that the secret of an answer is never that of the one before it. */
const credentials = new Map<string, Promise<Credential>>()
let turn = 0
function credentialFor(ek: string, name: string): Promise<Credential> {
  const which = `${ek} ${name} ${++turn % 2}`
  const make = async () => {
    const secret = randomBytes(32)
    const into = join(directory, 'credential')
    await output('tpm2', [
      ...['makecredential', '-Q', '-T', 'none', '-u', file('ek', bytes(ek)), '-s', file('secret', secret)],
      ...['-n', name, '-o', into]
    ])
    return { secret, credential: readFileSync(into) }
  }
  const found = credentials.get(which) ?? make()
  credentials.set(which, found)
  return found
}

let svcd = new Svcd()
const server = createServer(async (request, response) => {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part)
  const { status, text } = await svcd.answer(request.url ?? '', Buffer.concat(parts))
  response.writeHead(status, { 'content-length': Buffer.byteLength(text) }).end(text)
}).listen(0, '127.0.0.1')
await once(server, 'listening')
t.teardown(() => {
  server.closeAllConnections()
  server.close()
})
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`

// The parts of the node's side, which end in these commands instead of the boot. Without pauses the guard of a
// download counts its seconds too fast, and a svcd that takes a moment would be asked again.
const parts = join(directory, 'svc')
mkdirSync(parts)
for (const name of readdirSync(join(checkout, 'dracut/90svc')))
  copyFileSync(join(checkout, 'dracut/90svc', name), join(parts, name))
const main = readFileSync(join(parts, 'svc-node.sh'), 'utf8')
t.match(main, /\nmain\n$/)
writeFileSync(
  join(parts, 'svc-node.sh'),
  main.replace(
    /\nmain\n$/,
    `
PATH=$BIN
tpm2() { TPM2TOOLS_TCTI=swtpm:path=$SWTPM /usr/bin/tpm2 "$@"; }
uptime_seconds() { echo 20 >> /run/clock; wc -l < /run/clock | sed 's/$/0/'; }
sleep() { :; }
watch_growth() { :; }
name_host() { :; }
restart_machine() { echo RESTARTED; exit; }
mkdir -p "$_TMP"
step arguments read_arguments && step choice choose_node && step trust prove_machine && step script fetch_script || echo "FAILED $_STEP: $_REASON"
echo "script: $(cat "$_TMP/install" 2>&1)"
echo "mode: $(stat -c %a "$_TMP/install" 2>&1)"
echo "left: $(ls "$_TMP")"
[ -z "$END" ] || { eval "$END"; end_proofs; echo "the node goes on"; }
`
  )
)

const sandbox = `
mount -t tmpfs run /run
mount --bind "$1/cmdline" /proc/cmdline
mount -t tmpfs security /sys/kernel/security
mkdir /sys/kernel/security/tpm0
cp "$1/log" /sys/kernel/security/tpm0/binary_bios_measurements
mkdir /run/dev
cp -a /dev/null /dev/console /run/dev
mount --bind /run/dev /dev
[ -z "$SWTPM" ] || touch /dev/tpm0
shift
exec "$@"
`
file('log', log)

const shells: Readonly<Record<string, readonly string[]>> = {
  bash: ['bash'],
  dash: ['dash'],
  ash: ['busybox', 'ash'],
  klibc: ['/usr/lib/klibc/bin/sh']
}

/** Runs the steps up to the install script. */
async function boot(
  shell: string,
  policy: string,
  words = `svc.key=${fingerprint}`,
  withTpm = true,
  end = ''
) {
  const bin = join(directory, `bin-${shell}`)
  if (!readdirSync(directory).includes(`bin-${shell}`)) {
    mkdirSync(bin)
    const tools = busyboxApplets(locate('busybox') ?? '')
    if (shell !== 'ash')
      for (const name of ['sed', 'tr', 'head', 'od', 'base64']) tools.set(name, locate(name) ?? '')
    if (shell === 'bash' || shell === 'klibc') tools.set('curl', locate('curl') ?? '')
    if (shell === 'dash') tools.set('wget', locate('wget') ?? '')
    tools.set('openssl', locate('openssl') ?? '')
    for (const [name, target] of tools) symlinkSync(target, join(bin, name))
  }
  const net = 'svc.bootproto=dhcp svc.mac=52:54:00:15:00:01'
  writeFileSync(
    join(directory, 'cmdline'),
    `root=svc ${net} svc.url=${url} svc.node=node001 svc.trust=${policy} ${words}\n`
  )
  const { stdout } = await promisify(execFile)(
    'unshare',
    [
      ...['--mount', '--propagation', 'private', '--uts', 'sh', '-euc', sandbox, 'sh', directory],
      ...(shells[shell] ?? []),
      join(parts, 'svc-node.sh')
    ],
    { env: { PATH: process.env.PATH, BIN: bin, SWTPM: withTpm ? socket : '', END: end } }
  )
  return stdout
}

const socket = join(directory, 'tpm.socket')
let tpm: Child
t.before(async () => {
  const state = join(directory, 'tpm')
  mkdirSync(state)
  await output('swtpm_setup', ['--tpm2', '--tpmstate', state, '--create-ek-cert', '--overwrite'])
  tpm = await startChild(
    [
      ...[
        'swtpm',
        'socket',
        '--tpm2',
        '--tpmstate',
        `dir=${state}`,
        '--flags',
        'not-need-init,startup-clear'
      ],
      ...['--server', `type=unixio,path=${socket}`, '--ctrl', `type=unixio,path=${socket}.ctrl`],
      ...['--pid', `file=${state}/pid`, '--log', 'fd=1,level=1']
    ],
    () => readdirSync(directory).includes('tpm.socket.ctrl')
  )
})
t.teardown(() => tpm?.stop())

const sealedScript = /script: #!\/bin\/sh\n: the token and the password\nmode: 600\nleft: [^/]*\binstall\b/

const pcr9 = async () => {
  const into = join(directory, 'pcr9')
  await output('tpm2', ['pcrread', '-Q', '-T', `swtpm:path=${socket}`, 'sha256:9', '-o', into])
  return readFileSync(into)
}

/** The first quote of each of these boots said this of the PCRs. Each boot changed them at its end. */
const firstQuotes: (string | undefined)[] = []
for (const shell of Object.keys(shells))
  t.test(`${shell}: an unknown TPM proves its keys, and then gets the script`, async t => {
    svcd = new Svcd()
    const before = await pcr9()
    const said = await boot(shell, 'require', undefined, true, ':')
    t.match(said, sealedScript)
    t.notMatch(said, /left: .*trust/s, 'no secret is left')
    t.match(said, 'svc: trust: good')
    t.match(said, /left: [a-z\n]*\nthe node goes on\n$/)
    const over = createHash('sha256').update('svcd: the initramfs is over').digest()
    const after = createHash('sha256').update(before).update(over).digest()
    t.ok((await pcr9()).equals(after), 'PCR 9 is another one: what a boot can prove ends with the initramfs')
    const [first, second] = svcd.digests
    t.equal(second, first, 'but not before the initramfs does')
    firstQuotes.push(first)
    const once = ['/trust/node001/nonce', '/trust/node001/quote']
    t.strictSame(
      svcd.asked,
      [...once, '/trust/node001/proof', ...once],
      'no script in the clear was asked for',
      { said }
    )
  })

const nothing = /script: .*No such file/
const refusals: Readonly<Record<string, readonly [Wish, RegExp]>> = {
  'svcd does not know the TPM': [
    { verdict: 'unknown', reason: 'svcd does not know this machine\'s TPM: "svcctl node trust node001"' },
    /FAILED trust: .*: svcd does not know this machine's TPM: "svcctl node trust node001"/
  ],
  'the verdict is bad': [
    { verdict: 'bad', reason: 'PCR 9 differs: the initramfs, "a","sealed":"b"' },
    /FAILED trust: .*: PCR 9 differs: the initramfs/
  ],
  'another key signs': [{ signedBy: stranger, verdict: 'good' }, /its key is not that of svc\.key/],
  'another script': [
    {
      verdict: 'good',
      altered: answer => {
        answer.sealed = randomBytes(64).toString('base64')
      }
    },
    /the signature of svcd's answer is not right/
  ],
  'no script, though the verdict is good': [
    { verdict: 'good', withoutScript: true },
    /FAILED trust: .*: its verdict is good/
  ],
  'an answer without a credential': [
    {
      verdict: 'good',
      altered: answer => {
        delete answer.credential
      }
    },
    /FAILED trust/
  ],
  'the answer for another nonce': [
    {
      verdict: 'good',
      altered: answer => {
        answer.salt = '00'
      }
    },
    /the signature of svcd's answer is not right/
  ],
  'a credential for another key of the TPM': [
    { verdict: 'good', forAnother: true },
    /FAILED trust: .*tpm2 activatecredential: /
  ],
  "an answer that was recorded, for another boot's key": [
    { verdict: 'good', forBoot: 'replayed' },
    /the signature of svcd's answer is not right/
  ],
  "a script that is sealed for another boot's key": [
    { verdict: 'good', forBoot: 'sealed' },
    /the install script cannot be decrypted|is no script|not a script/
  ],
  'a nonce that is a command': [{ nonce: '$(touch /pwned)' }, /its nonce is no number/],
  'svcd refuses the quote': [{ refuses: 413 }, /FAILED trust: .*413/]
}
for (const [what, [wish, says]] of Object.entries(refusals))
  t.test(`require: ${what}: the script does not come`, async t => {
    svcd = new Svcd()
    svcd.wish = wish
    const said = await boot('bash', 'require')
    t.match(said, says)
    t.match(said, nothing)
    t.notMatch(svcd.asked.join(' '), '/boot/install')
  })

t.test('report: the plain script runs whatever the verdict is', async t => {
  svcd = new Svcd()
  svcd.wish = { verdict: 'bad', reason: 'PCR 9 differs' }
  const bad = await boot('dash', 'report')
  t.match(bad, 'svc: trust: bad: PCR 9 differs')
  t.match(bad, ': the plain script')
  svcd.wish = { signedBy: stranger }
  const foreign = await boot('dash', 'report')
  t.match(foreign, /svc: warning: trust: .*its key is not that of svc\.key/)
  t.match(foreign, ': the plain script')
})

// rules 15.8
t.test('report: a good boot runs the script that was decrypted, whose tokens outlast a change', async t => {
  // Each shell has decrypted a script above: what differs here is the policy.
  for (const shell of process.env.SVCD_LONG === undefined ? ['ash'] : Object.keys(shells)) {
    svcd = new Svcd()
    svcd.wish = { verdict: 'good' }
    const good = await boot(shell, 'report')
    t.match(good, sealedScript, shell)
    t.notMatch(svcd.asked.join(' '), '/boot/install')
  }
  for (const wish of [{ forBoot: 'sealed' }, { withoutScript: true }] as const) {
    svcd = new Svcd()
    svcd.wish = { verdict: 'good', ...wish }
    const said = await boot('dash', 'report')
    t.match(said, ': the plain script')
    t.equal(/warning: trust: .*(?:cannot be decrypted|is no script)/.test(said), 'forBoot' in wish)
  }
})

t.test('what a boot can prove ends with the initramfs', async t => {
  svcd = new Svcd()
  const broken = 'tpm2() { echo no TPM; return 1; }'
  const stopped = await boot('dash', 'require', undefined, true, broken)
  const quotes = [...firstQuotes, svcd.digests[0]]
  t.equal(new Set(quotes).size, quotes.length, 'a quote of the same boot of the TPM shows each end')
  t.match(stopped, /cannot be ended, so the node does not start: tpm2 pcrextend: no TPM; reboot in 60 s\n/)
  t.match(stopped, /RESTARTED\n$/)
  const reported = await boot('dash', 'report', undefined, true, broken)
  t.match(reported, /svc: warning: trust: .*: tpm2 pcrextend: no TPM\nthe node goes on\n$/)
  const still = await pcr9()
  const untouched = [boot('dash', 'report', undefined, false, ':'), boot('bash', 'none', '', true, ':')]
  for (const said of await Promise.all(untouched)) t.match(said, /\nthe node goes on\n$/)
  t.ok((await pcr9()).equals(still))
})

t.test('a machine without a TPM, and an image without the programs', async t => {
  svcd = new Svcd()
  const none = await boot('bash', 'require', undefined, false)
  t.match(none, /FAILED trust: this machine has no TPM 2\.0 that the kernel knows/)
  t.match(none, nothing)
  t.strictSame(svcd.asked, [])
  t.match(await boot('bash', 'none', ''), ': the plain script')
  for (const [policy, words, says] of [
    ['require', '', /svc\.key= is not a SHA-256 sum/],
    ['always', '', /svc\.trust=always is not none, report or require/],
    ['none', 'svc.pin=12', /svc\.pin=12 is not a SHA-256 sum/]
  ] as const)
    t.match(await boot('bash', policy, words), says)
})

// rules 15.9
t.test("a machine that was chosen in GRUB's menu becomes that node, or is told why not", async t => {
  svcd = new Svcd()
  const manual = '/boot/manual/hostname/node001/52:54:00:15:00:01'
  t.match(await boot('dash', 'none', 'svc.manual=1'), ': the plain script')
  t.strictSame(svcd.asked, [manual, '/boot/install/node001'])
  svcd.asked.length = 0
  svcd.wish = {
    choice:
      '#!ipxe\necho svcd: node node001: this machine cannot be booted\necho svcd: node001 has a machine\n'
  }
  for (const shell of ['ash', 'klibc']) {
    const said = await boot(shell, 'none', 'svc.manual=1')
    t.match(said, /FAILED choice: svcd does not make this machine node001: .*node001 has a machine/)
    t.match(said, nothing)
  }
  t.strictSame(svcd.asked, [manual, manual])
})
