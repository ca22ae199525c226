import t from 'tap'
import { ServiceError } from '../../lib/base/errors.js'
import { parseTarget } from '../../lib/http/router.js'

// rules 3.1
t.test('a target is split by hand and decoded once', async t => {
  const table: [target: string, path: string, query: string, segments: string[]][] = [
    ['/', '/', '', []],
    ['/boot', '/boot', '', ['boot']],
    ['//boot///short//', '//boot///short//', '', ['boot', 'short']],
    [
      '/boot/search/mac/52%3A54%3a00',
      '/boot/search/mac/52%3A54%3a00',
      '',
      ['boot', 'search', 'mac', '52:54:00']
    ],
    ['/a/%2e%2e/b', '/a/%2e%2e/b', '', ['a', '..', 'b']],
    ['/a/../b/.', '/a/../b/.', '', ['a', '..', 'b', '.']],
    ['/a%252fb', '/a%252fb', '', ['a%2fb']],
    ['/caf%C3%A9', '/caf%C3%A9', '', ['café']],
    ['/caf\u00c3\u00a9', '/caf\u00c3\u00a9', '', ['café']],
    ['/a?x=1/2?y', '/a', 'x=1/2?y', ['a']],
    ['/a?', '/a', '', ['a']],
    ['/a%3Fb?c', '/a%3Fb', 'c', ['a?b']],
    ['/a#b', '/a#b', '', ['a#b']],
    ['/a%20b+c', '/a%20b+c', '', ['a b+c']],
    ['/a\\..\\b', '/a\\..\\b', '', ['a\\..\\b']],
    ['http://host:7050/boot/x?y', '/boot/x', 'y', ['boot', 'x']],
    ['HTTPS://[::1]/boot', '/boot', '', ['boot']],
    ['http://host', '/', '', []],
    ['http://host?x', '/', 'x', []],
    ['http://user@host//a', '//a', '', ['a']]
  ]
  for (const [target, path, query, segments] of table)
    t.same(parseTarget(target), { path, query, segments }, target)
})

// rules 3.1
t.test('a target that cannot name an object is refused', async t => {
  const table: [target: string, status: number][] = [
    ['*', 400],
    ['', 400],
    ['host:443', 400],
    ['boot', 400],
    ['http:///boot', 400],
    ['ftp://host/boot', 400],
    ['/%', 400],
    ['/%4', 400],
    ['/%zz', 400],
    ['/% 41', 400],
    ['/%4g', 400],
    ['/a%/b', 400],
    ['/%c0%af', 400],
    ['/%c0%80', 400],
    ['/%e0%80%af', 400],
    ['/%ed%a0%80', 400],
    ['/%f5%80%80%80', 400],
    ['/%ff', 400],
    ['/\u00ff', 400],
    ['/%e2%82', 400],
    ['/a%2fb', 404],
    ['/a%2Fb', 404],
    ['/%2e%2e%2f%2e%2e%2fetc%2fpasswd', 404],
    ['/a%00', 404],
    ['/%00', 404]
  ]
  for (const [target, status] of table) {
    try {
      parseTarget(target)
      t.fail(`${target} was taken`)
    } catch (error) {
      t.type(error, ServiceError)
      t.equal((error as ServiceError).status, status, target)
    }
  }
})
