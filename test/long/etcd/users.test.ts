// A real etcd that knows users and asks for certificates.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { EtcdMedium, type EtcdOptions } from '../../../lib/store/etcd/medium.js'
import { Store } from '../../../lib/store/store.js'
import { kinds, MacIndex, type TestTypes } from '../../store/fixtures.js'
import { makeCertificate } from '../../support/certificate.js'
import { startEtcd } from '../../support/etcd.js'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'

const base64 = (text: string) => Buffer.from(text).toString('base64')
const open = (options: EtcdOptions) =>
  Store.open<TestTypes, MacIndex>({
    medium: new EtcdMedium({ ttlSeconds: 3, patienceMs: 500, ...options }),
    kinds,
    createIndex: () => new MacIndex()
  })

t.test('TLS, and a user whose role has the prefix; a token that is void is renewed', async t => {
  const directory = scratch(t)
  const files = await makeCertificate(directory, 'etcd')
  const client = await makeCertificate(directory, 'client', 90, '/O=svcd')
  const [ca, named] = [readFileSync(files.certificate), readFileSync(files.key)]
  const cert = readFileSync(client.certificate)
  const trusted = join(directory, 'trusted.crt')
  writeFileSync(trusted, `${ca}${cert}`)
  const etcd = await startEtcd(t, { ...files, trusted })
  const tls = { ca, cert, key: readFileSync(client.key) } as const
  for (const [name, password] of [
    ['root', 'r'],
    ['svcd', 's']
  ])
    await etcd.ask('auth/user/add', { name, password })
  await etcd.ask('auth/role/add', { name: 'svcd' })
  const perm = { permType: 'READWRITE', key: base64('/svcd/'), range_end: base64('/svcd0') }
  await etcd.ask('auth/role/grant', { name: 'svcd', perm })
  for (const [user, role] of [
    ['root', 'root'],
    ['svcd', 'svcd']
  ])
    await etcd.ask('auth/user/grant', { user, role })
  await etcd.ask('auth/enable', {})
  const ours = { endpoints: [etcd.tlsUrl], tls, login: { user: 'svcd', password: 's' } }

  await t.rejects(open({ ...ours, login: { user: 'svcd', password: 'x' } }), /user "svcd" is not let in/)
  await t.rejects(
    open({ endpoints: [etcd.tlsUrl], tls }),
    /permission denied; give the user of \[store\] user a role/
  )
  await t.rejects(open({ ...ours, tls: {} }), /its certificate is not trusted/)
  await t.rejects(
    open({ ...ours, tls: { ca, cert: ca, key: named } }),
    /takes no certificate with a common name beside them: have the one of \[store\] cert issued without CN/
  )
  await t.rejects(
    open({ ...ours, prefix: '/other/' }),
    /permission denied; give the user of \[store\] user a role/
  )

  const store = await open(ours)
  const set = (value: number) => store.change(tx => tx.put('counter', 'c', { name: 'c', value }))
  await set(1)
  const root = async () => {
    const { token } = await etcd.ask('auth/authenticate', { name: 'root', password: 'r' })
    return token
  }
  // All tokens are void after this; users that are changed make those from before it too old.
  await etcd.ask('auth/disable', {}, await root())
  await etcd.ask('auth/enable', {})
  await set(2)
  await etcd.ask('auth/role/add', { name: 'another' }, await root())
  await set(3)
  await until(() => store.health.ok)
  await store.close()
  const again = await open(ours)
  t.equal(again.current.get('counter', 'c')?.value, 3)
  await again.close()
})
