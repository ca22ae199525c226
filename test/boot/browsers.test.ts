import t from 'tap'
import { Controller } from '../support/controller.js'
import { documents } from '../support/state.js'

const c = await Controller.start(t)
await c.cluster()
await c.post('/config/node/n1', { group: 'compute' })
await c.post('/config/node/n2', { group: 'compute', macaddr: '52:54:00:00:00:02' })
const mac = '52:54:00:00:00:07'
const source = '10.141.0.1'
const paths = [
  `/boot/manual/hostname/n1/${mac}`,
  '/boot/manual/hostname/n1',
  `/boot/manual/group/compute/${mac}`,
  '/boot/search/52:54:00:00:00:02',
  '/boot/search/mac/52:54:00:00:00:02',
  '/boot/install/n1',
  '/boot/running/n1/x',
  '/boot/cloud-init/n1/user-data',
  '/kickstart/install/n1'
]
const agents = {
  firefox: 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0',
  ipxe: 'iPXE/1.21.1+ (g4bd0)'
}

// rules 5.8
t.test('what only a browser sends is refused where no token is needed for a change', async t => {
  const before = await documents(c)
  const table: Record<string, string>[] = [
    { Origin: 'https://evil.example' },
    { Origin: 'null' },
    { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'no-cors', 'Sec-Fetch-Dest': 'image' },
    { 'Sec-Fetch-Site': 'none' },
    { 'sec-ch-ua-mobile': '?0' },
    { Referer: 'https://evil.example/page' },
    { Referer: 'http://10.141.255.254:8000/' },
    { Referer: 'nonsense' },
    // A page over plain http that sends no referrer leaves these.
    { 'Accept-Language': 'en-US,en;q=0.5' },
    { 'Accept-Language': '' },
    { 'User-Agent': agents.firefox },
    { 'Upgrade-Insecure-Requests': '1' }
  ]
  for (const path of paths)
    for (const headers of table) {
      const answer = await c.get(path, {
        token: null,
        source,
        headers: { Host: '10.141.255.254:7050', ...headers }
      })
      const what = `${path} ${JSON.stringify(headers)}`
      t.equal(answer.status, 403, what)
      t.match(answer.body.message, /^requests of browsers are refused here \(header [a-z-]+\)/, what)
    }
  t.equal(
    (await c.get(paths[0] as string, { source, method: 'HEAD', headers: { Origin: 'null' } })).status,
    405
  )
  // A token does not help: a page of the same origin could send any.
  t.equal(
    (await c.get(paths[2] as string, { source, headers: table[0] as Record<string, string> })).status,
    403
  )
  t.same(await documents(c), before, 'nothing was changed')
})

t.test('firmware, iPXE and curl go on', async t => {
  const table: Record<string, string>[] = [
    {},
    { 'User-Agent': agents.ipxe, Connection: 'keep-alive' },
    { 'User-Agent': 'UefiHttpBoot/1.0', Accept: '*/*' },
    { 'User-Agent': 'curl/7.88.1', Accept: '*/*' },
    { 'User-Agent': 'Wget/1.21.3', Accept: '*/*', 'Accept-Encoding': 'identity' },
    { Host: '10.141.255.254:7050', Referer: 'http://10.141.255.254:7050/boot' }
  ]
  for (const headers of table)
    for (const path of ['/boot/manual/hostname/n1', '/boot/search/52:54:00:00:00:02'])
      t.match(await c.get(path, { token: null, source, headers }), { status: 200, text: /^#!ipxe/ })
  t.match(await c.get(paths[0] as string, { token: null, source, headers: { 'User-Agent': agents.ipxe } }), {
    status: 200,
    text: /^#!ipxe/
  })
  t.equal((await c.get('/config/node/n1')).body.config.node.n1.macaddr, mac)
  // What changes nothing is shown to browsers too.
  for (const path of ['/boot', '/boot/short', '/boot/disk', '/version', '/'])
    t.equal((await c.get(path, { token: null, headers: { 'Sec-Fetch-Site': 'none' } })).status, 200, path)
})
