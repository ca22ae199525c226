import { monitorEventLoopDelay } from 'node:perf_hooks'
import t from 'tap'
import { ClusterData } from '../../lib/boot/cluster-data.js'
import { FileRenderer } from '../../lib/boot/file-renderer.js'
import { NodeFiles } from '../../lib/boot/node-files.js'
import { Controller } from '../support/controller.js'
import { MemoryCluster } from '../support/memory-cluster.js'

const hosts = `{% for n in nodes if n.ipaddress %}{{ n.ipaddress }} {{ n.hostname }}
{% endfor %}`

// rules 4.25
t.test('templates of files see nodes, groups and networks', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  const post = async (path: string, body: object) => {
    const { status, text } = await c.post(`/config/${path}`, body)
    if (status >= 300) throw new Error(`${path}: ${text}`)
  }
  const text = async (node = 'node001') =>
    (await c.get(`/config/node/${node}/_render/files`)).body.config.node[node].files[0].text
  await post('group/compute', { variables: { cores: '64' }, domain: 'example.org' })
  await post('node/node001', { group: 'compute' })
  await post('node/node002', { group: 'compute', variables: { cores: '128' } })
  await post('file/f', { path: '/etc/f', template: hosts })
  await post('group/compute', { files: ['f'] })
  const [one, two] = [1, 2].map(i => `10.141.0.${i} node00${i}.example.org`)
  t.equal(await text(), `${one}\n${two}\n`)
  t.equal(await text('node002'), `${one}\n${two}\n`)
  // Each change that it shows is seen at once: a new node, a rename, an address, a group, a variable, a
  // delete.
  await post('node/node003', { group: 'compute' })
  t.match(await text(), /node003\.example\.org/)
  await post('node/node003', { newhostname: 'login' })
  t.match(await text(), /\n10\.141\.0\.3 login\.example\.org|^10\.141\.0\.3 login/)
  await post('node/login', { interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.9.9' }] })
  t.match(await text(), /10\.141\.9\.9 login/)
  await post('group/compute', { domain: 'other.org' })
  t.match(await text(), /login\.other\.org/)
  await post('node/login/_delete', {})
  t.notMatch(await text(), /login/)
  const others = `{{ node }}
{% for n in nodes %}{{ n.name }} {{ n.group }} {{ n.variables.cores }}{% for i in n.interfaces %} {{ i.interface }}={{ i.ipaddress }}@{{ i.network }}{% endfor %}
{% endfor %}{% for g in groups %}{{ g.name }} {{ g.nodes | join(',') }} {{ g.variables | length }}
{% endfor %}{% for n in networks %}{{ n.name }} {{ n.network }}
{% endfor %}`
  await post('file/f', { template: others })
  const rest = `node001 compute 64 BOOTIF=10.141.0.1@cluster
node002 compute 128 BOOTIF=10.141.0.2@cluster
compute node001,node002 1
`
  t.ok((await text()).startsWith(`node001\n${rest}`), await text())
  t.ok((await text('node002')).startsWith(`node002\n${rest}`), 'what a node has of its own is not shared')
  t.match(await text(), /\ncluster 10\.141\.0\.0\/16\n/)
  await post('file/f', { template: '{% for n in networks %}{{ n.name }}={{ n.nameserver }};{% endfor %}' })
  await post('network/cluster', { ns_ip: '10.141.3.3,10.141.3.4' })
  t.match(await text(), 'cluster=10.141.3.3 10.141.3.4;', 'as an installation has them')
})

// rules 4.25
t.test('what all nodes have is rendered once, and again after a change that it shows', async t => {
  const cluster = new MemoryCluster({
    'file/hosts': { path: '/etc/hosts', template: hosts },
    'file/own': { path: '/etc/own', template: '{{ nodes | length }} {{ node }}' },
    'group/g': { files: ['hosts', 'own'] },
    ...Object.fromEntries([1, 2, 3].map(i => [`node/n${i}`, { group: 'g' }]))
  })
  let rendered: string[] = []
  const { render } = FileRenderer.prototype
  FileRenderer.prototype.render = function (order) {
    rendered.push(order.name)
    return render.call(this, order)
  }
  t.teardown(() => {
    FileRenderer.prototype.render = render
  })
  const files = new NodeFiles({ model: cluster.model, url: 'http://10.0.0.1' })
  t.teardown(() => files.close())
  const all = async () => {
    rendered = []
    for (const name of ['n1', 'n2', 'n3']) await files.tar(name, false)
    return rendered.sort().join(' ')
  }
  t.equal(await all(), 'hosts own own own')
  t.equal(await all(), 'own own own')
  const node = cluster.model.get('node', 'n1')
  files.changed([{ type: 'node', before: node, after: { ...node, vendor: 'Dell', assettag: '7' } }])
  files.changed([{ type: 'osimage', before: undefined, after: { name: 'x' } }])
  t.equal(await all(), 'own own own', 'what a node reports of itself is none')
  const onBoot = (more: object) => [{ interface: 'BOOTIF', network: 'cluster', ...more }]
  const withInterfaces = (type: string, name: string, ...all: [object, object]) => {
    const [before, after] = all.map(more => ({ name, interfaces: onBoot(more) }))
    files.changed([{ type, before, after }])
  }
  withInterfaces('node', 'n1', {}, { macaddress: '52:54:00:00:00:01' })
  t.equal(await all(), 'own own own', 'a MAC is none, which is learnt at a boot')
  withInterfaces('node', 'n1', {}, { ipaddress: '10.0.0.9' })
  t.equal(await all(), 'hosts own own own')
  withInterfaces('group', 'g', {}, { network: 'other' })
  t.equal(await all(), 'hosts own own own', 'the network of an interface may be that of the group')
  files.changed([{ type: 'node', before: node, after: { ...node, variables: { a: 'b' } } }])
  t.equal(await all(), 'hosts own own own')
  files.changed([{ type: 'cluster', before: undefined, after: undefined }])
  t.equal(await all(), 'hosts own own own')
})

// rules 4.25
t.test('10,000 nodes are looked at in short steps, and too much is refused', async t => {
  const nodes = [...Array(10_000).keys()].map(i => [
    `node/n${i}`,
    { group: 'g', variables: { rack: `r${i % 40}` } }
  ])
  const { model } = new MemoryCluster({ 'group/g': {}, ...Object.fromEntries(nodes) })
  // The memory cluster puts its names in order at the first question; the store has them so.
  model.view.names('node')
  const data = new ClusterData(model)
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const { parts } = await data.text(8_388_608)
  const text = parts.join('')
  delay.disable()
  t.comment(`${text.length} characters, longest wait of the event loop ${Math.round(delay.max / 1e6)} ms`)
  t.equal(JSON.parse(text).nodes.length, 10_000)
  t.ok(parts.length > 10 && parts.every(part => part.length < 262_144), 'in parts')
  const empty = (await new ClusterData(new MemoryCluster({}).model).text(100)).parts.join('')
  t.same(JSON.parse(empty), { nodes: [], groups: [], networks: [] })
  t.equal(await data.text(8_388_608), await data.text(8_388_608), 'the same as long as nothing has changed')
  await t.rejects(
    new ClusterData(model).text(100_000),
    /the nodes, groups and networks have more than 100000 characters/
  )
  let steps = 0
  const turns = setInterval(() => steps++, 0)
  await new ClusterData(model).text(8_388_608)
  clearInterval(turns)
  t.ok(steps >= 2, `${steps} turns of the event loop in between`)
})
