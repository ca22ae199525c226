import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  writeFileSync
} from 'node:fs'
import { join } from 'node:path'
import { connect } from 'node:tls'
import t from 'tap'
import { Certificate, type CertificateFiles, expiry, isFor, readPair } from '../../lib/http/certificate.js'
import { makeCertificate } from '../support/certificate.js'
import { output } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { memoryLog, RawClient, route, start } from './helpers.js'

const directory = scratch(t)
const at = (name: string) => join(directory, name)
const made = makeCertificate(directory, 'one')
const other = makeCertificate(directory, 'two')

// rules 2.18
t.test('what is no certificate with its key is refused; the message names file and remedy', async t => {
  const [one, two] = [await made, await other]
  const write = (name: string, text: string | Buffer, mode = 0o600) => {
    writeFileSync(at(name), text)
    chmodSync(at(name), mode)
    return at(name)
  }
  const cert = readFileSync(one.certificate, 'utf8')
  const key = readFileSync(one.key, 'utf8')
  await output('openssl', ['pkcs8', '-topk8', '-in', one.key, '-out', at('locked'), '-passout', 'pass:x'])
  mkdirSync(at('open'))
  copyFileSync(one.key, at('open/key'))
  chmodSync(at('open'), 0o777)
  symlinkSync(at('open/key'), at('link'))
  symlinkSync(one.certificate, at('open/link'))
  const table: [Partial<CertificateFiles>, string | RegExp][] = [
    [
      { key: two.key },
      `${two.key} is not the key of ${one.certificate}: put both files of one certificate there`
    ],
    [
      { certificate: at('none') },
      `there is no file ${at('none')}; put it there, or leave [http] tls_certificate and tls_key empty`
    ],
    [
      { certificate: write('empty', '') },
      /empty holds no certificate in PEM form \(.+\): put the whole file there/
    ],
    [{ certificate: write('cut', cert.slice(0, 300)) }, /cut holds no certificate in PEM form/],
    [{ certificate: write('chain', cert + cert.slice(0, 300)) }, /chain cannot be used for TLS: /],
    [{ certificate: one.key }, /one\.key holds no certificate in PEM form/],
    [
      { key: write('cut.key', key.slice(0, 100)) },
      /cut\.key holds no private key without a passphrase in PEM form/
    ],
    [{ key: at('locked') }, /locked holds no private key without a passphrase in PEM form/],
    [{ key: directory }, /: it is not a regular file; move it away/],
    [
      { key: at('link') },
      `${at('open')} has mode 0777: others than its owner may replace the key in it; give it mode 0755 (chmod 0755 ${at('open')})`
    ],
    [
      { certificate: at('open/link') },
      `${at('open')} has mode 0777: others than its owner may replace the certificate in it; give it mode 0755 (chmod 0755 ${at('open')})`
    ],
    [
      { certificate: at('none'), key: directory },
      /^there is no file .*none; put it there, .*; .*: it is not a regular file; move it away/
    ]
  ]
  for (const [files, message] of table) await t.rejects(readPair({ ...one, ...files }), { message })
  for (const mode of [0o644, 0o604, 0o620, 0o660, 0o777]) {
    const text = `${write('key', key, mode)} has mode 0${mode.toString(8)}: others than its owner and its group may read or change it; give it mode 0640 (chmod 0640 ${at('key')})`
    await t.rejects(readPair({ ...one, key: at('key') }), { message: text })
  }
  for (const mode of [0o600, 0o400, 0o640, 0o440])
    await t.resolves(readPair({ ...one, key: write('key', key, mode) }))
  await t.resolves(
    readPair({ ...one, certificate: write('chain', cert + readFileSync(two.certificate, 'utf8')) })
  )
})

// rules 2.18
t.test('how long a certificate is good, and for whom', async t => {
  const pair = await readPair(await made)
  const [from, day] = [Date.parse(pair.certificate.validFrom), 86_400_000]
  t.equal(expiry(pair, from + day), undefined)
  t.equal(expiry(pair, from + 75 * day), undefined)
  t.match(expiry(pair, from + 77 * day), {
    over: false,
    text: /^expires at 20\d\d-\d\d-\d\d \d\d:\d\d UTC: renew it; /
  })
  t.match(expiry(pair, from + 91 * day), { over: true, text: /^has expired at .* renew it$/ })
  t.match(expiry(pair, from - day), {
    over: true,
    text: /^is not valid before .*: clients refuse it; check the clock$/
  })
  const short = await readPair(await makeCertificate(directory, 'short', 3))
  t.equal(expiry(short, Date.parse(short.certificate.validFrom) + day), undefined, 'a short life')
  t.match(expiry(short, Date.parse(short.certificate.validFrom) + 2.5 * day), { over: false })
  for (const host of ['one', '127.0.0.1']) t.ok(isFor(pair, host), host)
  for (const host of ['two', '127.0.0.2']) t.notOk(isFor(pair, host), host)
})

