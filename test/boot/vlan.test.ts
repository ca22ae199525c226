import t from 'tap'
import { Controller } from '../support/controller.js'

// rules 4.34
t.test(
  'a provision interface that is a tagged VLAN is refused before the machine starts its kernel',
  async t => {
    const c = await Controller.start(t)
    await c.cluster()
    const mac = '52:54:00:00:00:01'
    await c.post('/config/node/node001', { group: 'compute', macaddr: mac })
    const set = async (entry: object, more: object = {}) => {
      const { status } = await c.post('/config/node/node001', { interfaces: [entry], ...more })
      t.equal(status, 204)
      const { text } = await c.get(`/boot/search/mac/${mac}`, { token: null, source: '10.141.0.1' })
      const { obstacle } = (await c.get('/monitor/node/node001/_why')).body.monitor.why.node001
      return { text, obstacle }
    }
    for (const options of [
      'vlan=12',
      'vlan=012',
      'mtu=9000 vlan=4094',
      'link=eth0 vlan=7 defaultroute=yes'
    ]) {
      const { text, obstacle } = await set({ interface: 'BOOTIF', options })
      t.notMatch(text, 'imgexec', options)
      t.match(
        text,
        /interface BOOTIF of node node001 is the tagged VLAN \d+, and a node cannot be installed over one/
      )
      t.match(obstacle, /name an untagged interface as "provision_interface"/)
    }
    for (const options of ['', 'mtu=9000', 'vlan=off', 'vlan=0', 'xvlan=12']) {
      const { text, obstacle } = await set({ interface: 'BOOTIF', options })
      t.match(text, 'imgexec', options)
      t.equal(obstacle, null)
    }
    const other = { interface: 'tagged', network: 'cluster', options: 'vlan=12 link=BOOTIF' }
    t.match((await set(other)).text, 'imgexec', 'another interface may be one')
    t.match((await set(other, { provision_interface: 'tagged' })).obstacle, /interface tagged of node/)
  }
)
