import { join } from 'node:path'
import t from 'tap'
import { hashPassword } from '../../lib/auth/passwords.js'
import { loadConfig } from '../../lib/config/load.js'
import type { ConfigError } from '../../lib/config/types.js'
import { iniFile } from './ini-file.js'

const hash = await hashPassword('secret')

const noLogins = {
  ldap_url: [],
  ldap_plain: false,
  ldap_ca_certificate: '',
  ldap_bind_dn: '',
  ldap_bind_password_file: '',
  ldap_base: '',
  ldap_filter:
    '(|(&(objectClass=posixAccount)(uid={user}))' +
    '(&(objectCategory=person)(objectClass=user)(sAMAccountName={user})))',
  ldap_group_filter: '(|(member={dn})(uniqueMember={dn})(memberUid={user}))',
  ldap_roles: [],
  oidc_issuer: '',
  oidc_name: 'single sign-on',
  oidc_ca_certificate: '',
  oidc_client_id: '',
  oidc_client_secret_file: '',
  oidc_url: [],
  oidc_scopes: 'openid profile',
  oidc_user_claim: 'preferred_username',
  oidc_groups_claim: 'groups',
  oidc_roles: []
}

// rules 7.4
t.test('an empty ini is every default', async t => {
  const { directory, file, load } = iniFile(t)
  const config = load('')
  t.equal(config.file, file)
  t.strictSame(config.http, {
    listen: { address: '127.0.0.1', port: 7050 },
    url: 'http://127.0.0.1:7050',
    urls: ['http://127.0.0.1:7050'],
    trusted_proxies: [],
    front_files: '',
    tls_certificate: '',
    tls_key: '',
    tls_port: 7443,
    max_body: 64 * 1024 * 1024,
    max_downloads: 1000,
    max_connections_per_address: 2000,
    metrics: 'viewer',
    dialect: 'none'
  })
  t.strictSame(config.controller, { name: 'controller', address: '127.0.0.1' })
  t.equal(
    config.paths.state,
    join(directory, '../var'),
    'relative to the ini, whatever the working directory'
  )
  t.equal(config.paths.roles, join(directory, 'roles'))
  t.strictSame(config.auth, {
    token_lifetime: 3_600_000,
    node_token_lifetime: 4 * 3_600_000,
    running_token_lifetime: 90 * 86_400_000,
    ...noLogins
  })
  t.strictSame(config.users, [])
  t.equal(config.boot.ipxe_directory, '')
  t.equal(config.node.verify_certificate, true)
})

// rules 7.2, 7.5
t.test('every kind of value, read', async t => {
  const { directory, load } = iniFile(t)
  const config = load(
    [
      '# comment',
      '; comment too',
      '[http]',
      'listen = [::1]:8080',
      'trusted_proxies = 10.0.0.0/8, 192.0.2.7 fd00::/64',
      'front_files = /svcd-files/',
      'max_body=2M',
      '  [auth]  ',
      '  token_lifetime   =   90s  ',
      'node_token_lifetime = 7d',
      'running_token_lifetime = 2d',
      '[paths]',
      'state = /srv/svcd',
      'files = "data; #1/files"',
      "scripts = 'true'",
      '[cluster]',
      'technical_contacts = "Zoë \\"Z\\" <z@example.org>; ext. #5"',
      'debug = ON',
      '[boot]',
      'manual = none',
      '[torrent]',
      'tracker = udp://tracker.example.org:6969/announce',
      '[kickstart]',
      'rootpw = $6$rounds=5000$abcdefgh$0123456789./ABC',
      '[users]',
      `alice = admin ${hash}`,
      `constructor = viewer ${hash}`,
      '[log]',
      'level = debug'
    ].join('\r\n')
  )
  t.strictSame(config.http, {
    listen: { address: '::1', port: 8080 },
    url: 'http://[::1]:8080',
    urls: ['http://[::1]:8080'],
    trusted_proxies: ['10.0.0.0/8', '192.0.2.7/32', 'fd00::/64'],
    front_files: '/svcd-files/',
    tls_certificate: '',
    tls_key: '',
    tls_port: 7443,
    max_body: 2 * 1024 * 1024,
    max_downloads: 1000,
    max_connections_per_address: 2000,
    metrics: 'viewer',
    dialect: 'none'
  })
  t.strictSame(config.auth, {
    token_lifetime: 90_000,
    node_token_lifetime: 7 * 86_400_000,
    running_token_lifetime: 2 * 86_400_000,
    ...noLogins
  })
  t.equal(config.paths.state, '/srv/svcd')
  t.equal(config.paths.files, join(directory, 'data; #1/files'))
  t.equal(config.paths.scripts, join(directory, 'true'), 'single quotes hold text, never JSON')
  t.equal(config.cluster.technical_contacts, 'Zoë "Z" <z@example.org>; ext. #5')
  t.equal(config.cluster.debug, true)
  t.equal(config.torrent.tracker, 'udp://tracker.example.org:6969/announce')
  t.strictSame(config.users, [
    { name: 'alice', role: 'admin', hash },
    { name: 'constructor', role: 'viewer', hash }
  ])
  t.equal(config.log.level, 'debug')
})

