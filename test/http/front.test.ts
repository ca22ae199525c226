import { createHash } from 'node:crypto'
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { frontLocation } from '../../lib/http/files.js'
import { start } from '../support/child.js'
import { Controller } from '../support/controller.js'
import { freePort } from '../support/free-port.js'
import { checkout, output, requirePrograms } from '../support/programs.js'
import { scratch } from '../support/scratch.js'
import { until } from '../support/until.js'
import { isRefusal, RawClient, type WireResponse } from './helpers.js'

// rules 4.9
t.test('which files a front server has', async t => {
  const files = { directory: '/var/lib/svcd/files', location: '/svcd-files/' }
  const table: [string, string | undefined][] = [
    ['/var/lib/svcd/files/compute.tar.zst', '/svcd-files/compute.tar.zst'],
    ['/var/lib/svcd/files/a b%\n.tar', '/svcd-files/a%20b%25%0A.tar'],
    ['/var/lib/svcd/files', undefined],
    ['/var/lib/svcd/filesystem', undefined],
    ['/var/lib/svcd/secret.key', undefined],
    ['/etc/svcd/roles/login', undefined]
  ]
  for (const [path, location] of table) t.equal(frontLocation(files, path), location, path)
})

/**
 * The shipped configuration on ports of its own, with nothing else changed. If we are root its workers are
 * `user`.
 */
async function front(t: Test, c: Controller, user = 'root') {
  requirePrograms('nginx', 'openssl', 'curl')
  const directory = scratch(t)
  const at = (name: string) => join(directory, name)
  const [http, https] = [await freePort(), await freePort()]
  await output('openssl', [
    ...'req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=controller -addext subjectAltName=IP:127.0.0.1'.split(
      ' '
    ),
    ...['-keyout', at('tls.key'), '-out', at('tls.crt')]
  ])
  const shipped = readFileSync(join(checkout, 'etc/nginx-svcd.conf'), 'utf8')
  const changes: [string, string][] = [
    ['server 127.0.0.1:7050;', `server 127.0.0.1:${c.daemon.port};`],
    ['listen 80;', `listen 127.0.0.1:${http};`],
    ['listen 443 ssl;', `listen 127.0.0.1:${https} ssl;`],
    ['/etc/svcd/tls.crt', at('tls.crt')],
    ['/etc/svcd/tls.key', at('tls.key')],
    ['alias /var/lib/svcd/files/;', `alias ${c.directory}/files/;`]
  ]
  let site = shipped
  for (const [from, to] of changes) {
    t.equal(site.split(from).length, 2, `the shipped file says once: ${from}`)
    site = site.replace(from, to)
  }
  for (const name of ['body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']) mkdirSync(at(name))
  const temporary = ['body:client_body', 'proxy:proxy', 'fastcgi:fastcgi', 'uwsgi:uwsgi', 'scgi:scgi'].map(
    pair => {
      const [name, key] = pair.split(':') as [string, string]
      return `${key}_temp_path ${at(name)};`
    }
  )
  // Debian's own around it, with what the page says.
  const page = readFileSync(join(checkout, 'docs/security.md'), 'utf8')
  const [, most = ''] = /worker_connections \[0-9\]\*;\/(worker_connections \d+;)\//.exec(page) ?? []
  const [, files = ''] = /echo '(worker_rlimit_nofile \d+;)'/.exec(page) ?? []
  const conf = readFileSync('/etc/nginx/nginx.conf', 'utf8')
    .replace(/^user .*$/m, process.getuid?.() === 0 ? `user ${user};` : '')
    .replace(/^pid .*$/m, `daemon off; pid ${at('pid')};`)
    .replace(/^error_log .*$/m, 'error_log stderr;')
    .replace(/^include .*modules-enabled.*$/m, files)
    .replace(/worker_connections [0-9]*;/, most)
    .replace(/access_log .*;/, `access_log off; ${temporary.join(' ')}`)
    .replace(/^\s*include .*conf\.d.*$/m, '')
    .replace(/^\s*include .*sites-enabled.*$/m, () => site)
  writeFileSync(at('nginx.conf'), conf)
  const nginx = start('nginx', ['-c', at('nginx.conf'), '-e', 'stderr'])
  t.teardown(() => nginx.stop())
  const base = ['curl', '-sS', '-m', '20', '--cacert', at('tls.crt'), '-w', '\n%{http_code}']
  /** What curl gets, the status apart. */
  const ask = async (...args: string[]) => {
    const [program, ...words] = [...base, ...args] as [string, ...string[]]
    const text = await output(program, words)
    const cut = text.lastIndexOf('\n')
    return { status: Number(text.slice(cut + 1)), text: text.slice(0, cut) }
  }
  const urls = { http: `http://127.0.0.1:${http}`, https: `https://127.0.0.1:${https}` }
  await until(() =>
    ask(`${urls.http}/version`).then(
      ({ status }) => status === 200,
      () => false
    )
  )
  return { ask, urls, directory, log: () => nginx.output() }
}

