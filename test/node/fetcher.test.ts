import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { busyboxApplets } from '../support/node-root.js'
import { checkout, locate, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'

// The one fetcher of the initramfs, the installation and svc-files, by each program and shell that it may have.

requirePrograms('curl', 'wget', 'busybox', 'dash', '/usr/lib/klibc/bin/sh')

// They wait more than they work.
t.jobs = 3

const asked: string[] = []
const server = createServer((request, response) => {
  const { method, url = '', headers } = request
  asked.push(`${method} ${url} ${headers['x-access-tokens']}`)
  if (url === '/cut') {
    response.writeHead(200, { 'content-length': 99 })
    response.write('x', () => response.destroy())
  } else if (url === '/still') response.writeHead(200, { 'content-length': 99 }).write('x')
  else if (url === '/endless') {
    const timer = setInterval(() => response.write('x'.repeat(8192)), 100)
    response.on('close', () => clearInterval(timer))
  } else if (url === '/302') response.writeHead(302, { location: '/200-of-another' }).end()
  else if (url === '/200-of-another') response.end('stolen')
  else if (url === '/named') response.writeHead(200, { 'content-location': '/else' }).end('{}')
  else if (url === '/bare') response.socket?.end('no head at all\n')
  else if (url === '/heads') {
    response.socket?.write('HTTP/1.1 200 OK\r\n')
    const timer = setInterval(() => response.socket?.write(`x-y: ${'x'.repeat(8000)}\r\n`.repeat(20)), 5)
    response.socket?.on('close', () => clearInterval(timer))
  } else if (url.startsWith('/again')) {
    response.writeHead(503, { 'retry-after': url.slice(6) }).end('{}')
  } else response.writeHead(Number(url.slice(1))).end('{"message":"it\\nis \\"so\\"","code":"x-y"}\n')
}).listen(0, '127.0.0.1')
await once(server, 'listening')
t.teardown(() => {
  server.closeAllConnections()
  server.close()
})
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`

const script = `
. ${join(checkout, 'dracut/90svc/svc-http.sh')}
log() { echo "log $*"; }
complain() { echo "complain $*"; }
one() { http_request "$@" && echo ok || echo "$http_code: $http_cause"; }
INSECURE='' _STALL=60
find_http || exit
for path in 200 401 404 503 cut; do one "$U/$path" "$_TMP/answer"; done
one "$U/204" /dev/null '{"a":1}'
_STALL=1
one "$U/still" "$_TMP/answer"
_STALL=60 _LONGEST=1
one "$U/endless" "$_TMP/answer"
_LONGEST=8
one "$U/302" "$_TMP/answer"
one "$U/named" "$_TMP/answer"
one "$U/bare" "$_TMP/answer"
one "$U/heads" "$_TMP/answer"
wc -c < "$_TMP/head"
_LONGEST='' _PATIENCE=9
SVC_URL=$U _URLS=$U
for again in 0 008; do http_get "/again$again" "$_TMP/answer"; done
_PATIENCE=0
SVC_URL=http://127.0.0.1:9 _URLS="http://127.0.0.1:9 $U"
http_get /200 "$_TMP/answer" && echo "from $SVC_URL, then \${_URLS#* }"
http_get /500 "$_TMP/answer" || ls "$_TMP"
`
const said = ': it is "so"'
const refused = 'wget: server returned error: HTTP/1.1'
const late = (seconds: string) => new RegExp(`^200: nothing came for ${seconds}$`)
/** The program, a shell, and what is said of 401, 404, 503, an answer that is cut, still, or endless. */
const programs: Readonly<
  Record<string, readonly [shell: readonly string[], says: readonly (string | RegExp)[]]>
> = {
  curl: [
    ['dash'],
    [
      ...[`401: the controller answered 401${said}`, `404: the controller answered 404${said}`],
      ...[`503: the controller answered 503${said}`, /^200: curl: \(18\) /, /^200: curl: \(28\) .*too slow/],
      /^200: curl: \(28\) .*timed out/
    ]
  ],
  'GNU wget': [
    ['/usr/lib/klibc/bin/sh'],
    [
      // It keeps the text of no 401.
      ...['401: the controller answered 401', `404: the controller answered 404${said}`],
      ...[`503: the controller answered 503${said}`, '200: the answer was cut', late('1 s')],
      late('60 s, or not all in 1 s')
    ]
  ],
  'busybox wget': [
    ['busybox', 'ash'],
    [
      ...[`401: ${refused} 401 Unauthorized`, `404: ${refused} 404 Not Found`],
      ...[
        `503: ${refused} 503 Service Unavailable`,
        /^200: wget: connection closed prematurely/,
        late('1 s')
      ],
      late('60 s, or not all in 1 s')
    ]
  ]
}

/** Runs the script with that program alone; the others are busybox's. */
async function run(directory: string, program: string, shell: readonly string[]): Promise<string[]> {
  const bin = join(directory, 'bin')
  const temporary = join(directory, 'tmp')
  for (const name of [bin, temporary]) mkdirSync(name)
  const tools = busyboxApplets(locate('busybox') ?? '')
  if (program !== 'busybox wget') tools.delete('wget')
  const real = { curl: 'curl', 'GNU wget': 'wget' }[program]
  if (real !== undefined) tools.set(real, locate(real) ?? '')
  for (const [name, target] of tools) symlinkSync(target, join(bin, name))
  const [file = '', ...args] = [...shell, '-c', script]
  const env = { PATH: bin, LC_ALL: 'C', U: url, _TMP: temporary, SVC_TOKEN: shell[0] ?? '' }
  const { stdout } = await promisify(execFile)(locate(file) ?? file, args, { env })
  if (program !== 'busybox wget') t.match(readFileSync(join(temporary, 'http'), 'utf8'), shell[0])
  return stdout.trimEnd().split('\n')
}

for (const [program, [shell, says]] of Object.entries(programs))
  t.test(`requests by ${program}, ${shell.join(' ')}`, async t => {
    const lines = await run(scratch(t), program, shell)
    const [
      good,
      unauthorized,
      unknown,
      busy,
      cut,
      posted,
      still,
      endless,
      redirected,
      named,
      bare,
      heads,
      headBytes,
      atOnce,
      odd,
      next,
      from,
      gone,
      failed,
      ...left
    ] = lines
    t.strictSame([good, posted], ['ok', 'ok'])
    for (const [i, line] of [unauthorized, unknown, busy, cut, still, endless].entries()) {
      const expected = says[i] ?? ''
      if (typeof expected === 'string') t.equal(line, expected)
      else t.match(line, expected)
    }
    t.match(redirected, /302|it redirects/)
    t.equal(named, 'ok', 'Content-Location is no redirect')
    t.not(bare, 'ok')
    t.not(heads, 'ok')
    t.ok(Number(headBytes) <= 400_000, `${headBytes} bytes of head`)
    for (const line of [atOnce, odd]) t.match(line, /^complain cannot fetch .*503/, 'a pause that is none')
    t.match(next, new RegExp(`^log http://127\\.0\\.0\\.1:9: .*; trying ${url}$`))
    t.equal(from, `from ${url}, then http://127.0.0.1:9`)
    // The one that answered last is asked first, and each reason is named.
    t.match(gone, new RegExp(`^log ${url}: .*500.*; trying http://127\\.0\\.0\\.1:9$`))
    t.match(failed, new RegExp(`^complain cannot fetch ${url}/500: .*500.*; http://127\\.0\\.0\\.1:9/500: .`))
    t.notOk(left.includes('answer'), 'nothing is left of an answer that failed')
    t.ok(asked.includes(`POST /204 ${shell[0]}`), 'with its token')
    t.ok(asked.includes(`GET /200 ${shell[0]}`))
  })
