import t from 'tap'
import { Controller } from '../support/controller.js'
import { row } from '../support/rows.js'
import { freeTexts, specimens, unset } from '../support/specimens.js'
import { objectFiles, read, stored } from '../support/state.js'

const c = await Controller.start(t)

// rules 1.4
t.test('an empty collection is an empty map', async t => {
  for (const { type } of specimens)
    await row(t, c, {
      what: type,
      ask: ['GET', `/config/${type}`],
      status: 200,
      body: { config: { [type]: {} } }
    })
  // What the others refer to.
  await c.post('/config/bmcsetup/referred', {})
  await c.post('/config/file/referred', { path: '/etc/referred' })
  await c.post('/config/bmcsetup/other', {})
  await c.post('/config/disklayout/referred', {
    disks: [{ name: 'system', partitions: [{ name: 'root', size: 'rest', format: 'ext4', mount: '/' }] }]
  })
  await c.post('/config/osimage/referred', {})
  await c.post('/config/osimage/packed', {
    kernelfile: 'vmlinuz',
    initrdfile: 'initrd.img',
    imagefile: 'i.tar'
  })
})

for (const { type, title, updated, cloned, deleted, newName, least, full, variants } of specimens) {
  const base = `/config/${type}`
  const enveloped = (name: string, fields: unknown) => ({ config: { [type]: { [name]: fields } } })

  // rules 1.3, 1.10
  t.test(`${type}: create, read, list`, async t => {
    await row(t, c, {
      what: 'missing',
      ask: ['GET', `${base}/one`],
      status: 404,
      says: new RegExp(`^${title} one does not exist$`)
    })
    await row(t, c, {
      what: 'created by a bare body',
      ask: ['POST', `${base}/one`, least],
      status: 201,
      body: { message: `${title} one created` },
      files: { [`${type}/one.json`]: { name: 'one', ...least } }
    })
    await row(t, c, {
      what: 'what nobody set is shown too',
      ask: ['GET', `${base}/one`],
      status: 200,
      body: enveloped('one', { name: 'one', ...unset[type], ...least })
    })
    await row(t, c, {
      what: 'created by a body in its envelope, with its name, whatever its Content-Type',
      ask: ['POST', `${base}/two`, enveloped('two', { name: 'two', ...full })],
      by: { headers: { 'content-type': 'application/x-www-form-urlencoded' } },
      status: 201,
      files: { [`${type}/two.json`]: { name: 'two', ...full } }
    })
    const two = await read(c, type, 'two')
    for (const [field, value] of Object.entries(full)) t.same(two[field], value, `${field} as it was`)
    t.equal(two.name, 'two')
    const list = await c.get(base)
    t.same(list.body.config[type].two, two, 'a list holds the same objects')
    t.equal(list.body.config[type].one.name, 'one')
  })

  // rules 1.11
  t.test(`${type}: what was read, posted back, changes nothing`, async t => {
    for (const name of ['one', 'two']) {
      const { body } = await c.get(`${base}/${name}`)
      await row(t, c, { what: 'whole', ask: ['POST', `${base}/${name}`, body], status: updated })
      const inner = body.config[type][name]
      await row(t, c, { what: 'inner', ask: ['POST', `${base}/${name}`, inner], status: updated })
      await row(t, c, { what: 'nothing', ask: ['POST', `${base}/${name}`, {}], status: updated })
      t.same((await c.get(`${base}/${name}`)).body, body)
    }
  })

  t.test(`${type}: an update changes the fields it names; null removes a value`, async t => {
    await row(t, c, {
      what: 'one field',
      ask: ['POST', `${base}/one`, { comment: 'new' }],
      status: updated,
      ...(updated === 200 ? { body: { message: `${title} one updated` } } : {}),
      files: { [`${type}/one.json`]: { name: 'one', ...least, comment: 'new' } }
    })
    await row(t, c, {
      what: 'removed',
      ask: ['POST', `${base}/one`, { comment: null }],
      status: updated,
      files: { [`${type}/one.json`]: { name: 'one', ...least } }
    })
    const settable = Object.keys(full).filter(field => field !== 'network')
    const none = Object.fromEntries(settable.map(field => [field, null]))
    const { network } = full
    await row(t, c, {
      what: 'every field null',
      ask: ['POST', `${base}/two`, none],
      status: updated,
      files: { [`${type}/two.json`]: { name: 'two', ...(network === undefined ? {} : { network }) } }
    })
    await c.post(`${base}/two`, full)
    await c.post(`${base}/two`, full)
    const empty = Object.fromEntries(settable.map(field => [field, '']))
    t.equal((await c.post(`${base}/two`, empty)).status, updated)
    const two = await read(c, type, 'two')
    for (const field of settable)
      t.same(two[field], freeTexts.has(field) ? '' : unset[type][field], `"" in ${field}`)
    await c.post(`${base}/two`, full)
  })

  // rules 1.6
  t.test(`${type}: variant spellings`, async t => {
    for (const [also, field, value] of variants) {
      const before = await read(c, type, 'two')
      await row(t, c, {
        what: `${also} and ${field} differ`,
        ask: ['POST', `${base}/two`, { [also]: value, [field]: before[field] }],
        status: 400,
        says: new RegExp(`^${title} two: field "(${also}|${field})"`)
      })
      t.same(await read(c, type, 'two'), before)
      const agreed = await c.post(`${base}/two`, { [also]: value, [field]: value })
      t.equal(agreed.status, updated, `${also} and ${field} say the same: ${agreed.text}`)
      await c.post(`${base}/two`, { [field]: before[field] })
      t.equal((await c.post(`${base}/two`, { [also]: value })).status, updated, also)
      const after = await read(c, type, 'two')
      t.same(after[field], value, `${also} is read as ${field}`)
      if (also !== 'bmcsetup') t.notOk(also in after, `${also} is not returned`)
      await c.post(`${base}/two`, full)
    }
  })

  // rules 1.3
  t.test(`${type}: names in the body are those of the path`, async t => {
    const wrong: [string, unknown][] = [
      ['field name', { name: 'other' }],
      ['envelope name', enveloped('other', {})],
      ['two names', { config: { [type]: { one: {}, two: {} } } }],
      ['envelope type', { config: { token: { one: {} } } }],
      ['a key beside the envelope', { ...enveloped('one', {}), comment: 'x' }],
      ['another type beside it', { config: { [type]: { one: {} }, cluster: {} } }],
      ['the wrong envelope', { monitor: { [type]: { one: {} } } }],
      ['envelope without a name', { config: { [type]: {} } }],
      ['envelope around null', enveloped('one', null)]
    ]
    for (const [what, body] of wrong)
      await row(t, c, { what, ask: ['POST', `${base}/one`, body], status: 400, says: /"|one/ })
  })

  // rules 1.10
  t.test(`${type}: rename`, async t => {
    const before = await objectFiles(c)
    await row(t, c, {
      what: 'renamed, with another change in one request',
      ask: ['POST', `${base}/two`, { [newName]: 'deux', comment: 'renamed' }],
      ...(updated === 200 ? { body: { message: `${title} two renamed to deux` } } : {}),
      status: updated,
      files: {
        [`${type}/two.json`]: null,
        [`${type}/deux.json`]: { name: 'deux', ...full, comment: 'renamed' }
      }
    })
    t.equal((await c.get(`${base}/two`)).status, 404)
    t.equal((await read(c, type, 'deux')).name, 'deux')
    t.equal((await c.post(`${base}/deux`, { [newName]: 'two', comment: full.comment })).status, updated)
    t.same(await objectFiles(c), before, 'and back: every file as it was')
    await row(t, c, {
      what: 'to its own name',
      ask: ['POST', `${base}/two`, { [newName]: 'two' }],
      status: updated
    })
    await row(t, c, {
      what: 'to a name that is taken',
      ask: ['POST', `${base}/two`, { [newName]: 'one', comment: 'x' }],
      status: 400,
      says: [new RegExp(title), /one exists/]
    })
    await row(t, c, {
      what: 'of what is missing',
      ask: ['POST', `${base}/missing`, { ...least, [newName]: 'three' }],
      status: 404,
      says: /missing does not exist/
    })
    await row(t, c, {
      what: 'to nothing (rules 2.4)',
      ask: ['POST', `${base}/two`, { [newName]: '' }],
      status: type === 'osimage' ? 404 : 400,
      says: /two/
    })
    for (const wrong of ['-x', 'a b', '../x', null, 5])
      await row(t, c, {
        what: `to ${wrong}`,
        ask: ['POST', `${base}/two`, { [newName]: wrong }],
        status: 400,
        says: [/two/, new RegExp(newName)]
      })
  })

  if (cloned !== undefined)
    // rules 1.10, 3.2
    t.test(`${type}: clone`, async t => {
      const clone = `${base}/two/_clone`
      const same = { name: 'three', ...full }
      for (const field of [
        'switch',
        'switchport',
        'vendor',
        'assettag',
        'tpm_uuid',
        'tpm_pubkey',
        'tpm_sha256',
        'serial',
        'uuid',
        'rescue'
      ])
        delete (same as Record<string, unknown>)[field]
      await row(t, c, {
        what: 'copies what need not be unique',
        ask: ['POST', clone, { [newName]: 'three' }],
        status: cloned,
        ...(cloned === 201 ? { body: { message: `${title} two cloned to three` } } : {}),
        files: { [`${type}/three.json`]: same }
      })
      await row(t, c, {
        what: 'of what was read, whole, with the new name in it',
        ask: ['POST', clone, enveloped('two', { ...(await read(c, type, 'two')), [newName]: 'four' })],
        status: cloned,
        files: { [`${type}/four.json`]: { ...same, name: 'four' } }
      })
      await row(t, c, {
        what: 'fields in the request override the copy',
        ask: ['POST', clone, enveloped('two', { name: 'two', [newName]: 'five', comment: 'clone' })],
        status: cloned,
        files: { [`${type}/five.json`]: { ...same, name: 'five', comment: 'clone' } }
      })
      const refused: [string, string, unknown, number, RegExp][] = [
        ['to a name that is taken', clone, { [newName]: 'one' }, 400, /one exists/],
        ['to itself', clone, { [newName]: 'two' }, 400, /two exists/],
        ['without a new name', clone, {}, 400, new RegExp(newName)],
        ['to an empty name', clone, { [newName]: '' }, 400, new RegExp(newName)],
        ['to a bad name', clone, { [newName]: 'a b' }, 400, new RegExp(newName)],
        ['with a bad field', clone, { [newName]: 'six', comment: 5 }, 400, /two: field "comment"/],
        ['of what is missing', `${base}/missing/_clone`, { [newName]: 'six' }, 404, /missing/]
      ]
      for (const [what, path, body, status, says] of refused)
        await row(t, c, { what, ask: ['POST', path, body], status, says })
    })

  // rules 2.5
  t.test(`${type}: HEAD, other methods, other paths`, async t => {
    const plain = await c.get(`${base}/two`)
    const head = await c.get(`${base}/two`, { method: 'HEAD' })
    t.equal(head.status, 200)
    t.equal(head.text, '')
    t.equal(head.headers['content-length'], plain.headers['content-length'])
    for (const method of ['PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
      const { status, headers, body } = await c.get(`${base}/two`, { method })
      t.same([status, headers.allow], [405, 'GET, HEAD, POST'], method)
      t.match(body.message, method)
    }
    const before = await stored(c)
    const { status, headers } = await c.get(`${base}/two/_delete`, { method: 'HEAD' })
    t.same([status, headers.allow], [405, 'GET, POST'], 'HEAD deletes nothing')
    t.same(await stored(c), before)
    for (const body of ['{"half', '\0\u00ff', 'x'.repeat(100_000)]) {
      const { text } = await c.post(`${base}/two`, body, { method: 'GET' })
      t.equal(text, plain.text, 'the body of a GET is dropped')
    }
    t.equal((await c.get(`${base}/two/_nothing`)).status, type === 'network' ? 400 : 404)
    t.equal((await c.get(`${base}//two/`)).text, plain.text, 'slashes are folded')
  })

  // rules 2.6
  t.test(`${type}: delete`, async t => {
    const gone = (name: string) => ({ [`${type}/${name}.json`]: null })
    await c.post(`${base}/six`, least)
    await c.post(`${base}/seven`, least)
    await row(t, c, {
      what: 'by GET',
      ask: ['GET', `${base}/six/_delete`],
      status: deleted,
      ...(deleted === 201 ? { body: { message: `${title} six deleted` } } : {}),
      files: gone('six')
    })
    await row(t, c, {
      what: 'by POST, whatever its body',
      ask: ['POST', `${base}/seven/_delete`, '{not json'],
      status: deleted,
      files: gone('seven')
    })
    for (const method of ['GET', 'POST'] as const)
      await row(t, c, {
        what: `missing, ${method}`,
        ask: [method, `${base}/six/_delete`, ''],
        status: 404,
        says: new RegExp(`^${title} six does not exist`)
      })
  })
}

t.test('a restart gives the same answers', async t => {
  const paths = specimens.flatMap(({ type }) => [
    `/config/${type}`,
    ...['one', 'two', 'missing'].flatMap(name => [`/config/${type}/${name}`, `/config/${type}/${name}/_list`])
  ])
  const answers = () => Promise.all(paths.map(async path => [path, (await c.get(path)).text]))
  const [before, files] = [await answers(), await stored(c)]
  await c.restart()
  t.same(await answers(), before)
  t.same(await stored(c), files)
})

t.test('the cluster as the ini has it', async t => {
  const c = await Controller.start(t, 'cluster.ntp_server=ntp.example.org', 'controller.name=master')
  const { body } = await c.get('/config/cluster')
  const { svc_config, ...master } = body.config.cluster.master
  t.match(svc_config, /svcd\.ini$/)
  t.type(master.serverport, 'number')
  t.same(body, {
    config: {
      cluster: {
        name: 'cluster',
        master: { status: 'primary', ipaddr: '10.141.255.254', serverport: master.serverport, svc_config },
        ntp_server: 'ntp.example.org',
        debug: false,
        technical_contacts: '',
        provision_method: 'torrent',
        provision_fallback: 'http'
      }
    }
  })
  const { version } = (await c.get('/version', { token: null })).body
  t.same(Object.keys(version), ['service', 'api', 'commit'])
  t.equal(version.api, 1)
})
