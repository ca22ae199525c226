import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { twoControllers } from '../../support/controllers.js'
import { type RealProvider, startProvider } from '../../support/provider.js'
import { scratch } from '../../support/scratch.js'
import { startSlapd } from '../../support/slapd.js'

// rules 5.10, 5.11
t.test('with two controllers: each finishes what the other began, a token is valid on both', async t => {
  const pages = ['http://127.0.0.1:1', 'http://127.0.0.1:2']
  const secretFile = join(scratch(t), 'secret')
  writeFileSync(secretFile, 'a secret of svcd\n', { mode: 0o600 })
  const slapd = await startSlapd(t)
  const provider: RealProvider = await startProvider(t, pages, secretFile)
  const [first, second] = await twoControllers(t, ...slapd.settings(slapd.tls), ...provider.settings())
  const urls = [first, second].map(daemon => /listens on (http:\S+);/.exec(daemon.log())?.[1] ?? '')
  const ask = async (url: string, path: string, body: object | undefined, token = '') => {
    const answer = await fetch(url + path, {
      method: body ? 'POST' : 'GET',
      headers: { 'x-access-tokens': token, ...(body ? { 'content-type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {})
    })
    return { status: answer.status, body: (await answer.json()) as Record<string, string> }
  }
  const [one = '', two = ''] = urls
  t.not(one, two)
  const isValid = async (token = '') => {
    for (const url of urls) t.equal((await ask(url, '/config/node', undefined, token)).status, 200, url)
  }
  for (const [here, there] of [
    [one, two],
    [two, one]
  ] as const) {
    const { body: ldap } = await ask(here, '/token', { username: 'alice', password: 'wonderland' })
    await isValid(ldap.token)
    const { body: begun } = await ask(here, '/auth/device', {})
    await provider.browse(begun.verification_uri_complete ?? '', 'alice', { confirm: 'yes' })
    const { status, body } = await ask(there, '/auth/device/finish', { device: begun.device })
    t.equal(status, 201)
    await isValid(body.token)
  }
})
