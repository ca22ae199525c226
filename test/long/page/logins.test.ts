import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { cheapHash } from '../../support/callers.js'
import { makeCertificate } from '../../support/certificate.js'
import { Controller } from '../../support/controller.js'
import { freePort } from '../../support/free-port.js'
import { startProvider } from '../../support/provider.js'
import { scratch } from '../../support/scratch.js'
import { startSlapd } from '../../support/slapd.js'
import { browser } from './stage.js'

// People log in on the page by a directory and by an OpenID provider with TLS, in Debian's Chromium.

const page = `http://127.0.0.1:${await freePort()}`
const directory = scratch(t)
const secretFile = join(directory, 'secret')
writeFileSync(secretFile, 'a secret of svcd\n', { mode: 0o600 })
const slapd = await startSlapd(t)
const provider = await startProvider(t, [page], secretFile, await makeCertificate(directory, 'provider'))
const c = await Controller.start(
  t,
  `http.listen=${page.replace('http://', '')}`,
  `users.root=admin ${cheapHash('correct horse')}`,
  ...slapd.settings(slapd.named),
  ...provider.settings()
)
const on = await browser()
t.teardown(() => on.close())

async function window(t: Test, path = '/') {
  // The authority of the provider is known to svcd alone.
  const context = await on.newContext({ ignoreHTTPSErrors: true })
  t.teardown(() => context.close())
  const opened = await context.newPage()
  opened.setDefaultTimeout(15_000)
  const problems: string[] = []
  opened.on('console', message => {
    const isOwn = message.location().url.startsWith(page)
    if (isOwn && ['error', 'warning'].includes(message.type())) problems.push(message.text())
  })
  opened.on('pageerror', error => problems.push(String(error)))
  const urls: string[] = []
  context.on('request', request => urls.push(request.url()))
  await opened.goto(page + path)
  return { context, page: opened, problems, urls }
}
const live = (opened: Page) => opened.getByText('live', { exact: true }).waitFor()
const role = (opened: Page, name: string) => opened.locator('.role', { hasText: name }).waitFor()

/** Acts at the provider as a person does. */
async function atProvider(opened: Page, person: string) {
  await opened.getByPlaceholder('Enter any login').fill(person)
  await opened.getByPlaceholder('and password').fill('any')
  await opened.getByRole('button', { name: 'Sign-in' }).click()
  await opened.getByRole('button', { name: 'Continue' }).click()
}

// rules 5.10, 6.12
t.test('by the directory, in the form', async t => {
  const { page, problems } = await window(t)
  await page.getByLabel('User').fill('alice')
  await page.getByLabel('Password').fill('wrong')
  await page.getByRole('button', { name: 'Log in', exact: true }).click()
  await page.getByText('user name or password is wrong').waitFor()
  await page.getByLabel('Password').fill('wonderland')
  await page.getByRole('button', { name: 'Log in', exact: true }).click()
  await live(page)
  await role(page, 'admin')
  t.same(
    problems.filter(text => !/401/.test(text)),
    []
  )
})

// rules 5.11, 6.12
t.test('by the provider, and back to where the page was', async t => {
  const opened = await window(t, '/#/networks')
  await opened.page.getByRole('button', { name: 'Log in with Example SSO' }).click()
  await atProvider(opened.page, 'alice')
  await live(opened.page)
  await role(opened.page, 'admin')
  t.equal(opened.page.url(), `${page}/#/networks`)
  t.same(opened.problems, [])
  const token = await opened.page.evaluate("sessionStorage.getItem('svcd-token')")
  t.type(token, 'string')
  t.notOk(
    opened.urls.some(url => url.includes(String(token))),
    'the token is in no URL'
  )
  t.equal(await opened.page.evaluate("sessionStorage.getItem('svcd-login')"), null)
  t.notMatch(c.log.join('\n'), /code=|state=/)
  await opened.page.reload()
  await live(opened.page)
  await opened.page.getByRole('button', { name: 'Log out' }).click()
  await opened.page.getByRole('button', { name: 'Log in with Example SSO' }).waitFor()

  const back = opened.urls.find(url => /\?code=/.test(url)) ?? ''
  t.match(back, /state=/)
  const again = await window(t, back.slice(page.length))
  await again.page.getByText('begin a new one').waitFor()
  t.notMatch(again.page.url(), /code=/)
  t.equal(await again.page.evaluate("sessionStorage.getItem('svcd-token')"), null)
})

// rules 5.11
t.test('a link of an attacker logs nobody in, and a person without a role is told why', async t => {
  const { body: begun } = await c.raw('POST', '/auth/oidc', undefined, {
    ...{ origin: page, host: page.replace('http://', '') }
  })
  const { url } = begun as { url: string }
  const attacker = await (await on.newContext({ ignoreHTTPSErrors: true })).newPage()
  let link = ''
  attacker.on('request', request => {
    if (request.url().startsWith(`${page}/?code=`)) link = request.url()
  })
  // The attacker's own browser must not use it up.
  await attacker.route(`${page}/page/**`, route => route.abort())
  await attacker.goto(url)
  await atProvider(attacker, 'alice')
  await attacker.waitForURL(`${page}/**`)
  await attacker.context().close()
  t.match(link, /\?code=.*state=/)
  const victim = await window(t, link.slice(page.length))
  await victim.page.getByText('begun in another window').waitFor()
  t.equal(await victim.page.evaluate("sessionStorage.getItem('svcd-token')"), null)

  const dave = await window(t)
  await dave.page.getByRole('button', { name: 'Log in with Example SSO' }).click()
  await atProvider(dave.page, 'dave')
  await dave.page.getByText('user dave of Example SSO has no role here').waitFor()
})

// rules 5.11
t.test('the provider is away: the button says so, and the form goes on', async t => {
  provider.instead = (_, response) => response.destroy()
  await c.restart()
  const { page } = await window(t)
  await page.getByRole('button', { name: 'Log in with Example SSO' }).click()
  await page.getByText(/Example SSO does not answer as it should, others can log in/).waitFor()
  provider.instead = undefined
  await page.getByLabel('User').fill('root')
  await page.getByLabel('Password').fill('correct horse')
  await page.getByRole('button', { name: 'Log in', exact: true }).click()
  await live(page)
})
