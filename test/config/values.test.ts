import t from 'tap'
import { iniFile } from './ini-file.js'

// rules 7.2, 1.8
t.test('values outside their sets are refused, the section and key named', async t => {
  const { problems } = iniFile(t)
  const bad: Record<string, string[]> = {
    'http.listen': [
      '',
      '7050',
      ':7050',
      '127.0.0.1',
      '127.0.0.1:',
      '127.0.0.1:65536',
      '127.0.0.1:1e3',
      '127.1:80',
      '256.0.0.1:80',
      '::1:7050',
      '[::1]',
      '[::1]:x',
      '[127.0.0.1]:80',
      '[fe80::1%eth0]:80',
      'name:80',
      '127.0.0.1:80 x'
    ],
    'http.url': [
      'controller:7050',
      'ftp://c',
      'http://',
      'http://c/prefix',
      'http://c?x',
      'http://c#x',
      'http://u:p@c',
      'http://c:99999',
      'http://c d',
      'http:c',
      'javascript:alert(1)',
      ',',
      'http://c http://d',
      'http://c;http://d',
      'http://c, d:7050',
      'http://c, http://d/prefix',
      'http://c, http://u:p@d',
      'http://c, http://C/',
      'https://c, https://c:443',
      Array.from({ length: 9 }, (_, i) => `http://c${i}`).join(),
      Array.from({ length: 3 }, (_, i) => `http://${i}${'.x'.repeat(90)}`).join()
    ],
    'http.trusted_proxies': [
      '10.0.0.0/33',
      '10.0.0.5/8',
      'fd00::/129',
      'proxy',
      '10.0.0.0/8;',
      '10.0.0.0/-1',
      '::ffff:10.0.0.0/104'
    ],
    'http.front_files': ['/', 'svcd-files/', '/svcd-files', '//a/', '/../', '/a b/', '/a/%2e/'],
    'http.max_body': ['64', '64mb', '1.5m', '-1m', '0k', '3g', '99999999999999999999k', 'm', '1 m'],
    'controller.name': ['', '-a', 'a b', 'ntp_server', 'debug', 'x'.repeat(64), 'a/b', 'ä'],
    'controller.address': ['0.0.0.0', '::', '10.0.0.1/8', 'controller', '10.0.0.256'],
    'paths.templates': [''],
    'store.medium': ['etcd3', ''],
    'store.endpoints': [
      '',
      ',',
      'http://10.141.0.1:2379',
      'http://localhost:2379',
      'http://127.0.0.1@c:2379',
      'http://127.0.0.1.c:2379',
      'https://c/v3',
      'https://u:p@c',
      'https://c:99999',
      'https://c, http://d',
      'c:2379'
    ],
    'store.prefix': ['', '/', 'svcd', '/svcd', '/a b/', '//'],
    'store.ttl': ['3', '500ms', '0s', '61s'],
    'image.packer': ['Auto', 'tar'],
    'image.compressor': ['gzip', 'zstd -T0'],
    'image.exclude': ['var/cache', '/a/../b', '/a, b'],
    'image.identity': ['etc/machine-id', '/etc/*/x', '/etc/../x', '/etc/', '/', '/a b', '/a, b'],
    'image.grace': ['1', '-1d'],
    'ssh.port': ['0', '65536', 'ssh'],
    'jobs.parallel': ['0', '1.5'],
    'auth.token_lifetime': ['3600', '1w', '0s', '1.5h', '4000d', '10 m', '1M', '', 'constructor'],
    'cluster.ntp_server': ['a b', '10.0.0.300', '-x', 'a..b'],
    'cluster.debug': ['', '1', '0', 'y', 'ja'],
    'cluster.provision_method': ['ftp', ''],
    'cluster.technical_contacts': ['a\nb', 'a\0b', '\u007f'],
    'kickstart.rootpw': ['plaintext', '$6$x', '$6$salt$with space in it'],
    'torrent.tracker': ['tracker', 'ws://t/announce', 'http://'],
    'torrent.tracker_reload': ['sh -c "x"', 'a; b', 'a $(b)', 'a > b'],
    'torrent.seeder': ['rtorrent'],
    'torrent.seeder_url': ['127.0.0.1:9091', 'http://u:p@h/rpc', 'http://h/rpc?x'],
    'dhcp.server': ['dhcpd', ''],
    'dns.server': ['named'],
    'log.level': ['trace', 'INFO']
  }
  for (const [id, values] of Object.entries(bad))
    for (const value of values) {
      const found = problems('', `${id}=${value}`)
      t.equal(found.length, 1, `${id}=${JSON.stringify(value)}`)
      t.ok(found[0]?.startsWith(`--set ${id}: [${id.replace('.', '] ')} `), found.join())
    }
  const [secret = ''] = problems('', 'torrent.tracker=http://user:SECRET@h/announce')
  t.match(secret, /not "http:\/\/…@h/)
})
