import t from 'tap'
import { Controller } from '../support/controller.js'
import { row } from '../support/rows.js'

const c = await Controller.start(t)
const bare = (name: string, key: string, value: unknown) => ({
  config: { network: { [name]: { [key]: value } } },
  [key]: value
})
const status = (address: string, state: string) => ({
  config: { network: { [address]: { status: state } } },
  [address]: { status: state }
})

// rules 3.7
t.test('next free address: not used, not reserved, not dynamic', async t => {
  const networks: [string, object, string | undefined][] = [
    ['plain', { network: '192.0.2.0/24' }, '192.0.2.1'],
    ['gated', { network: '198.51.100.0/24', gateway: '198.51.100.1', ns_ip: '198.51.100.2' }, '198.51.100.3'],
    [
      'dynamic',
      { network: '10.9.0.0/24', dhcp: true, dhcp_range_begin: '10.9.0.1', dhcp_range_end: '10.9.0.99' },
      '10.9.0.100'
    ],
    [
      'kept',
      { network: '10.8.0.0/24', dhcp: false, dhcp_range_begin: '10.8.0.1', dhcp_range_end: '10.8.0.9' },
      '10.8.0.1'
    ],
    ['controlled', { network: '10.141.255.252/30' }, '10.141.255.253'],
    ['two', { network: '203.0.113.0/31' }, '203.0.113.0'],
    ['one', { network: '203.0.113.7/32' }, '203.0.113.7'],
    ['loopback', { network: '127.0.0.0/8' }, '127.0.0.1'],
    ['all', { network: '0.0.0.0/0' }, '0.0.0.1'],
    ['full', { network: '10.7.0.0/30', gateway: '10.7.0.1', ns_ip: '10.7.0.2' }, undefined]
  ]
  for (const [name, fields, nextip] of networks) {
    t.equal((await c.post(`/config/network/${name}`, fields)).status, 201, name)
    const ask = ['GET', `/config/network/${name}/_nextfreeip`] as const
    if (nextip === undefined)
      await row(t, c, { what: name, ask, status: 404, says: /network full has no free/ })
    else await row(t, c, { what: name, ask, status: 200, body: bare(name, 'nextip', nextip) })
  }
  await c.post('/config/node/n1', { interfaces: [{ interface: 'a', network: 'plain' }] })
  await c.post('/config/node/n2', {
    interfaces: [{ interface: 'a', network: 'plain', ipaddress: '192.0.2.3' }]
  })
  const next = async () => (await c.get('/config/network/plain/_nextfreeip')).body.nextip
  t.equal(await next(), '192.0.2.2')
  t.equal(await next(), '192.0.2.2', 'asking reserves nothing')
  await c.post('/config/node/n3', { interfaces: [{ interface: 'a', network: 'plain' }] })
  t.equal(await next(), '192.0.2.4')
  await c.get('/config/node/n1/_delete')
  t.equal(await next(), '192.0.2.1')
})

// rules 1.1, 3.7
t.test('taken addresses, and the status of one', async t => {
  const entry = { ipaddress: '192.0.2.2', device: 'n3' }
  for (const suffix of ['_list', '_member'])
    await row(t, c, {
      what: suffix,
      ask: ['GET', `/config/network/plain/${suffix}`],
      status: 200,
      body: bare('plain', 'taken', [entry, { ipaddress: '192.0.2.3', device: 'n2' }])
    })
  await row(t, c, {
    what: 'none',
    ask: ['GET', '/config/network/gated/_list'],
    status: 200,
    body: bare('gated', 'taken', [])
  })
  await row(t, c, {
    what: 'the controller',
    ask: ['GET', '/config/network/controlled/_list'],
    status: 200,
    body: bare('controlled', 'taken', [{ ipaddress: '10.141.255.254', device: 'controller' }])
  })
  const states: [string, string, string][] = [
    ['plain', '192.0.2.2', 'taken'],
    ['plain', '192.0.2.4', 'free'],
    ['controlled', '10.141.255.254', 'taken'],
    ['all', '192.0.2.2', 'taken'],
    ['plain', '192.0.2.0', 'taken'],
    ['plain', '192.0.2.255', 'taken'],
    ['gated', '198.51.100.1', 'taken'],
    ['gated', '198.51.100.2', 'taken'],
    ['gated', '198.51.100.3', 'free'],
    ['all', '198.51.100.1', 'taken'],
    ['dynamic', '10.9.0.5', 'free'],
    ['two', '203.0.113.0', 'free'],
    ['one', '203.0.113.7', 'free']
  ]
  for (const [network, address, state] of states)
    await row(t, c, {
      what: `${network} ${address}`,
      ask: ['GET', `/config/network/${network}/${address}`],
      status: 200,
      body: status(address, state)
    })
  for (const suffix of ['_list', '_member', '_nextfreeip', '192.0.2.1', '_clone', '_delete'])
    await row(t, c, {
      what: `${suffix} of a missing network`,
      ask:
        suffix === '_clone'
          ? ['POST', '/config/network/none/_clone', { newnetname: 'x' }]
          : ['GET', `/config/network/none/${suffix}`],
      status: 404,
      says: /network none does not exist/
    })
  await row(t, c, {
    what: 'outside',
    ask: ['GET', '/config/network/plain/192.0.3.1'],
    status: 404,
    says: [/192\.0\.3\.1/, /network plain/]
  })
  for (const wrong of ['192.0.2', '192.0.2.256', '192.0.2.01', '1.2.3.4.5', '::1', 'x'])
    await row(t, c, {
      what: wrong,
      ask: ['GET', `/config/network/plain/${wrong}`],
      status: 400,
      says: /IPv4/
    })
})

