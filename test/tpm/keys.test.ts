import { createPublicKey, X509Certificate } from 'node:crypto'
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkEkCertificate } from '../../lib/tpm/certificate.js'
import { TpmError } from '../../lib/tpm/cursor.js'
import { makeCredential, parsePublic } from '../../lib/tpm/keys.js'
import { checkQuote, pcrDigest } from '../../lib/tpm/measurements.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { attesting, startTpm } from '../support/tpm.js'

// Keys, quotes, credentials and EK certificates of swtpm, made by tpm2-tools (rules 15.11).

const authority = scratch(t)
const [own, other] = [await startTpm(t, { authority }), await startTpm(t)]
for (const tpm of [own, other])
  for (const kind of ['rsa', 'ecc'])
    await tpm.tool('createek', '-Q', '-G', kind, '-c', `${kind}.ctx`, '-u', `${kind}.pub`, '-f', 'tss')
/** swtpm_setup makes this one, for P-384. */
const P384 = '0x81010016'
await own.tool('readpublic', '-Q', '-c', P384, '-f', 'tss', '-o', 'p384.pub')
const [rsa, ecc, p384] = ['rsa', 'ecc', 'p384'].map(name => parsePublic(own.read(`${name}.pub`)))
const [ak, rsaAk] = [
  parsePublic(await own.key('ak')),
  parsePublic(await own.key('rsa-ak', 'rsa2048:rsassa-sha256:null'))
]
if (!rsa || !ecc || !p384) throw new Error('no keys')
const nonce = 'a1'.repeat(32)

/** Each byte of it changed, in each of its places. */
function* damaged(bytes: Buffer) {
  for (const at of bytes.keys()) {
    const copy = Buffer.from(bytes)
    copy.writeUInt8(copy.readUInt8(at) ^ (1 << (at % 8)), at)
    yield copy
  }
}

t.test('public areas: the names and keys that the TPM tells', async t => {
  for (const [name, found] of [['ak', ak] as const, ['rsa-ak', rsaAk] as const]) {
    t.same(found.name, own.read(`${name}.name`))
    t.same(parsePublic(own.read(`${name}.pub`)).name, found.name)
    t.ok(found.key.equals(createPublicKey(own.read(`${name}.pem`))))
    t.match(found, { isAttestationKey: true, isEndorsementKey: false })
  }
  const spki = await output('sh', [
    '-c',
    `openssl pkey -pubin -in ${own.directory}/ak.pem -outform der | sha256sum`
  ])
  t.equal(ak.spkiSha256, spki.split(' ', 1)[0])
  for (const [found, bits] of [[rsa, 128] as const, [ecc, 128] as const, [p384, 256] as const])
    t.match(found, { isAttestationKey: false, isEndorsementKey: true, aesBits: bits })
  t.match(
    [rsa, ecc, p384],
    [{ kind: 'rsa' }, { kind: 'ecc', nameHash: 'sha256' }, { kind: 'ecc', nameHash: 'sha384' }]
  )
  await own.key('again')
  t.same(parsePublic(own.read('again.pub')).name, ak.name, 'the template gives the same key each time')
})

t.test('public areas: keys that are no attestation key, and no endorsement key', async t => {
  const others: readonly (readonly [algorithm: string, attributes: string])[] = [
    ['ecc256:ecdsa-sha256:null', attesting.replace('|restricted', '')],
    ['ecc256:ecdsa-sha256:null', attesting.replace('fixedtpm|fixedparent|', '')],
    ['ecc256:ecdsa-sha1:null', attesting],
    ['ecc256:ecdsa-sha384:null', attesting],
    ['ecc256:null:null', attesting.replace('restricted|sign', 'sign')],
    ['rsa2048:null:null', attesting.replace('restricted|sign', 'sign|decrypt')],
    ['rsa2048:null:null', attesting.replace('restricted|sign', 'decrypt')]
  ]
  for (const [algorithm, attributes] of others) {
    const found = parsePublic(await own.key('other', algorithm, attributes))
    t.match(found, { isAttestationKey: false, isEndorsementKey: false }, `${algorithm} ${attributes}`)
    t.throws(
      () => checkQuote(found, Buffer.alloc(0), Buffer.alloc(0)),
      /^public area: of the attestation key is not/
    )
    t.throws(
      () => makeCredential(found, ak.name, Buffer.alloc(32)),
      /^public area: of the endorsement key is not/
    )
  }
})

