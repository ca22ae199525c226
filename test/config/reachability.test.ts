import { join } from 'node:path'
import t from 'tap'
import { loadConfig } from '../../lib/config/load.js'
import { frontWarnings, reachability } from '../../lib/config/reachability.js'

const ini = join(t.testdir({ 'svcd.ini': '' }), 'svcd.ini')
const warnings = (networks: string[], ...settings: string[]) =>
  reachability(loadConfig(ini, settings), networks)
const everywhere = ['http.listen=0.0.0.0:7050', 'controller.address=10.141.255.254']

// rules 7.7
t.test('loopback listen address and URL', async t => {
  t.strictSame(warnings([]), [
    'other machines cannot reach [http] listen 127.0.0.1: it is a loopback address; 0.0.0.0:7050 is all addresses',
    'other machines cannot reach [http] url http://127.0.0.1:7050: it is a loopback address; set [controller] address'
  ])
  t.strictSame(warnings(['127.0.0.0/8']), [])
  t.strictSame(warnings(['127.5.0.0/16', '0.0.0.0/0']), [], 'networks with nodes on this machine')
  t.match(warnings(['127.0.0.0/8', '10.141.0.0/16']), [
    /10\.141\.0\.0\/16 cannot reach \[http\] listen 127\.0\.0\.1: /,
    /10\.141\.0\.0\/16 cannot reach \[http\] url http:\/\/127\.0\.0\.1:7050: /
  ])
  t.match(warnings(['10.1.0.0/16', '10.2.0.0/16', '10.3.0.0/16', '10.4.0.0/16', '10.5.0.0/16']), [
    /and 2 more/,
    /and 2 more/
  ])
  t.equal(warnings(['126.0.0.0/8', '128.0.0.0/8']).length, 2)
})

t.test('reachable ones', async t => {
  t.strictSame(warnings([], ...everywhere), [])
  t.strictSame(warnings(['10.141.0.0/16'], ...everywhere), [])
  t.strictSame(
    warnings(['10.141.0.0/16'], 'http.url=https://controller.example.org', 'http.trusted_proxies=127.0.0.1'),
    [],
    'behind a front server'
  )
})

t.test('nodes do not boot over IPv6', async t => {
  t.match(warnings(['10.141.0.0/16'], ...everywhere, 'http.url=http://[fd00::1]:7050'), [
    /10\.141\.0\.0\/16 cannot reach \[http\] url http:\/\/\[fd00::1\]:7050: nodes boot over IPv4 alone/
  ])
  t.strictSame(
    warnings(['10.141.0.0/16'], ...everywhere, 'http.url=http://[::ffff:10.141.255.254]:7050').length,
    1
  )
})

t.test('one of both', async t => {
  t.match(warnings(['10.141.0.0/16'], 'http.url=http://10.141.255.254:7050'), [/\[http\] listen 127/])
  for (const url of [
    'http://localhost:7050',
    'http://127.9.9.9',
    'http://[::1]:7050',
    'http://a.localhost',
    'http://0.0.0.0:1'
  ])
    for (const urls of [url, `http://10.141.255.254:7050, ${url}`])
      t.match(warnings(['10.141.0.0/16'], ...everywhere, `http.url=${urls}`), [/\[http\] url http/], urls)
})

// rules 7.7
t.test('files for a front server that nobody has named', async t => {
  const front = (...settings: string[]) => frontWarnings(loadConfig(ini, settings))
  t.strictSame(front(), [])
  t.strictSame(front('http.trusted_proxies=10.141.0.1'), [])
  t.strictSame(front('http.front_files=/svcd-files/', 'http.trusted_proxies=10.141.0.1'), [])
  t.strictSame(front('http.front_files=/svcd-files/'), [
    '[http] front_files: it does nothing without trusted_proxies; name the front server there (trusted_proxies = ' +
      '127.0.0.1 for one on this machine), or leave front_files empty'
  ])
})
