// Two controllers on one etcd: what the standby hands on to the one that writes.
import { connect, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { makeCertificate, makeIssued } from '../../support/certificate.js'
import { controllerOn, isPrimary, twoControllers } from '../../support/controllers.js'
import type { Daemon } from '../../support/daemon.js'
import { startEtcd } from '../../support/etcd.js'
import { freePort } from '../../support/free-port.js'
import { giveKeys } from '../../support/keys.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'
import { watched } from '../../support/watched-etcd.js'

/** The whole answer to a request that comes from this address of loopback. */
const rawFrom = (localAddress: string, { port }: { port: number }, text: string) =>
  new Promise<string>((resolve, reject) => {
    let answer = ''
    connect({ host: '127.0.0.1', port, localAddress })
      .on('data', chunk => {
        answer += chunk
      })
      .on('end', () => resolve(answer))
      .on('error', reject)
      .write(text)
  })

// rules 11.16
t.test('an admin and a node get from the standby what the one that writes answers', async t => {
  const [first, second] = await twoControllers(t)
  await second.create('network', 'cluster', { network: '10.141.0.0/16' })
  await second.create('group', 'g', {})
  await second.create('node', 'n1', { group: 'g' })
  t.equal((await first.request('GET', '/config/node/n1')).status, 200)
  for (const path of ['/config/node', '/config/node/n1', '/config/cluster/export', '/config/node/none'])
    t.strictSame(await second.request('GET', path), await first.request('GET', path), path)
  const again = { config: { node: { n1: { group: 'none' } } } }
  t.match(await second.request('POST', '/config/node/n1', again), { status: 400 })
  t.equal((await second.request('GET', '/config/node/n1/_delete')).status, 204)
  t.equal((await first.request('GET', '/config/node/n1')).status, 404)

  await second.create('node', 'n2', { group: 'g' })
  const state = { monitor: { status: { n2: { state: 'installer.downloaded' } } } }
  t.equal((await second.request('POST', '/monitor/node/n2', state)).status, 204)
  t.match(await first.request('GET', '/monitor/node/n2'), {
    status: 200,
    body: { monitor: { status: { n2: { state: 'installer.downloaded' } } } }
  })
  t.notMatch(second.log(), /error/)
  await second.stop()
  await first.stop()
})

// rules 2.21, 11.16
t.test('a standby hands on If-Match, and the tags of both are the same', async t => {
  const [first, second] = await twoControllers(t)
  await second.create('group', 'g', { comment: 'old' })
  const ask = (daemon: Daemon, line: string, more = '', body = '') => {
    const { token } = daemon.client()
    const length = `Content-Length: ${body.length}\r\nConnection: close\r\n`
    const head = `${line} HTTP/1.1\r\nHost: a\r\nx-access-tokens: ${token}\r\n${length}${more}\r\n`
    return rawFrom('127.0.0.1', daemon.client(), head + body)
  }
  const etagOf = async (daemon: Daemon) =>
    /^ETag: (.*?)\r$/im.exec(await ask(daemon, 'GET /config/group/g'))?.[1] ?? ''
  const before = await etagOf(first)
  t.match(before, /^"[\w-]{22}\.[\w-]{22}"$/)
  t.equal(await etagOf(second), before)
  const change = (daemon: Daemon, comment: string) =>
    ask(daemon, 'POST /config/group/g', `If-Match: ${before}\r\n`, JSON.stringify({ comment }))
  t.match(await change(second, 'by the standby'), /^HTTP\/1\.1 204 /)
  for (const daemon of [first, second])
    t.match(await change(daemon, 'late'), /^HTTP\/1\.1 412 .*changed-meanwhile/s)
  // The other one writes now.
  const after = await etagOf(first)
  await first.stop()
  await until(() => isPrimary(second))
  t.equal(await etagOf(second), after, 'the tag outlives the one that made it')
  await second.stop()
})

// rules 11.16
t.test('who asked is believed from controllers alone', async t => {
  const [first, second] = await twoControllers(t)
  const head = (more = '') =>
    `GET /config/network HTTP/1.1\r\nHost: a\r\nConnection: close\r\nx-access-tokens: ${second.client().token}\r\n${more}\r\n`
  const port = (daemon: Daemon) => daemon.client()
  t.match(await rawFrom('127.0.0.5', port(second), head()), /^HTTP\/1\.1 200 /)
  for (const forged of [`10.141.0.9 1 ${'0'.repeat(64)}`, 'x'])
    t.match(
      await rawFrom('127.0.0.6', port(first), head(`x-svcd-forwarded: ${forged}\r\n`)),
      /^HTTP\/1\.1 400 .*is for controllers of this cluster/s
    )
  await second.stop()
  await first.stop()
})

// rules 11.16
t.test('controllers ask one another by https, with certificates of the authority in [store] ca', async t => {
  const etcd = await startEtcd(t)
  const directory = scratch(t)
  const authority = await makeCertificate(directory, 'authority')
  const { certificate, key } = await makeIssued(directory, 'controllers', authority)
  const withTls = async (...more: string[]) => {
    const port = await freePort()
    const tls = [`http.tls_certificate=${certificate}`, `http.tls_key=${key}`, `http.tls_port=${port}`]
    return controllerOn(t, etcd, ...tls, `store.url=https://127.0.0.1:${port}`, ...more)
  }
  const first = await withTls(`store.ca=${authority.certificate}`, 'controller.name=c1')
  await first.start()
  await until(() => isPrimary(first))

  const naive = await withTls('controller.name=c2')
  giveKeys(first, naive)
  await naive.start()
  const health = async () => JSON.stringify((await naive.request('GET', '/monitor/service/svcd')).body)
  await until(async () => {
    await naive.request('GET', '/config/node')
    return (await health()).includes('cannot be asked')
  })
  const told =
    /cannot be asked \(SELF_SIGNED_CERT_IN_CHAIN\): its certificate is not trusted; name its authority in \[store\] ca/
  t.match(await health(), told)
  t.match(naive.log(), told)
  t.notMatch(naive.log(), /look whether svcd runs there/)
  await naive.stop()

  const second = await withTls(`store.ca=${authority.certificate}`, 'controller.name=c3')
  giveKeys(first, second)
  await second.start()
  await until(async () => (await second.request('GET', '/config/node')).status === 200)
  await second.create('group', 'g', {})
  t.equal((await first.request('GET', '/config/group/g')).status, 200)
  const audit = () => second.request('GET', '/monitor/audit')
  await until(async () => JSON.stringify((await audit()).body).includes('"c1"'))
  t.match(await audit(), { status: 200 })
  t.notMatch(JSON.stringify((await audit()).body), /CERT|SIGNATURE/)
  t.notMatch(second.log(), /certificate/)
  await second.stop()
  await first.stop()
})

/** The port of one in between, which may change what it hears; and the requests that came over it. */
async function between(t: Test, to: () => number, change: (text: string) => string) {
  const texts: string[] = []
  const server = createServer(socket => {
    const other = connect(to(), '127.0.0.1')
    const at = texts.push('') - 1
    socket
      .on('data', chunk => {
        texts[at] += chunk.toString('latin1')
        other.write(change(chunk.toString('latin1')), 'latin1')
      })
      .on('close', () => other.destroy())
    for (const end of [socket, other]) end.on('error', () => undefined)
    other.pipe(socket)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return {
    port: (server.address() as { port: number }).port,
    // A connection is used for several.
    heard: () => texts.flatMap(text => text.split(/(?=(?:GET|POST) \/)/))
  }
}

// rules 11.16
t.test('what is read off the wire between two controllers is good for nothing else', async t => {
  const etcd = await startEtcd(t)
  let changes = false
  const change = (text: string) =>
    changes ? text.replace('installer.downloaded', 'installer.discovered') : text
  const wire = await between(t, () => first.client().port, change)
  const first: Daemon = await controllerOn(t, etcd, `store.url=http://127.0.0.1:${wire.port}`)
  const second = await controllerOn(t, etcd)
  await first.start()
  await until(() => isPrimary(first))
  giveKeys(first, second)
  await second.start()
  await until(async () => (await second.request('GET', '/config/node')).status === 200)
  await first.create('group', 'g', {})
  await first.create('node', 'n1', { group: 'g' })

  const path = '/monitor/node/n1'
  const report = { monitor: { status: { n1: { state: 'installer.downloaded' } } } }
  changes = true
  t.match(await second.request('POST', path, report), { status: 400, body: { message: /another body/ } })
  changes = false
  t.notMatch(JSON.stringify(await first.request('GET', path)), /installer/)
  t.equal((await second.request('POST', path, report)).status, 204)
  const asked = () => wire.heard().filter(text => text.startsWith(`POST ${path} `))
  await until(() => asked().length === 2)
  const [, text = ''] = asked()
  t.match(text, /^x-svcd-forwarded: 127\.0\.0\.1 /im)
  t.match(await rawFrom('127.0.0.6', first.client(), text), /^HTTP\/1\.1 400 .*came before, and counts once/s)
  await second.stop()
  await first.stop()
})

// rules 11.14
t.test(
  'the first endpoint is dead: controllers start with the next one, and one that starts beside another follows it',
  async t => {
    const etcd = await startEtcd(t)
    const endpoints = `store.endpoints=http://127.0.0.1:${await freePort()}, ${etcd.url}`
    const [first, second] = [
      await controllerOn(t, etcd, endpoints, 'controller.name=one'),
      await controllerOn(t, etcd, endpoints, 'controller.name=two')
    ]
    await first.start()
    await until(() => isPrimary(first))
    giveKeys(first, second)
    await second.start()
    await until(async () => (await second.request('GET', '/config/node')).status === 200)
    t.notOk(await isPrimary(second))
    t.notMatch(second.log(), /stop svcd there first/)
    await Promise.all([first.stop(), second.stop()])
    // Neither knows of the other one when it begins.
    await Promise.all([first.start(), second.start()])
    await until(
      async () => Number(await isPrimary(first)) + Number(await isPrimary(second)) === 1,
      () => first.log() + second.log()
    )
    await first.stop()
    await second.stop()
  }
)

// rules 11.16
t.test(
  'a URL that leads to another controller than the one that writes is named, with the way out',
  async t => {
    const etcd = await startEtcd(t)
    const listen = `127.0.0.1:${await freePort()}`
    const second = await controllerOn(t, etcd, 'controller.name=two', `http.listen=${listen}`)
    const first = await controllerOn(t, etcd, 'controller.name=one', `store.url=http://${listen}`)
    await first.start()
    await until(() => isPrimary(first))
    giveKeys(first, second)
    await second.start()
    await until(async () =>
      /answers there/.test(JSON.stringify((await second.request('GET', '/config/node')).body))
    )
    const { body } = await second.request('GET', '/monitor/service/svcd')
    for (const text of [JSON.stringify(body), second.log()])
      t.match(
        text,
        /controller (?:one|two or one|one or two) \(http:\S+\), which writes, cannot be asked \(another controller answers there.*\[store\] url/
      )
    await second.stop()
    await first.stop()
  }
)

// rules 11.16
t.test('the one that writes dies: 503 until the standby writes, and then it answers itself', async t => {
  const [first, second] = await twoControllers(t)
  await second.create('network', 'cluster', { network: '10.141.0.0/16' })
  await first.kill()
  const refusal = await second.request('GET', '/config/network')
  t.equal(refusal.status, 503)
  await until(async () => (await second.request('GET', '/config/network')).status === 200)
  t.ok(await isPrimary(second))
  await first.start()
  await until(async () => (await first.request('GET', '/config/network')).status === 200)
  await first.create('otherdev', 'a', { network: 'cluster', ipaddress: '10.141.1.1' })
  t.equal((await second.request('GET', '/config/otherdev/a')).status, 200)
  await first.stop()
  await second.stop()
})

// rules 11.15
t.test(
  'each controller says what it is and how far it is; all are listed, one that is gone as that',
  async t => {
    const etcd = await startEtcd(t)
    const [first, second] = [
      await controllerOn(t, etcd, 'controller.name=one', 'cluster.name=site'),
      await controllerOn(t, etcd, 'controller.name=two', 'cluster.name=site')
    ]
    await first.start()
    await until(() => isPrimary(first))
    giveKeys(first, second)
    await second.start()
    const controllerOf = async (daemon: Daemon, path = '/version') => {
      const { body } = await daemon.request('GET', path)
      type Standing = { role?: string; revision?: number; lag_ms?: number }
      type Told = { controller?: Standing; monitor?: { service: { svcd: { controller: Standing } } } }
      const { controller, monitor } = body as Told
      return controller ?? monitor?.service.svcd.controller ?? {}
    }
    await first.create('network', 'cluster', { network: '10.141.0.0/16' })
    await until(async () => (await controllerOf(second)).revision === (await controllerOf(first)).revision)
    const { revision: before = 0, ...writes } = await controllerOf(first)
    t.strictSame(writes, { role: 'primary', lag_ms: 0 })
    t.equal((await controllerOf(first, '/monitor/service/svcd')).role, 'primary')
    const follows = await controllerOf(second, '/monitor/service/svcd')
    t.equal(follows.role, 'standby')
    t.ok(Number(follows.lag_ms) < 5000, `${follows.lag_ms} ms`)
    await second.create('group', 'g', {})
    await until(async () => Number((await controllerOf(second)).revision) > before)

    const listed = async (daemon: Daemon) => {
      const { body } = await daemon.request('GET', '/config/cluster')
      const { config } = body as { config?: { cluster: Record<string, { status?: string }> } }
      return [config?.cluster.one?.status, config?.cluster.two?.status]
    }
    for (const daemon of [first, second])
      await until(
        async () => String(await listed(daemon)) === 'primary,standby',
        () => daemon.log()
      )
    const { body } = await second.request('GET', '/config/cluster')
    t.match(
      await second.request('POST', '/config/cluster', body),
      { status: 204 },
      'what is read can be posted back'
    )
    await first.kill()
    await until(async () => String(await listed(second)) === 'gone,primary')
    t.equal((await controllerOf(second)).role, 'primary')
    await second.stop()
  }
)

// rules 11.15
t.test('one that does not reach etcd does not say that it writes', async t => {
  const etcd = await startEtcd(t)
  let isCut = false
  const url = await watched(t, etcd, {
    before: () => {
      if (isCut) throw new Error('cut off')
    }
  })
  const [first, second] = [
    await controllerOn(t, { ...etcd, url }, 'controller.name=one'),
    await controllerOn(t, etcd, 'controller.name=two')
  ]
  await first.start()
  await until(() => isPrimary(first))
  giveKeys(first, second)
  await second.start()
  const statuses = async (daemon: Daemon) => {
    const { body } = await daemon.request('GET', '/config/cluster')
    const { config } = body as { config?: { cluster: Record<string, { status?: string }> } }
    return [config?.cluster.one?.status, config?.cluster.two?.status].join()
  }
  await until(async () => (await statuses(first)) === 'primary,standby')
  const { body: asBefore } = await first.request('GET', '/config/cluster')

  isCut = true
  await until(() => isPrimary(second))
  const { body } = await first.request('GET', '/version')
  t.match(body, { controller: { role: 'unknown', lag_ms: Number } })
  const { lag_ms } = (body as { controller: { lag_ms: number } }).controller
  t.ok(Number.isInteger(lag_ms) && lag_ms > 0, `${lag_ms} ms`)
  t.match(await first.request('GET', '/monitor/service/svcd'), {
    status: 503,
    body: { monitor: { service: { svcd: { status: 'failed', controller: { role: 'unknown' } } } } }
  })
  t.match(await first.request('GET', '/monitor/primary'), {
    status: 503,
    body: { message: 'this controller does not know whether it still writes' }
  })
  t.equal(await statuses(first), 'standby,standby', 'it calls none primary')
  t.equal(
    (await first.request('POST', '/config/cluster', asBefore)).status,
    503,
    'what was read can be tried again'
  )

  isCut = false
  await until(async () => (await statuses(first)) === 'standby,primary')
  t.match((await first.request('GET', '/version')).body, { controller: { role: 'standby' } })
  t.match(await first.request('GET', '/monitor/primary'), {
    status: 503,
    body: { message: 'this controller is a standby: it does not write' }
  })
  await first.stop()
  await second.stop()
})

// rules 11.15
t.test('two controllers of one name are told', async t => {
  const [first, second] = await twoControllers(t)
  for (const daemon of [first, second])
    await until(() =>
      /has the name controller too: give each its own, \[controller\] name/.test(daemon.log())
    )
  for (const daemon of [first, second])
    t.match(
      JSON.stringify((await daemon.request('GET', '/monitor/service/svcd')).body),
      'has the name controller too'
    )
  await second.stop()
  await first.stop()
})