t.test('public areas: what is refused', async t => {
  const [area, point] = [own.read('rsa.pub'), own.read('ak.pub')]
  const changed = (bytes: Buffer, at: number, ...values: number[]) => {
    const copy = Buffer.from(bytes)
    copy.set(values, at)
    return copy
  }
  const refused: readonly (readonly [Buffer, RegExp])[] = [
    [Buffer.alloc(1025), /^public area: its size is 1025 bytes; the most are 1024$/],
    [Buffer.alloc(0), /its size needs 2 bytes, and 0 are left/],
    [Buffer.concat([area, Buffer.alloc(1)]), /its end has 1 bytes too many/],
    [area.subarray(0, -1), /its size needs 314 bytes, and 313 are left/],
    [changed(area, 2, 0, 8), /type is 0x0008, neither RSA nor ECC/],
    [changed(area, 4, 0, 4), /name algorithm is 0x0004/],
    [changed(area, 44, 0, 0x26), /symmetric algorithm is 0x0026, and not 0x0006: AES/],
    [changed(area, 46, 0, 192), /symmetric key has 192 bits/],
    [changed(area, 48, 0, 0x44), /symmetric mode is 0x0044, and not 0x0043: CFB/],
    [changed(area, 52, 4, 0), /size of the key is 1024 bits/],
    [changed(area, 54, 0, 0, 0, 3), /exponent is 3/],
    [changed(area, 54, 0, 1, 0, 0), /exponent is 65536/],
    [changed(area, 60, 0), /modulus is not that of an RSA key of 2048 bits/],
    [changed(area, area.length - 1, 0), /modulus is not that of an RSA key of 2048 bits/],
    [changed(point, 14, 0, 0x1a), /scheme is 0x001a, neither RSASSA nor ECDSA/],
    [changed(point, 18, 0, 5), /curve is 0x0005, neither P-256 nor P-384/],
    [changed(point, 24, point.readUInt8(24) ^ 1), /key is no point of its curve/]
  ]
  const both = parsePublic(changed(point, 7, 0x07))
  t.match(both, { isAttestationKey: false, isEndorsementKey: false }, 'no TPM has a restricted key for both')
  t.equal(parsePublic(changed(area, 7, 0x02)).isEndorsementKey, false, 'it opens what others encrypted, too')
  for (const [bytes, message] of refused) t.throws(() => parsePublic(bytes), message, String(message))
  t.throws(() => parsePublic(Buffer.alloc(0)), TpmError)
})

t.test('quotes: what the TPM signed, and every changed byte', async t => {
  await own.tool('pcrextend', `9:sha256=${'5a'.repeat(32)}`)
  await own.tool('pcrread', 'sha256:0,1,2,3,4,5,6,7,8,9,14', '-o', 'values')
  const pcrs = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14]
  const values = new Map(pcrs.map((pcr, i) => [pcr, own.read('values').subarray(32 * i, 32 * i + 32)]))
  t.not(values.get(9)?.equals(Buffer.alloc(32)), true)
  for (const [name, key] of [['ak', ak] as const, ['rsa-ak', rsaAk] as const]) {
    const [quote, signature] = await own.quote(name, nonce)
    const found = checkQuote(key, quote, signature)
    const clock = String(await own.tool('readclock'))
    const resets = Number(/reset_count: (\d+)/.exec(clock)?.[1])
    t.same(found, { nonce: Buffer.from(nonce, 'hex'), pcrs, digest: pcrDigest(values, pcrs), resets })
    t.same(
      found.digest,
      pcrDigest(values, [...pcrs].reverse()),
      'the order of the PCRs is that of their numbers'
    )
    for (const changed of damaged(quote)) t.throws(() => checkQuote(key, changed, signature), TpmError)
    for (const changed of damaged(signature)) t.throws(() => checkQuote(key, quote, changed), TpmError)
    for (const end of quote.keys())
      t.throws(() => checkQuote(key, quote.subarray(0, end), signature), TpmError)
    for (const end of signature.keys())
      t.throws(() => checkQuote(key, quote, signature.subarray(0, end)), TpmError)
    const longer = (bytes: Buffer) => Buffer.concat([bytes, Buffer.alloc(1)])
    t.throws(() => checkQuote(key, longer(quote), signature), /^quote: its end has 1 bytes too many$/)
    t.throws(() => checkQuote(key, quote, longer(signature)), /^signature: its end has 1 bytes too many$/)
  }
})

