import t from 'tap'
import { hashPassword } from '../../lib/auth/passwords.js'
import { digestsOf } from '../../lib/config/reachability.js'
import { iniFile } from './ini-file.js'

const key = Buffer.alloc(32, 7)
const { load } = iniFile(t)
const text = '[http]\nurl = http://10.141.0.1:7050, http://10.141.0.2:7050\n'
const digests = (...set: string[]) => digestsOf(load(text, ...set), key)
/** Which digests are other ones with these settings. */
const changed = (set: readonly string[], before = digests()) => {
  const after = digests(...set)
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    words => before[words] !== after[words]
  )
}
const member = (i: number) => `https://10.141.0.${i}:2379`

// rules 11.15
t.test('a changed value changes the digest of its section alone', async t => {
  const members = [`store.endpoints=${member(1)},${member(2)}`]
  const dhcp = ['dhcp.server=isc']
  for (const [words, set, before = []] of [
    ['[http] url', ['http.url=http://10.141.0.1:7050,http://10.141.0.3:7050']],
    ['[http] url', ['http.url=http://10.141.0.1:7050']],
    ['[store] ttl', ['store.ttl=5s']],
    ['[store] endpoints', [`store.endpoints=${member(1)},${member(3)}`], members],
    ['[users]', [`users.alice=admin ${await hashPassword('secret')}`]],
    ['[cluster]', ['cluster.ntp_server=10.141.0.1']],
    ['[dhcp]', dhcp],
    ['[dhcp]', [...dhcp, 'dhcp.lease_time=2h'], dhcp],
    ['[dhcp]', [...dhcp, 'dhcp.tftp_server=10.141.0.1'], dhcp],
    ['[dns]', ['dns.server=bind']],
    ['[boot]', ['boot.takeover=released']],
    ['[boot]', ['boot.efi_x64=snponly.efi']],
    ['[kickstart]', ['kickstart.rootpw=$6$saltsalt$abcdefghijklmnop']],
    ['[image] directory', ['image.directory=/srv/images']]
  ] as const)
    t.strictSame(changed(set, digests(...before)), [words], set.join())
  const all = digests(...members)
  t.ok(
    Object.values(all).every(digest => /^[0-9a-f]{16}$/.test(digest)),
    JSON.stringify(all)
  )
  t.equal(new Set(Object.values(all)).size, Object.keys(all).length)
})

// rules 11.15
t.test('the order of keys, users, URLs and members changes none', async t => {
  const [alice, bob] = [`admin ${await hashPassword('a')}`, `viewer ${await hashPassword('b')}`]
  const one = load(
    `${text}[store]\nendpoints = ${member(1)}, ${member(2)}\nttl = 4s\n[users]\nalice = ${alice}\nbob = ${bob}\n` +
      '[cluster]\nname = lab\ndebug = yes\n'
  )
  const other = load(
    `[cluster]\ndebug = on\nname = lab\n[users]\nbob = ${bob}\nalice = ${alice}\n[store]\nttl = 4s\nendpoints = ${member(2)}/, ${member(1)}\n` +
      '[http]\nurl = http://10.141.0.2:7050/, http://10.141.0.1:7050\n'
  )
  t.strictSame(digestsOf(one, key), digestsOf(other, key))
  const reversed = Object.fromEntries(Object.entries(one.boot).reverse()) as typeof one.boot
  t.strictSame(digestsOf({ ...one, boot: reversed }, key), digestsOf(one, key), 'as a release may read them')
})

// rules 11.15
t.test('what is of one machine alone changes none', async t => {
  const own = [
    ...['dhcp.config=/x', 'dhcp.control=x', 'dhcp.service=x', 'dhcp.interfaces=x', 'dhcp.gather=0s'],
    ...['dns.directory=/x', 'dns.reload=x', 'boot.ipxe_directory=/x', 'image.packer=builtin', 'store.ca=/x'],
    ...['store.url=http://10.141.0.1:1', 'store.user=x', 'store.password_file=/x', 'controller.name=c2']
  ]
  t.strictSame(changed(own), [])
  const servers = (dhcp: string, dns: string, i: number) =>
    digests(`dhcp.server=${dhcp}`, `dns.server=${dns}`, `dhcp.tftp_server=10.141.0.${i}`)
  t.strictSame(servers('isc', 'bind', 1), servers('dnsmasq', 'dnsmasq', 2), 'other servers')
  t.strictSame(
    digests('http.url=http://10.141.0.1:7050'),
    digests('http.url=http://10.141.0.2:7050'),
    'one URL'
  )
  for (const here of ['https://127.0.0.1:2379', 'http://[::1]:2379', 'https://localhost:2379'])
    t.notOk(
      '[store] endpoints' in digests(`store.endpoints=${here},${member(2)}`),
      'a member on this machine: each list is another one'
    )
})

// rules 11.15
t.test('without the key nobody learns whether two are the same', async t => {
  const ours = digests()
  const theirs = digestsOf(load(text), Buffer.alloc(32, 8))
  t.strictSame(
    Object.keys(ours).filter(words => ours[words] === theirs[words]),
    []
  )
})
