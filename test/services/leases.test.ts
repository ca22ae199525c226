import { renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Leases } from '../../lib/services/dhcp/leases.js'

const now = Date.UTC(2026, 10, 20, 12)
const seconds = now / 1000
const [ours, other] = ['52:54:00:00:00:01', '52:54:00:00:00:02']

// As the servers write them: an address that went from one machine to another, one that was given back, one
// that is over.
const files = {
  isc: `# The format of this file is documented in the dhcpd.leases(5) manual page.
authoring-byte-order little-endian;

lease 10.142.0.100 {
  starts 5 2026/11/20 11:50:00;
  ends 5 2026/11/20 12:50:00; # as local time, in some settings
  cltt 5 2026/11/20 11:50:00;
  binding state active;
  next binding state free;
  rewind binding state free;
  hardware ethernet ${ours};
  uid "\\001RT\\000\\000}\\000\\001";
  client-hostname "x{ lease 10.142.0.109 {";
}
lease 10.142.0.101 {
  starts 5 2026/11/20 11:50:00;
  ends 5 2026/11/20 12:50:00;
  binding state active;
  hardware ethernet ${ours};
}
lease 10.142.0.101 {
  starts 5 2026/11/20 11:55:00;
  ends 5 2026/11/20 12:55:00;
  binding state active;
  hardware ethernet ${other};
}
lease 10.142.0.102 {
  ends 5 2026/11/20 11:59:59;
  binding state active;
  hardware ethernet ${ours};
}
lease 10.142.0.103 {
  ends never;
  binding state free;
  hardware ethernet ${ours};
}
`,
  kea: `address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context,pool_id
10.142.0.100,${ours},01:52,3600,${seconds + 3000},1,0,0,x,0,,0
10.142.0.101,${ours},,3600,${seconds + 3000},1,0,0,,0,,0
10.142.0.101,${other},,3600,${seconds + 3300},1,0,0,,0,,0
10.142.0.102,${ours},,3600,${seconds - 1},1,0,0,,0,,0
10.142.0.103,${ours},,0,${seconds + 3000},1,0,0,,0,,0
`,
  dnsmasq: `${seconds + 3000} ${ours} 10.142.0.100 x 01:52
${seconds + 3300} ${other} 10.142.0.101 * *
${seconds - 1} ${ours} 10.142.0.102 * *
`
}

// rules 4.6
for (const [server, text] of Object.entries(files) as [keyof typeof files, string][])
  t.test(`${server}: who has which address now`, async t => {
    const file = join(t.testdir({}), 'leases')
    const leases = new Leases(server, file)
    const has = (mac: string, address: string) => leases.has(mac, address, now)
    t.equal(await has(ours, '10.142.0.100'), false, 'no file, no lease')
    writeFileSync(file, text)
    t.equal(await has(ours, '10.142.0.100'), true)
    t.equal(await has(other, '10.142.0.100'), false, 'not for another machine')
    t.equal(await has('', '10.142.0.100'), false, 'not without a MAC')
    t.equal(await has(ours, '10.142.0.101'), false, 'not when it has gone to another machine')
    t.equal(await has(other, '10.142.0.101'), true)
    t.equal(await has(ours, '10.142.0.102'), false, 'not when it is over')
    t.equal(await has(ours, '10.142.0.103'), false, 'not when it was given back')
    t.equal(await has(ours, '10.142.0.10'), false, 'an address is not the beginning of another one')
  })

t.test('leases that cannot be read are told with the key of the ini', async t => {
  const directory = t.testdir({})
  await t.rejects(new Leases('isc', directory).has(ours, '10.142.0.100', now), {
    status: 503,
    message: /^\[dhcp\] lease_file: the leases cannot be read: EISDIR/
  })
})

const line = (address: string, mac: string, expire = seconds + 3000) =>
  `${address},${mac},,3600,${expire},1,0,0,,0,,0\n`

t.test('kea: a lease is in the files that its clean-up leaves too', async t => {
  const file = join(t.testdir({}), 'kea-leases4.csv')
  const leases = new Leases('kea', file)
  const has = (mac: string, address: string) => leases.has(mac, address, now)
  writeFileSync(file, line('10.142.0.100', ours) + line('10.142.0.101', ours))
  t.equal(await has(ours, '10.142.0.100'), true)
  // As kea does it: the file is put aside, a new one is begun, and what was cleaned up stands beside it in
  // the end.
  renameSync(file, `${file}.1`)
  t.equal(await has(ours, '10.142.0.100'), true, 'put aside')
  writeFileSync(file, line('10.142.0.101', other))
  t.equal(await has(ours, '10.142.0.100'), true, 'a new file')
  t.equal(await has(ours, '10.142.0.101'), false, 'which is the newer one')
  renameSync(`${file}.1`, `${file}.completed`)
  t.equal(await has(ours, '10.142.0.100'), true, 'cleaned up')
  renameSync(`${file}.completed`, `${file}.2`)
  t.equal(await has(ours, '10.142.0.100'), true, 'beside it')
  writeFileSync(`${file}.1`, line('10.142.0.100', other))
  t.equal(await has(other, '10.142.0.100'), true, '.1 is newer than .2')
  for (const suffix of ['', '.1', '.2']) rmSync(`${file}${suffix}`)
  t.equal(await has(other, '10.142.0.100'), false, 'all gone')
})

t.test('100,000 leases are read once for all who ask, and in pieces', async t => {
  const file = join(t.testdir({}), 'leases')
  const address = (n: number) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`
  const text = Array.from({ length: 100_000 }, (_, n) => line(address(n), ours)).join('')
  // Bytes in place of as many, at the same time: what looks the same is not read again.
  const write = (text: string) => {
    writeFileSync(file, text)
    utimesSync(file, 1e9, 1e9)
  }
  write(text)
  const leases = new Leases('kea', file)
  let turns = 0
  const turn = () => {
    turns++
    timer = setImmediate(turn)
  }
  let timer = setImmediate(turn)
  await leases.has(ours, address(1), now)
  clearImmediate(timer)
  t.ok(turns > 20, `the event loop turned ${turns} times meanwhile`)
  write(text.replaceAll(ours, other))
  const answers = await Promise.all(Array.from({ length: 500 }, (_, n) => leases.has(ours, address(n), now)))
  t.ok(answers.every(Boolean), 'what has not changed is not read again')
  writeFileSync(file, text + line(address(7), other))
  t.equal(await leases.has(ours, address(7), now), false, 'what has changed is')
})