// rules 7.6
t.test('url and controller address', async t => {
  const { load, problems } = iniFile(t)
  const url = (text: string) => load(text).http.url
  t.equal(
    url('[http]\nlisten = 0.0.0.0:7050\n[controller]\naddress = 10.141.255.254'),
    'http://10.141.255.254:7050'
  )
  t.equal(url('[http]\nlisten = [::]:80\n[controller]\naddress = FD00:0::1'), 'http://[fd00::1]:80')
  t.equal(url('[http]\nurl = https://Controller.example.org/'), 'https://controller.example.org')
  const several = load('[http]\nurl = http://10.141.0.1:7050/ ,https://B, http://[FD00::1]:80,').http
  t.equal(several.url, 'http://10.141.0.1:7050', 'the first of several')
  t.strictSame(several.urls, ['http://10.141.0.1:7050', 'https://b', 'http://[fd00::1]'])
  for (const wildcard of ['0.0.0.0:7050', '[::]:7050', '[::ffff:0.0.0.0]:7050'])
    t.strictSame(problems(`[http]\nlisten = ${wildcard}`), [
      'svcd.ini:2: [controller] address is needed when [http] listen is all addresses'
    ])
  t.strictSame(problems('', 'http.listen=0.0.0.0:1'), [
    '--set http.listen: [controller] address is needed when [http] listen is all addresses'
  ])
})

t.test('a seeder needs the way to it', async t => {
  const { load, problems } = iniFile(t)
  const ini = (...lines: string[]) => ['[torrent]', ...lines].join('\n')
  t.strictSame(problems(ini('seeder = aria2', 'seeder_watch = /w')), [
    'svcd.ini:2: [torrent] seeder_url is needed when seeder is aria2'
  ])
  t.strictSame(problems(ini('seeder = transmission')), [
    'svcd.ini:2: [torrent] seeder_url or seeder_watch is needed when seeder is transmission'
  ])
  const { torrent } = load(
    ini('seeder = transmission', 'seeder_watch = w', 'tracker_reload =  /bin/kill  -HUP 7 ')
  )
  t.match(torrent, { seeder: 'transmission', seeder_url: '', tracker_reload: ['/bin/kill', '-HUP', '7'] })
  t.match(load('[image]\nexclude = /var/tmp/*,/a b').image.exclude, ['/var/tmp/*', '/a b'])
})

t.test('the configuration is frozen to its depths', async t => {
  const { load } = iniFile(t)
  const config = load(`[users]\nalice = admin ${hash}`)
  t.throws(() => Object.assign(config.http.listen, { port: 1 }), TypeError)
  t.throws(() => Object.assign(config.users[0] ?? {}, { role: 'viewer' }), TypeError)
  t.throws(() => (config.http.trusted_proxies as string[]).push('0.0.0.0/0'), TypeError)
})

