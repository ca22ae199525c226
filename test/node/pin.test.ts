import { execFile } from 'node:child_process'
import { createHash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { makeCertificate } from '../support/certificate.js'
import { busyboxApplets } from '../support/node-root.js'
import { checkout, locate, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

// rules 15.10

requirePrograms('curl', 'wget', 'busybox', 'dash', '/usr/lib/klibc/bin/sh')

const directory = scratch(t)
const files = await makeCertificate(directory, 'svcd')
const [cert, key] = [readFileSync(files.certificate), readFileSync(files.key)]
const bodies: string[] = []
const server = createServer({ cert, key }, async (request, response) => {
  let body = ''
  for await (const part of request) body += part
  bodies.push(`${request.method} ${body}`)
  response.end('the answer')
}).listen(0, '127.0.0.1')
await once(server, 'listening')
t.teardown(() => {
  server.closeAllConnections()
  server.close()
})
const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/x`
const spki = new X509Certificate(cert).publicKey.export({ type: 'spki', format: 'der' })
const pin = createHash('sha256').update(spki).digest('hex')
// 0x00 and 0x0a are bytes that a shell may lose.
const wrong = `000a${pin.slice(4)}`

const script = `
. ${join(checkout, 'dracut/90svc/svc-http.sh')}
log() { echo "log $*"; }
complain() { echo "complain $*"; }
INSECURE='' _STALL=5 _LONGEST=20
one() { http_request "$U" "$_TMP/answer" "$@" && cat "$_TMP/answer" && echo || echo "refused: $http_cause"; rm -f "$_TMP/answer"; }
printf '{"a":"%070000d"}' 7 > "$_TMP/body"
for SVC_PIN in '' "$RIGHT" "$WRONG" "$WRONG,$RIGHT"; do
  find_http
  one
  INSECURE=-k
done
one "@$_TMP/body"
echo "$_PINS"
. ${join(checkout, 'templates/install/lib/settings.sh')}
. ${join(checkout, 'templates/install/lib/running.sh')}
conf=$_TMP/conf
settings_text "$U" node001 token '' > "$conf"
SVC_PIN=''
settings && echo "$SVC_PIN"
eval "set -- $(running_check curl)"
echo "$# $3"
`

const programs = {
  curl: ['/usr/lib/klibc/bin/sh'],
  'GNU wget': ['dash'],
  'busybox wget': ['busybox', 'ash']
} as const

for (const [program, shell] of Object.entries(programs))
  t.test(`${program}: the key of the controller's certificate counts, and no authority`, async t => {
    const bin = join(directory, program.replace(' ', '-'))
    const temporary = join(bin, 'tmp')
    for (const path of [bin, temporary]) mkdirSync(path)
    const tools = busyboxApplets(locate('busybox') ?? '')
    const real = { curl: 'curl', 'GNU wget': 'wget' }[program]
    if (real !== 'wget') tools.delete('wget')
    if (program === 'busybox wget') tools.set('wget', locate('busybox') ?? '')
    else tools.set(real ?? '', locate(real ?? '') ?? '')
    for (const [name, target] of tools) symlinkSync(target, join(bin, name))
    bodies.length = 0
    const [first = '', ...args] = [...shell, '-c', script]
    const env = { PATH: bin, LC_ALL: 'C', U: url, _TMP: temporary, RIGHT: pin, WRONG: wrong }
    const { stdout } = await promisify(execFile)(locate(first) ?? first, args, { env })
    const [unpinned = '', right, other, list, posted, pins, kept, words] = stdout.trimEnd().split('\n')
    const base64 = (hex: string) => `sha256//${Buffer.from(hex, 'hex').toString('base64')}`
    t.equal(pins, `${base64(wrong)};${base64(pin)}`)
    t.equal(kept, `${wrong},${pin}`, 'the programs that stay on the node have it')
    t.equal(words, `3 ${pins}`, 'the report that the system is up has it as one word')
    if (program === 'busybox wget') {
      for (const line of [right, other, list, posted])
        t.match(
          line,
          'refused: busybox wget cannot compare the key of a certificate: install curl in the image'
        )
      return
    }
    t.match(unpinned, /^refused: /, 'nobody vouches for the certificate')
    t.equal(right, 'the answer')
    t.match(other, /^refused: .*pinned/i, 'with -k, too')
    t.equal(list, 'the answer')
    t.equal(posted, 'the answer')
    t.strictSame(
      bodies.map(body => body.length),
      [4, 4, `POST {"a":""}`.length + 70_000],
      'and the other one got no request'
    )
  })