// rules 4.5, 4.9
t.test('behind nginx with the shipped configuration', async t => {
  const c = await Controller.start(t, 'http.trusted_proxies=127.0.0.1', 'http.front_files=/svcd-files/')
  const { ask, urls, directory } = await front(t, c)
  const auth = ['-H', `x-access-tokens: ${c.token}`]
  await c.cluster()
  const bytes = Buffer.alloc(3_000_000, 'svcd ')
  c.file('compute.tar.gz', bytes)
  const sum = (data: Buffer) => createHash('sha256').update(data).digest('hex')

  t.same((await ask(`${urls.https}/version`)).status, 200, 'TLS')
  const version = await c.get('/version', { token: null })
  t.equal((await ask(`${urls.http}/version`)).text, version.text, 'what svcd answers is what the client gets')

  const got = join(directory, 'got')
  c.log.length = 0
  t.match(await ask(...auth, '-o', got, `${urls.http}/files/compute.tar.gz`), { status: 200 })
  t.equal(sum(readFileSync(got)), sum(bytes), 'the file is whole')
  t.match(c.log.join('\n'), /GET \/files\/compute\.tar\.gz 200 0 /, 'svcd sent no byte of it')
  t.match(await ask(...auth, '-r', '10-19', `${urls.http}/files/compute.tar.gz`), {
    status: 206,
    text: bytes.subarray(10, 20).toString()
  })
  t.match(await ask(...auth, '-I', `${urls.http}/files/compute.tar.gz`), {
    text: /Content-Length: 3000000\r/
  })
  t.match(await ask(...auth, `${urls.http}/files/none`), { status: 404, text: /names the packed image none/ })
  t.equal(
    (await ask(`${urls.http}/svcd-files/compute.tar.gz`)).status,
    404,
    'nobody asks nginx for files past svcd'
  )
  t.equal((await ask(`${urls.http}/svcd-files/..%2fstate/secret.key`)).status, 404)

  // A program on the controller itself, past nginx: svcd sends the file.
  const direct = await c.raw('GET', '/boot/vmlinuz')
  t.match(direct.headers, { 'content-length': '7', 'x-accel-redirect': undefined })

  // The address that a client claims is not passed on.
  await c.post('/config/node/n1', { group: 'compute' })
  c.log.length = 0
  await ask('-H', 'X-Forwarded-For: 10.141.0.1', `${urls.http}/boot/install/n1`)
  t.match(c.log.join('\n'), / 127\.0\.0\.1$/m, 'the client, as nginx saw it')
  t.notMatch(c.log.join('\n'), '10.141.0.1 ')

  t.match(await ask('-d', `@${got}`, `${urls.https}/token`), { status: 413, text: '"message"' })
  const wrong = ['-d', '{"username":"admin","password":"wrong"}', `${urls.https}/token`]
  const logins = await Promise.all(Array.from({ length: 30 }, () => ask(...wrong)))
  t.ok(
    logins.some(({ status, text }) => status === 429 && /try again in 10 s/.test(text)),
    'nginx refuses who guesses fast'
  )
  // One more is let in every 2 s: on a slow machine one alone may be.
  for (const path of ['/token/', '//token', '/%74oken//']) {
    const more = Array.from({ length: 10 }, () => ask(...wrong.slice(0, 2), urls.https + path))
    t.ok(
      (await Promise.all(more)).some(({ status }) => status === 429),
      `${path} is /token`
    )
  }
  await c.daemon.close(1000)
  t.match(await ask(`${urls.http}/version`), { status: 503, text: /svcd cannot be reached now/ })
})