t.test('quotes of others, of other banks, and other words of the same key', async t => {
  const foreign = parsePublic(await other.key('ak'))
  const [quote, signature] = await other.quote('ak', nonce)
  t.ok(checkQuote(foreign, quote, signature))
  t.throws(() => checkQuote(ak, quote, signature), /^signature: value is not by the attestation key/)
  t.throws(() => checkQuote(rsaAk, quote, signature), /^signature: scheme is 0x0018, and not 0x0014/)
  const wrongBanks = {
    'sha256:0+sha384:0': /banks is 0x0002/,
    'sha384:0': /PCR bank is 0x000c, and not 0x000b: sha256/
  }
  for (const [pcrs, message] of Object.entries(wrongBanks)) {
    const [quote, signature] = await own.quote('ak', nonce, pcrs)
    t.throws(() => checkQuote(ak, quote, signature), message)
  }
  const files = ['-o', 'certified', '-s', 'certified.signature']
  await own.tool('certify', '-Q', '-c', 'rsa-ak.ctx', '-C', 'ak.ctx', '-g', 'sha256', ...files)
  t.throws(
    () => checkQuote(ak, own.read('certified'), own.read('certified.signature')),
    /^quote: type is 0x8017, and not 0x8018: a quote$/
  )
  t.comment('a restricted key signs no quote that was made by hand; one that is not restricted does')
  await own.key('free', 'ecc256:ecdsa-sha256:null', attesting.replace('|restricted', ''))
  const [made] = await own.quote('ak', nonce)
  writeFileSync(join(own.directory, 'made'), made)
  const byHand = (key: string) =>
    own.tool('sign', '-Q', '-c', key, '-g', 'sha256', '-o', 'made.signature', 'made')
  await t.rejects(byHand('ak.ctx'))
  await byHand('free.ctx')
  t.throws(
    () => checkQuote(parsePublic(own.read('free.pub')), made, own.read('made.signature')),
    /restricted/
  )
})

t.test('credentials: opened by this TPM with this key alone', async t => {
  const secret = Buffer.from('0123456789abcdef0123456789abcdef')
  for (const [ek, at] of [[rsa, 'rsa.ctx'] as const, [ecc, 'ecc.ctx'] as const, [p384, P384] as const]) {
    const credential = makeCredential(ek, ak.name, secret)
    t.same(await own.open(credential, 'ak', at), secret, at)
    t.notSame(makeCredential(ek, ak.name, secret), credential, 'each has a seed of its own')
    await t.rejects(own.open(credential, 'rsa-ak', at), /integrity check failed/, 'not with another key')
    if (at !== P384)
      await t.rejects(other.open(credential, 'ak', at), /tpm2_activatecredential/, 'not by another TPM')
    t.throws(
      () => makeCredential(ek, ak.name, Buffer.alloc(ek.name.length - 1)),
      /^credential: secret has \d+ bytes/
    )
  }
})

t.test('EK certificates of swtpm', async t => {
  const pem = (name: string) => new X509Certificate(readFileSync(join(authority, name)))
  const [issuer, root] = [pem('issuer.pem'), pem('swtpm-localca-rootca-cert.pem')]
  const der = own.read('ek-rsa2048.crt')
  const check =
    (bytes = der, { ek = rsa, from = [root, issuer], now = Date.now() } = {}) =>
    () =>
      checkEkCertificate(bytes, ek, from, now)
  check()()
  check(own.read('ek-secp384r1.crt'), { ek: p384 })()
  t.comment('some TPMs fill the memory behind it')
  check(Buffer.concat([der, Buffer.alloc(300, 0xff)]))()
  const year = 365 * 86_400_000
  t.throws(check(der, { now: Date.now() - year }), /^EK certificate: time is from /)
  t.throws(
    check(der, { now: Date.UTC(10_000, 5) }),
    /^EK certificate: time is from .* to Dec 31 23:59:59 9999 GMT$/
  )
  t.throws(check(der, { ek: ecc }), /^EK certificate: key is another one/)
  t.throws(check(other.read('ek-rsa2048.crt')), /^EK certificate: key is another one/)
  t.throws(check(der, { from: [root] }), /^EK certificate: issuer is none of the authorities/)
  t.throws(check(der, { from: [] }), /^EK certificate: issuer is none of the authorities/)
  t.throws(check(Buffer.alloc(4097)), /^EK certificate: its size is 4097 bytes/)
  const sequence = (...parts: readonly Buffer[]) => {
    const content = Buffer.concat(parts)
    return Buffer.concat([Buffer.from([0x30, 0x82, content.length >> 8, content.length & 255]), content])
  }
  const pemInside = sequence(
    sequence(Buffer.from(`\n${new X509Certificate(der)}`)),
    sequence(Buffer.from('06092a864886f70d01010b0500', 'hex'))
  )
  t.ok(new X509Certificate(pemInside), 'node:crypto finds it')
  t.throws(check(pemInside), /^EK certificate: its structure is not that of a certificate$/)
  for (const bytes of damaged(der)) t.throws(check(bytes), TpmError)
  for (const end of der.keys()) t.throws(check(der.subarray(0, end)), TpmError)
})

