import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { hasLease } from '../../lib/services/dhcp/leases.js'

const now = Date.UTC(2026, 10, 20, 12)
const seconds = now / 1000
const [ours, other] = ['52:54:00:00:00:01', '52:54:00:00:00:02']

// As the servers write them: an address that went from one machine to another, one that was given back, one that is over.
const files = {
  isc: `# The format of this file is documented in the dhcpd.leases(5) manual page.
authoring-byte-order little-endian;

lease 10.142.0.100 {
  starts 5 2026/11/20 11:50:00;
  ends 5 2026/11/20 12:50:00;
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

for (const [server, text] of Object.entries(files))
  t.test(`${server}: who has which address now`, async t => {
    const file = join(t.testdir({}), 'leases')
    const has = (mac: string, address: string) => hasLease(server, file, mac, address, now)
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