// rules 7.3
t.test('every problem at once, each with its line, in the order of the file', async t => {
  const { problems } = iniFile(t)
  const found = problems(
    [
      'early = 1', // 1
      '[http]',
      'listen = localhost:7050', // 3
      'max_body = 64', // 4
      'max_body = 1m', // 5
      'lisen = 127.0.0.1:1', // 6
      'url = http://c;d', // 7
      'just a line', // 8
      '[htp]', // 9
      'anything = 1',
      '[paths]',
      'state =', // 12
      '[boot] # here', // 13
      'manual = some', // 14
      'dynamic_nodes = maybe', // 15
      '[users]',
      'bob = admin plain', // 17
      `eve = root ${hash}`, // 18
      '[log', // 19
      'level = noise'
    ].join('\n'),
    'auth.token_lifetime=60',
    'auth.nothing=1',
    'nowhere.x=1',
    'nonsense'
  )
  t.strictSame(
    found.map(problem =>
      problem
        .split(' ')
        .slice(0, problem.startsWith('--set') ? 2 : 1)
        .join(' ')
    ),
    [
      'svcd.ini:1:',
      'svcd.ini:3:',
      'svcd.ini:4:',
      'svcd.ini:5:',
      'svcd.ini:6:',
      'svcd.ini:7:',
      'svcd.ini:8:',
      'svcd.ini:9:',
      'svcd.ini:12:',
      'svcd.ini:13:',
      'svcd.ini:14:',
      'svcd.ini:15:',
      'svcd.ini:17:',
      'svcd.ini:18:',
      'svcd.ini:19:',
      '--set auth.nothing:',
      '--set nowhere.x:',
      '--set nonsense:',
      '--set auth.token_lifetime:'
    ]
  )
  t.match(found[3], /"max_body" is given in line 4 already/)
  t.match(found[4], /unknown key "lisen" in \[http\] \(did you mean "listen"\?\), which has listen, url/)
  t.match(found[5], /cut at ;/)
})

// rules 7.3
t.test('secrets are never repeated in a message', async t => {
  const { problems } = iniFile(t)
  const texts = [
    '[kickstart]\nrootpw = hunter2',
    '[kickstart]\nrootpw = "hunter2',
    '[kickstart]\nrootpw = hunter2;x',
    '[kickstart]\nhunter2',
    '[users]\nbob = admin hunter2',
    '[users]\nbob = hunter2',
    '[users]\nbob = "admin hunter2" x'
  ]
  for (const text of texts) {
    const found = problems(text)
    t.equal(found.length, 1, text)
    t.notMatch(found[0], /hunter2/)
  }
  t.notMatch(problems('', 'users.bob=hunter2', 'kickstart.rootpw=hunter2').join(), /hunter2/)
})

// rules 7.3
t.test('quotes and comment signs', async t => {
  const { load, problems } = iniFile(t)
  const contacts = (value: string) =>
    load(`[cluster]\ntechnical_contacts = ${value}`).cluster.technical_contacts
  t.equal(contacts('a \\; b \\# c \\\\ d'), 'a ; b # c \\ d')
  t.equal(contacts('"a;b"'), 'a;b')
  t.equal(contacts('\'a;"b"\''), 'a;"b"')
  t.equal(contacts("'5'"), '5')
  t.equal(contacts('\'{"a":1}\''), '{"a":1}')
  t.equal(contacts('a=b=c'), 'a=b=c')
  t.equal(contacts('it"s 5" wide'), 'it"s 5" wide')
  for (const value of [
    ';',
    '# none',
    'a;b',
    'a #b',
    '\\\\;',
    '"a" ; b',
    '"a',
    "'a",
    '"',
    'x" ; y"',
    '"a\\qb"',
    '"a"b"'
  ])
    t.match(
      problems(`[cluster]\ntechnical_contacts = ${value}`),
      [/^svcd\.ini:2: \[cluster\] "technical_contacts" /],
      value
    )
  t.match(
    problems('[cluster]\ntechnical_contacts = a;b\ntechnical_contacts = c'),
    [/^svcd\.ini:2: .*cut at ;/, /^svcd\.ini:3: .*given in line 2/],
    'a faulty one counts as given'
  )
})

t.test('overrides win over the ini, are taken literally, and the last one counts', async t => {
  const { directory, load } = iniFile(t)
  const config = load(
    '[http]\nlisten = 127.0.0.1:1\nmax_body = 1m',
    'http.listen=127.0.0.1:2',
    'http.listen=127.0.0.1:3',
    'cluster.technical_contacts="a;b" = #1',
    'paths.state=state',
    `users.a.b=viewer ${hash}`
  )
  t.equal(config.http.listen.port, 3)
  t.equal(config.http.max_body, 1024 * 1024)
  t.equal(config.cluster.technical_contacts, '"a;b" = #1')
  t.equal(config.paths.state, join(directory, 'state'))
  t.strictSame(config.users, [{ name: 'a.b', role: 'viewer', hash }])
})