t.test('EK certificates that were forged', async t => {
  const directory = scratch(t)
  for (const name of ['issuer.pem', 'signkey.pem']) copyFileSync(join(authority, name), join(directory, name))
  writeFileSync(join(directory, 'ek.pem'), rsa.key.export({ type: 'spki', format: 'pem' }))
  const ssl = (...words: readonly string[]) => output('openssl', words, { cwd: directory })
  await ssl(
    'req',
    '-new',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-subj',
    '/CN=x',
    '-keyout',
    'x.key',
    '-out',
    'x.csr'
  )
  const forgery = async (extensions: string, by: readonly string[], ...words: readonly string[]) => {
    writeFileSync(join(directory, 'ext'), extensions)
    const out = ['-extfile', 'ext', '-outform', 'der', '-out', 'made.crt']
    await ssl(
      'x509',
      '-req',
      '-in',
      'x.csr',
      '-force_pubkey',
      'ek.pem',
      ...by,
      '-days',
      '9',
      ...out,
      ...words
    )
    return readFileSync(join(directory, 'made.crt'))
  }
  const ca = (name: string, key: string) => ['-CA', name, '-CAkey', key, '-CAcreateserial']
  const real = ca('issuer.pem', 'signkey.pem')
  const usage = 'extendedKeyUsage=2.23.133.8.1\n'
  const pem = (name: string) => new X509Certificate(readFileSync(join(directory, name)))
  const issuer = pem('issuer.pem')
  const check =
    (der: Buffer, from = [issuer]) =>
    () =>
      checkEkCertificate(der, rsa, from)

  t.comment('by the authority')
  check(await forgery(usage, real))()
  check(await forgery(`${usage}1.2.3.4=critical,ASN1:NULL\n`, real))()
  check(await forgery('subjectAltName=critical,dirName:maker\n[maker]\n0.2.23.133.2.1=id:00001014\n', real))()
  t.throws(
    check(await forgery('extendedKeyUsage=serverAuth\n', real)),
    /purpose is not that of an endorsement key/
  )
  t.throws(
    check(await forgery('keyUsage=keyEncipherment\n', real)),
    /purpose is not that of an endorsement key/
  )
  t.throws(check(await forgery(`${usage}basicConstraints=CA:TRUE\n`, real)), /purpose is not that/)
  t.throws(check(await forgery(usage, real, '-sha1')), /signature has an algorithm that is not trusted/)

  t.comment('by one that has its name alone, and by one that is no authority')
  const self = ['req', '-x509', '-nodes', '-subj', '/CN=swtpm-localca']
  for (const [name, is] of [
    ['fake', 'TRUE'],
    ['leaf', 'FALSE']
  ] as const) {
    const words = ['-newkey', 'rsa:2048', '-keyout', `${name}.key`, '-out', `${name}.pem`, '-days', '2']
    await ssl(...self, ...words, '-addext', `basicConstraints=critical,CA:${is}`)
  }
  const fake = await forgery(usage, ca('fake.pem', 'fake.key'))
  t.throws(check(fake), /^EK certificate: (signature is not by its issuer|issuer is none of the authorities)/)
  check(fake, [issuer, pem('fake.pem')])()
  t.comment('an authority whose time is over, and the same one with a new certificate')
  const later = Date.now() + 5 * 86_400_000
  const isCa = ['-addext', 'basicConstraints=critical,CA:TRUE']
  await ssl(...self, '-key', 'fake.key', '-out', 'renewed.pem', '-days', '30', ...isCa)
  const [old, renewed] = [pem('fake.pem'), pem('renewed.pem')]
  t.throws(() => checkEkCertificate(fake, rsa, [old], later), /^EK certificate: issuer is not valid now$/)
  checkEkCertificate(fake, rsa, [old, renewed], later)
  const leaf = await forgery(usage, ca('leaf.pem', 'leaf.key'))
  t.throws(check(leaf, [pem('leaf.pem')]), /^EK certificate: issuer is no authority/)
})