// rules 3.6
t.test('an address alone: the longest prefix answers, then the first name', async t => {
  await c.get('/config/network/all/_delete')
  await c.post('/config/network/wide', { network: '192.0.0.0/8' })
  await row(t, c, {
    what: 'host bits',
    ask: ['POST', '/config/network/x', { network: '192.0.2.5/24' }],
    status: 400,
    says: /network x.*192\.0\.2\.0\/24/
  })
  const states: [string, string][] = [
    ['192.0.2.2', 'taken'],
    ['192.0.2.4', 'free'],
    ['127.1.2.3', 'free']
  ]
  for (const [address, state] of states)
    await row(t, c, {
      what: address,
      ask: ['GET', `/config/network/${address}`],
      status: 200,
      body: status(address, state)
    })
  await row(t, c, {
    what: 'in none',
    ask: ['GET', '/config/network/9.9.9.9'],
    status: 404,
    says: /9\.9\.9\.9/
  })
  await row(t, c, {
    what: 'no address',
    ask: ['GET', '/config/network/9.9.9.999'],
    status: 400,
    says: /9\.9\.9\.999/
  })
  await row(t, c, {
    what: 'POST',
    ask: ['POST', '/config/network/9.9.9.9', { network: '9.9.9.0/24' }],
    status: 400,
    says: /9\.9\.9\.9.*not like an address/
  })
})

// rules 1.4, 3.6, 3.13
t.test('what a network may be', async t => {
  const range = (begin: string, end: string) => ({ dhcp_range_begin: begin, dhcp_range_end: end })
  const refused: [string, object, RegExp][] = [
    ['no prefix', {}, /field "network"/],
    ['null prefix', { network: null }, /field "network"/],
    ['no length', { network: '10.5.0.0' }, /CIDR/],
    ['too long', { network: '10.5.0.0/33' }, /CIDR/],
    ['a mask', { network: '10.5.0.0/255.255.0.0' }, /CIDR/],
    ['IPv6', { network: '2001:db8::/64' }, /CIDR/],
    ['leading zero', { network: '010.5.0.0/16' }, /CIDR/],
    ['gateway outside', { network: '10.5.0.0/16', gateway: '10.6.0.1' }, /"gateway".*outside/],
    ['gateway is the network', { network: '10.5.0.0/16', gateway: '10.5.0.0' }, /"gateway"/],
    ['gateway is the broadcast', { network: '10.5.0.0/16', gateway: '10.5.255.255' }, /"gateway"/],
    ['gateway is a device', { network: '192.0.2.0/24', gateway: '192.0.2.2' }, /"gateway".*node n3/],
    ['range outside', { network: '10.5.0.0/16', ...range('10.5.0.1', '10.6.0.1') }, /"dhcp_range_end"/],
    ['range backwards', { network: '10.5.0.0/16', ...range('10.5.0.9', '10.5.0.1') }, /dhcp_range_begin/],
    [
      'the range holds the controller',
      { network: '10.141.255.0/24', ...range('10.141.255.1', '10.141.255.254') },
      /10\.141\.255\.254, the address of controller/
    ],
    ['half a range', { network: '10.5.0.0/16', dhcp_range_begin: '10.5.0.9' }, /dhcp_range/],
    ['DHCP without a range', { network: '10.5.0.0/16', dhcp: true }, /"dhcp"/]
  ]
  for (const [what, body, says] of refused)
    await row(t, c, {
      what,
      ask: ['POST', '/config/network/x', body],
      status: 400,
      says: [/^network x: /, says]
    })
  await row(t, c, {
    what: 'a range is kept while DHCP is off, and not shown',
    ask: ['GET', '/config/network/kept'],
    status: 200,
    body: {
      config: {
        network: {
          kept: {
            name: 'kept',
            network: '10.8.0.0/24',
            gateway: null,
            ns_hostname: null,
            ns_ip: null,
            ntp_server: null,
            comment: null,
            dhcp: false
          }
        }
      }
    }
  })
  await c.post('/config/network/kept', { dhcp: true })
  const { kept } = (await c.get('/config/network/kept')).body.config.network
  t.match(kept, { dhcp: true, ...range('10.8.0.1', '10.8.0.9') })
})
