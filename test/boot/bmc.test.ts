import t from 'tap'
import { Controller } from '../support/controller.js'

t.test('what the install script knows of the BMC', async t => {
  const controller = await Controller.start(t)
  await controller.cluster()
  await controller.post('/config/network/ipmi', { network: '10.148.0.0/16', gateway: '10.148.255.254' })
  await controller.post('/config/cluster', { ntp_server: '10.141.255.1' })
  await controller.post('/config/bmcsetup/compute', {
    userid: 3,
    username: 'operator',
    password: 'not for previews'
  })
  await controller.post('/config/group/compute', {
    setupbmc: true,
    bmcsetupname: 'compute',
    interfaces: [{ interface: 'BMC', network: 'ipmi', options: 'mtu=1500, vlan=42' }]
  })
  await controller.post('/config/node/node001', { group: 'compute' })
  const rendered = async () => (await controller.get('/config/node/node001/_render/install')).text

  const text = await rendered()
  for (const line of [
    "BMC_ADDRESS='10.148.0.1'",
    "BMC_NETMASK='255.255.0.0'",
    "BMC_GATEWAY='10.148.255.254'",
    "BMC_VLAN='42'",
    "BMC_NTP='10.141.255.1'"
  ])
    t.match(text, `\n${line}\n`)
  t.notMatch(text, 'not for previews')

  await controller.post('/config/network/ipmi', { ntp_server: '10.148.255.1' })
  await controller.post('/config/node/node001', { interfaces: [{ interface: 'BMC', options: 'vlan=off' }] })
  const changed = await rendered()
  t.match(changed, "\nBMC_VLAN='off'\n", "the node's options over its group's")
  t.match(changed, "\nBMC_NTP='10.148.255.1'\n", "the network's time server over the cluster's")
  await controller.post('/config/node/node001', { interfaces: [{ interface: 'BMC', ipaddress: null }] })
  t.match(await rendered(), "\nBMC_ADDRESS=''\nBMC_NETMASK=''\nBMC_GATEWAY=''\n", 'no address, no network')
})