t.test('names of the language are harmless', async t => {
  const { problems } = iniFile(t)
  t.match(problems('[__proto__]\npolluted = yes\n[constructor]\nprototype = x\n[toString]'), [
    /^svcd\.ini:1: unknown section "__proto__"/,
    /^svcd\.ini:3: unknown section "constructor"/,
    /^svcd\.ini:5: unknown section "toString"/
  ])
  t.match(problems(`[http]\n__proto__ = 1\nconstructor = 2\n[users]\n__proto__ = admin ${hash}`), [
    /^svcd\.ini:2: unknown key "__proto__"/,
    /^svcd\.ini:3: unknown key "constructor"/,
    /^svcd\.ini:5: \[users\] "__proto__" must be named/
  ])
  t.match(problems('', '__proto__.x=1', 'http.__proto__=1', 'hasOwnProperty.x=1'), [
    /unknown/,
    /unknown/,
    /unknown/
  ])
  t.equal((Object.create({}) as Record<string, unknown>).polluted, undefined)
})

t.test('files that are no ini', async t => {
  const { directory, problems } = iniFile(t)
  const long = 'x'.repeat(1024 * 1024)
  t.match(problems(`[http]\n${long} = 1`), [/^svcd\.ini:2: unknown key "x{60}…"/])
  t.ok(problems(`[http]\n${long} = 1`).join().length < 300)
  t.match(problems(`[cluster]\ntechnical_contacts = ${'\\'.repeat(1024 * 1024)}`), [
    /^svcd\.ini:2: .*is longer than/
  ])
  t.match(problems(`[http]\n${'"'.repeat(1024 * 1024)}`), [/^svcd\.ini:2: is neither/])
  t.match(problems(`[${long}]`), [/^svcd\.ini:1: unknown section/])
  t.match(problems('[http]\nmax_body = 1m\0\n'), [/^svcd\.ini:2: holds a control character/])
  t.match(problems('[http]\rmax_body = 1m\rurl =\n'), [/^svcd\.ini:1: holds a control character/])
  t.match(problems(Buffer.from('[http]\n# \xe4\n', 'latin1')), [/^svcd\.ini:2: is not UTF-8$/])
  t.match(problems(Buffer.from([0xff, 0xfe, 0x5b, 0x00])), [/^svcd\.ini:1: is not UTF-8$/])
  t.match(problems(Buffer.alloc(5 * 1024 * 1024, 0x0a)), [/^svcd\.ini: is larger than/])
  t.strictSame(problems('\ufeff[http]\nmax_body = 1m\n'), [], 'a byte order mark is dropped')
  const missing = join(directory, 'missing.ini')
  const failing = (file: string, ...overrides: string[]) => {
    try {
      return loadConfig(file, overrides)
    } catch (error) {
      return (error as ConfigError).problems
    }
  }
  t.match(failing(missing), [{ file: missing, message: /^cannot be read: ENOENT/ }])
  t.match(failing(directory), [{ message: 'is not a regular file' }])
  t.match(failing('/dev/zero'), [{ message: 'is not a regular file' }])
  t.match(failing(missing, 'http.listen=x'), [{ file: missing }, { file: '--set http.listen' }])
})

// rules 2.18
t.test('a certificate and its key, both or neither, on a port of their own', async t => {
  const { directory, file, load } = iniFile(t)
  const problems = (...lines: string[]) => {
    try {
      load(['[http]', ...lines].join('\n'))
    } catch (error) {
      return (error as ConfigError).problems
    }
    return []
  }
  t.match(load('[http]\ntls_certificate = tls.crt\ntls_key = /etc/tls.key').http, {
    tls_certificate: join(directory, 'tls.crt'),
    tls_key: '/etc/tls.key',
    tls_port: 7443
  })
  t.strictSame(problems('tls_port = 0', 'tls_certificate = a', 'tls_key = b'), [])
  t.strictSame(problems('tls_port = 7050'), [], 'without a certificate the port means nothing')
  t.strictSame(problems('', 'tls_certificate = a'), [
    { file, line: 3, message: '[http] tls_key is needed when tls_certificate is given' }
  ])
  t.strictSame(problems('tls_key = a'), [
    { file, line: 2, message: '[http] tls_certificate is needed when tls_key is given' }
  ])
  t.strictSame(problems('tls_certificate = a', 'tls_key = b', 'listen = 127.0.0.1:7443'), [
    { file, message: '[http] tls_port must be another port than that of listen, 7443' }
  ])
})