/** Sends one request over a connection of its own, as it stands. */
async function wire(port: number, text: string): Promise<WireResponse> {
  const client = new RawClient(port).send(text)
  try {
    return await client.response()
  } finally {
    client.socket.destroy()
  }
}

// rules 1.5
t.test('nginx refuses in JSON', async t => {
  const c = await Controller.start(t, 'http.trusted_proxies=127.0.0.1', 'http.front_files=/svcd-files/')
  const { urls, log } = await front(t, c, 'nobody nogroup')
  const port = Number(new URL(urls.http).port)
  const http = (line: string, ...header: string[]) =>
    [`${line} HTTP/1.1`, 'Host: controller', ...header, '', ''].join('\r\n')
  const token = `x-access-tokens: ${c.token}`
  await c.cluster()
  c.file('compute.tar.gz', 'text')
  const table: [what: string, text: string, status: number, message: RegExp][] = [
    ['no Host', 'GET /boot HTTP/1.1\r\n\r\n', 400, /Host/],
    ['a large header', http('GET /boot', `x: ${'x'.repeat(20_000)}`), 431, /header is too large/],
    ['TRACE', http('TRACE /boot'), 405, /not allowed/],
    [
      'a chunked body that is none',
      `${http('POST /token', 'Transfer-Encoding: chunked')}zz\r\n`,
      400,
      /malformed/
    ],
    [
      'a coding that nginx does not know',
      http('POST /token', 'Transfer-Encoding: gzip'),
      501,
      /not supported/
    ],
    ['past svcd', http('GET /svcd-files/compute.tar.gz'), 404, /nothing here/],
    ['a range', http('GET /files/compute.tar.gz', token, 'Range: bytes=9-'), 416, /outside/]
  ]
  for (const [what, text, status, message] of table) {
    const response = await wire(port, text)
    t.equal(response.status, status, what)
    isRefusal(t, response, message)
  }

  const many = Array.from({ length: 256 }, () =>
    new RawClient(port).send('POST /boot HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n')
  )
  await until(async () => (await wire(port, http('GET /boot'))).status === 429, 'all connections have come')
  isRefusal(t, await wire(port, http('GET /boot')), /too many connections from this address/)
  for (const { socket } of many) socket.destroy()
  await until(async () => (await wire(port, http('GET /boot'))).status === 200, 'they have gone')

  // A node that asks for what nginx cannot read asks again.
  chmodSync(join(c.directory, 'files', 'compute.tar.gz'), 0)
  const unreadable = await wire(port, http('GET /files/compute.tar.gz', token))
  t.match(unreadable, { status: 503, headers: { 'retry-after': '5' } })
  isRefusal(t, unreadable, /nginx cannot read this file now/)
  t.match(log(), /files\/compute\.tar\.gz" failed \(13: Permission denied\)/)
})

// rules 2.15
t.test('half requests by the thousand keep nobody from a boot script', async t => {
  const c = await Controller.start(t, 'http.trusted_proxies=127.0.0.1', 'http.front_files=/svcd-files/')
  const { urls } = await front(t, c)
  const port = Number(new URL(urls.http).port)
  const half = Array.from({ length: 2000 }, (_, n) => {
    const socket = connect({ port, host: '127.0.0.1', localAddress: `127.0.1.${1 + (n % 50)}` })
    socket.on('error', () => undefined).write('GET /boot HTTP/1.1\r\nHost: a\r\nX: ')
    return socket
  })
  await Promise.all(
    half.map(socket => new Promise(resolve => socket.once('connect', resolve).once('close', resolve)))
  )
  const boots = Array.from({ length: 32 }, () =>
    wire(port, 'GET /boot HTTP/1.1\r\nHost: a\r\n\r\n').then(
      ({ status }) => status,
      () => 0
    )
  )
  t.same(new Set(await Promise.all(boots)), new Set([200]))
  for (const socket of half) socket.destroy()
})
