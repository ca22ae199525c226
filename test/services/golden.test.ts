import t from 'tap'
import { requirePrograms } from '../support/programs.js'
import { everything, loaders, many } from './cluster.js'
import { complaints, isGolden, rendered, servers } from './rendered.js'

requirePrograms('dhcpd', 'kea-dhcp4', 'dnsmasq', 'named-checkconf', 'named-checkzone')

const hosts = process.env.SVCD_LONG ? 10_000 : 300

for (const [service, server] of servers)
  t.test(`${service} ${server}: what is rendered passes the checker of the server`, async t => {
    for (const [what, objects] of Object.entries({ nothing: {}, one: many(1), everything })) {
      const files = await rendered(service, server, objects)
      isGolden(t, `${service}-${server}-${what}`, files)
      t.strictSame(complaints(service, server, files), [], `${what}: no complaint`)
    }
    t.strictSame(
      complaints(service, server, await rendered(service, server, many(hosts))),
      [],
      `${hosts} hosts`
    )
  })

// rules 4.42
for (const [service, server] of servers.filter(([service]) => service === 'dhcp'))
  t.test(`${server}: loaders of networks and nodes`, async t => {
    const files = await rendered(service, server, loaders)
    isGolden(t, `${service}-${server}-loaders`, files)
    t.strictSame(complaints(service, server, files), [])
  })

t.test('the checks find what is wrong', async t => {
  for (const [service, server] of servers) {
    const files = await rendered(service, server, everything)
    for (const spoilt of files.slice(0, 3)) {
      if (service === 'dns' && server === 'dnsmasq' && spoilt !== files[0]) continue
      const text = spoilt.text.replace(/(\}|;)?\s*$/, '\nnonsense here !!\n')
      const wrong = files.map(file => (file === spoilt ? { ...file, text } : file))
      t.match(complaints(service, server, wrong), [/./], `${service} ${server}: ${spoilt.path}`)
    }
  }
})