// rules 11.14
t.test('etcd needs both of a pair, and names the line', async t => {
  const { load, file } = iniFile(t)
  const problems = (...lines: string[]) => {
    try {
      load(['[store]', 'medium = etcd', ...lines].join('\n'))
    } catch (error) {
      return (error as ConfigError).problems
    }
    return []
  }
  t.strictSame(problems(), [])
  t.strictSame(problems('cert = a', 'key = b', 'user = u', 'password_file = p', 'ttl = 10s'), [])
  t.strictSame(problems('key = b'), [{ file, line: 3, message: '[store] cert is needed when key is given' }])
  t.strictSame(problems('', 'user = u'), [
    { file, line: 4, message: '[store] password_file is needed when user is given' }
  ])
  const loaded = load(
    '[store]\nendpoints = https://a:2379, https://[fd00::1]:2379 ,http://[::1]:1\nca = ca.pem'
  )
  t.match(loaded.store, {
    medium: 'files',
    endpoints: ['https://a:2379', 'https://[fd00::1]:2379', 'http://[::1]:1'],
    ttl: 3000,
    prefix: '/svcd/'
  })
})

// rules 5.10, 5.11
t.test('log-ins by a directory and a provider', async t => {
  const { load, problems, directory } = iniFile(t)
  const ldap = [
    ...['[auth]', 'ldap_url = ldaps://one.example.org, ldap://[::1]:3890', 'ldap_base = dc=example,dc=org'],
    'ldap_bind_dn = cn=svcd,dc=example,dc=org\nldap_bind_password_file = secrets/ldap',
    'ldap_roles = admin=cn=ops,ou=groups | operator:gpu,cpu = GPU team | viewer=*'
  ].join('\n')
  const { auth } = load(ldap)
  t.match(auth, {
    ldap_url: ['ldaps://one.example.org', 'ldap://[::1]:3890'],
    ldap_bind_password_file: join(directory, 'secrets/ldap')
  })
  t.strictSame(auth.ldap_roles, [
    { group: 'cn=ops,ou=groups', grant: { role: 'admin' } },
    { group: 'GPU team', grant: { role: 'operator', groups: ['cpu', 'gpu'] } },
    { group: '*', grant: { role: 'viewer' } }
  ])
  const oidc =
    '[auth]\noidc_issuer = https://sso.example.org/realms/hpc\noidc_client_id = svcd\noidc_roles = viewer=*'
  t.match(load(oidc).auth, { oidc_issuer: 'https://sso.example.org/realms/hpc' })
  for (const [text, problem] of [
    ['ldap_url = ldaps://a', /ldap_base is needed as well/],
    ['ldap_url = ldaps://a', /ldap_roles is needed as well/],
    ['ldap_url = http://a', /ldap_url must be up to 4 URLs/],
    ['ldap_url = ldaps://user@a', /ldap_url must be/],
    ['ldap_url = ldap://1,ldap://2,ldap://3,ldap://4,ldap://5', /up to 4/],
    [`${ldap.slice(7)}\nldap_filter =`, /ldap_filter must not be empty/],
    [ldap.slice(7).replace(/\nldap_bind_password_file.*/, ''), /are given together/],
    ['ldap_filter = uid={user}', /ldap_filter must be a filter in parentheses with \{user\}/],
    ['ldap_filter = (uid=x)', /must be a filter/],
    ['ldap_group_filter = (member=x)', /must be a filter in parentheses with \{dn\} or \{user\}/],
    ['ldap_roles = admin', /must be entries such as/],
    ['ldap_roles = admin=ops, viewer=*', /must be entries such as .* with \| between them/],
    ['ldap_roles = admin=cn=ops,ou=x,operator:gpu,cpu=b', /must be entries such as/],
    ['ldap_roles = boss=ops', /has an entry for ops whose role must be admin, operator or viewer/],
    ['ldap_roles = admin:gpu=ops', /has an entry for ops whose role must not limit admin/],
    ['oidc_issuer = https://a', /oidc_client_id is needed as well/],
    ['oidc_issuer = https://a', /oidc_roles is needed as well/],
    ['oidc_issuer = http://a', /plain http is for 127\.0\.0\.1/],
    ['oidc_issuer = http://127.0.0.1.evil.example', /plain http is for 127\.0\.0\.1/],
    ['oidc_issuer = https://a?x=1', /oidc_issuer must be/],
    ['oidc_scopes = profile', /oidc_scopes must be openid, and others/],
    ['oidc_user_claim = a b', /oidc_user_claim must be the name of a claim/]
  ] as const)
    t.match(problems(`[auth]\n${text}`).join('\n'), problem, text)
})
