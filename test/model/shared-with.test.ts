import t from 'tap'
import { populated } from '../support/routes.js'

// rules 10.12
t.test('a network names one on its wire: a reference like any other, and never itself', async t => {
  const c = await populated(t)
  const post = async (name: string, body: object) => (await c.post(`/config/network/${name}`, body)).status
  t.equal(await post('second', { network: '10.7.0.0/24', shared_with: 'cluster' }), 201)
  const itself = await c.post('/config/network/second', { shared_with: 'second' })
  t.match(
    [itself.status, itself.text],
    [400, /network second: field \\"shared_with\\" is the network itself/]
  )
  const missing = await c.post('/config/network/second', { shared_with: 'clutser' })
  t.match([missing.status, missing.text], [400, /network clutser does not exist \(did you mean/])
  t.equal(await post('third', { network: '10.8.0.0/24', shared_with: 'second' }), 201)
  t.equal(await post('second', { newnetname: 'other' }), 200)
  t.match((await c.get('/config/network/third')).text, /"shared_with":"other"/)
  t.equal((await c.get('/config/network/other/_delete')).status, 400)
  t.equal(await post('third', { shared_with: null }), 200)
  t.match((await c.get('/config/network/other/_delete')).text, /network other deleted/, 'nothing names it')
})