// rules 2.18
t.test('files that change are taken over, those that are no use are not, and no connection ends', async t => {
  const [one, two] = [await made, await other]
  const log = memoryLog()
  const files = { certificate: at('in-use.crt'), key: at('in-use.key') }
  const put = (from: string, to: string) => {
    copyFileSync(from, `${to}.new`)
    renameSync(`${to}.new`, to)
  }
  put(one.certificate, files.certificate)
  put(one.key, files.key)
  const certificate = await Certificate.open(files, { log, now: Date.now, everyMs: 5 })
  t.teardown(() => certificate.close())
  const { server } = await start(t, [route('GET', '/boot', () => ({ status: 200, text: 'here' }))])
  const { port } = await server.listenTls('127.0.0.1', 0, () => certificate.context)

  const client = async () => {
    const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false })
    await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject))
    return Object.assign(new RawClient(port, false, socket), {
      name: `${socket.getPeerCertificate().subject.CN}`
    })
  }
  const shown = async () => {
    const { name, socket } = await client()
    socket.destroy()
    return name
  }
  const kept = await client()
  const said = (pattern: RegExp) => log.lines.filter(line => pattern.test(line)).length
  t.equal(kept.name, 'one')

  put(two.certificate, files.certificate)
  await until(
    () => said(/^error TLS goes on with the certificate that was read before: .* is not the key of /) > 0
  )
  t.equal(await shown(), 'one', 'half of a pair')
  put(two.key, files.key)
  await until(() => said(/^info TLS has a new certificate from .*, valid until 20/) === 1)
  t.equal(await shown(), 'two', 'renamed over')
  const errors = said(/^error/)

  writeFileSync(files.certificate, readFileSync(one.certificate, 'utf8').slice(0, 200))
  await until(() => said(/^error .*holds no certificate in PEM form/) === 1)
  await new Promise(resolve => setTimeout(resolve, 100))
  t.equal(said(/^error/), errors + 1, 'said once')
  t.equal(await shown(), 'two', 'half written')
  unlinkSync(files.certificate)
  await until(() => said(/^error .*there is no file/) === 1)
  t.equal(await shown(), 'two', 'removed')

  for (const name of ['one', 'two']) {
    mkdirSync(at(`live-${name}`))
    copyFileSync(at(`${name}.crt`), at(`live-${name}/cert`))
    copyFileSync(at(`${name}.key`), at(`live-${name}/key`))
  }
  const link = (to: string) => {
    symlinkSync(to, at('live.new'))
    renameSync(at('live.new'), at('live'))
  }
  link('live-one')
  unlinkSync(files.key)
  symlinkSync('live/key', files.key)
  symlinkSync('live/cert', files.certificate)
  await until(() => said(/^info TLS has a new certificate/) === 2)
  t.equal(await shown(), 'one', 'links')
  link('live-two')
  await until(() => said(/^info TLS has a new certificate/) === 3)
  t.equal(await shown(), 'two', 'a link on the way set anew')
  chmodSync(at('live-two/key'), 0o644)
  await until(
    () => said(/^error .* has mode 0644: others than its owner and its group may read or change it/) === 1
  )

  t.match(await kept.send('GET /boot HTTP/1.1\r\nHost: a\r\n\r\n').response(), { status: 200, body: 'here' })
  kept.socket.destroy()
})

// rules 2.18
t.test('a certificate near its end is a warning a day', async t => {
  const files = await made
  const { certificate: x509 } = await readPair(files)
  let now = Date.parse(x509.validTo) - 10 * 86_400_000
  const log = memoryLog()
  const certificate = await Certificate.open(files, { log, now: () => now, everyMs: 1 })
  t.teardown(() => certificate.close())
  await new Promise(resolve => setTimeout(resolve, 50))
  t.match(log.lines, [/^warn .*one\.crt expires at /])
  now += 11 * 86_400_000
  await until(() => log.lines.length === 2)
  t.match(log.lines[1], /^warn .*one\.crt has expired at /)
})
