import type { Browser, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { scratch } from '../../support/scratch.js'
import { browser, type Look, mac, open, Stage } from './stage.js'

// How one finds things on the status page, and on which screens, in Debian's Chromium (rules 6.12).

const desktop = { theme: 'light', width: 1360, height: 860 } as const
const phone = { theme: 'light', width: 390, height: 800 } as const
const stage = await Stage.start(scratch(t), 13)
t.teardown(() => stage.stop())
const on: Browser = await browser()
t.teardown(() => on.close())

const set = (node: string, body: object) => stage.ask('POST', `/config/node/${node}`, body)
const racks = {
  node001: '12',
  node002: '120',
  node003: '112',
  node012: '1',
  node004: 'row 12',
  node005: 'Row 12 b'
}
for (const [node, rack] of Object.entries(racks)) await set(node, { variables: { rack } })
await set('node006', { comment: 'Fan replaced, ask root@hpc' })
await set('node007', { interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.0.77' }] })

async function window(t: Test, look: Look, path: string) {
  const opened = await open(on, stage, look, stage.token, path)
  t.teardown(() => opened.context.close())
  await opened.page.getByText('live', { exact: true }).waitFor()
  return opened
}
/** The names in the table of nodes, when it holds as many. */
async function names(page: Page, count: number): Promise<string[]> {
  const rows = page.locator('tbody th')
  for (let i = 0; i < 50 && (await rows.count()) !== count; i++) await page.waitForTimeout(100)
  return rows.allTextContents()
}

t.test('what is looked for is found, and nothing else', async t => {
  const { page, problems } = await window(t, desktop, '/#/cluster?as=table')
  const find = page.getByLabel('Find')
  const table: [text: string, found: string[]][] = [
    ['rack 12', ['node001']],
    ['12 Rack 1', ['node012']],
    ['rack: row 12', ['node004']],
    ['compute rack row 12 b up', []],
    ['rack row 12 b outdated', ['node005']],
    ['outdated rack 112', ['node003']],
    ['rack 2', []],
    ['rack node003', []],
    ['node003 rack', ['node003']],
    ['10.141.0.1', ['node001']],
    ['10.141.0.77', ['node007']],
    [mac(2).toUpperCase(), ['node003']],
    [mac(2).replaceAll(':', '-'), ['node003']],
    [mac(2).replaceAll(':', ''), ['node003']],
    [mac(2).replace(/(..):(..):(..):(..):(..):(..)/, '$1$2.$3$4.$5$6'), ['node003']],
    ['fan REPLACED', ['node006']],
    ['root@hpc', ['node006']],
    ['node[003-004]', ['node003', 'node004']],
    ['@login!node013', ['node010', 'node011', 'node012']],
    ['node00* rack 12', ['node001']],
    ['node01*', ['node010', 'node011', 'node012', 'node013']]
  ]
  for (const [text, found] of table) {
    await find.fill(text)
    await page.waitForTimeout(400)
    t.same(await names(page, found.length), found, text)
  }
  await find.fill('@nothing')
  await page.getByText('node set: there is no group nothing').waitFor()
  t.same(
    problems.filter(text => !/404|400/.test(text)),
    []
  )
})

t.test('the address says what is shown, and shows it to somebody else', async t => {
  const { page } = await window(t, desktop, '/')
  await page.getByLabel('Find').fill('rack 12')
  await page.getByLabel('Show as').selectOption('table')
  await page.getByLabel('Group by').selectOption('condition')
  await page.getByRole('button', { name: /outdated$/ }).click()
  const address = page.url()
  t.equal(new URL(address).hash, '#/cluster?find=rack+12&only=stale&by=condition&as=table')
  const other = await window(t, desktop, `/${new URL(address).hash}`)
  t.same(await names(other.page, 1), ['node001'])
  t.equal(await other.page.getByLabel('Find').inputValue(), 'rack 12')
  t.equal(await other.page.getByRole('button', { pressed: true }).count(), 1)
  await other.page.getByRole('link', { name: 'node001' }).click()
  await other.page.getByRole('heading', { name: 'node001' }).waitFor()
  await other.page.goBack()
  t.same(await names(other.page, 1), ['node001'], 'the way back leads to it')
  await other.page.getByRole('link', { name: 'Images' }).click()
  await other.page.getByRole('link', { name: '4 nodes' }).click()
  await other.page.getByText('4 of 13 nodes').waitFor()
  t.equal(new URL(other.page.url()).hash, '#/cluster?find=login')
  const audit = await window(t, desktop, '/#/audit')
  await audit.page.getByLabel('Changes by').selectOption('machines')
  t.equal(new URL(audit.page.url()).hash, '#/audit?by=machines')
  await audit.page.reload()
  await audit.page.getByRole('heading', { name: 'Audit log' }).waitFor()
  t.equal(await audit.page.getByLabel('Changes by').inputValue(), 'machines')
  // What nobody made by a click.
  const odd = '/#/cluster?find=%00%3Cimg%3E&only=up,constructor&by=__proto__&as=x&sort=toString&page=-7'
  const { page: third, problems } = await window(t, desktop, odd)
  await third.getByText('No node is like that.').waitFor()
  t.match(new URL(third.url()).hash, /^#\/cluster\?find=\S+&only=up$/)
  t.same(problems, [])
})

t.test('all times are of one zone, and name it', async t => {
  const zone = 'Asia/Tokyo'
  const { page } = await window(t, { ...desktop, zone }, '/#/node/node001')
  await page.locator('.verdict', { hasText: 'UTC' }).waitFor()
  const verdict = (await page.locator('.verdict').textContent()) ?? ''
  const [, said = ''] = /(\d\d:\d\d:\d\d) UTC/.exec(verdict) ?? []
  const times = await page.locator('time').allTextContents()
  t.ok(times.length > 2)
  t.same(
    times.filter(text => !/\d\d:\d\d:\d\d UTC$/.test(text)),
    []
  )
  t.ok(
    times.some(text => text.slice(-12, -7) === said.slice(0, 5)),
    `${times} and ${verdict}`
  )
  t.match(await page.locator('time').first().getAttribute('title'), /Z, here .*(GMT\+9|JST)/)
  for (const view of ['audit', 'services']) {
    const { page } = await window(t, { ...desktop, zone }, `/#/${view}`)
    await page.locator('time').first().waitFor()
    const others = (await page.locator('time').allTextContents()).filter(text => !text.endsWith(' UTC'))
    t.same(others, [], view)
  }
})

t.test('jobs tell why they failed, once for all nodes; the same jobs are one line', async t => {
  for (let i = 0; i < 3; i++)
    await stage.ask('POST', '/control/action/power/_on', { hostlist: 'node[001-003]' }).catch(() => {})
  await stage.ask('POST', '/control/action/power/_off', { hostlist: 'node[001-003]' })
  const { page, problems } = await window(t, desktop, '/#/jobs')
  await page.getByText('× 3').waitFor()
  t.equal(await page.locator('tbody tr').count(), 2)
  const row = page.locator('tbody tr', { hasText: '× 3' })
  await row.locator('summary').click()
  const why = row.locator('li')
  await why.waitFor()
  t.match(await why.allTextContents(), [/^node001, node002, node003: the node has no interface BMC: /])
  await stage.ask('POST', '/control/action/power/_off', { hostlist: 'node[001-003]' })
  await page.getByText('× 2').waitFor()
  t.ok(await why.isVisible(), 'it stays open')
  t.same(problems, [])
})

t.test('a network tells who has which address', async t => {
  const { page } = await window(t, desktop, '/#/networks')
  const card = page.getByLabel('Network cluster', { exact: true })
  await card.getByText('Who has which address').click()
  await card.locator('tbody tr').first().waitFor()
  t.equal(await card.locator('tbody tr').count(), 13)
  t.same(await card.locator('tbody tr', { hasText: '10.141.0.77' }).locator('td').allTextContents(), [
    '10.141.0.77',
    'node007'
  ])
  await card.getByRole('link', { name: 'node007' }).click()
  await page.getByRole('heading', { name: 'node007' }).waitFor()
})

t.test('a phone shows all columns, and all views', async t => {
  for (const view of [
    'cluster?as=table',
    'cluster?as=racks',
    'node/node001',
    'edit/node/node001',
    'edit/group/compute',
    'unknown',
    'jobs',
    'images',
    'networks',
    'services',
    'audit'
  ]) {
    const { page } = await window(t, phone, `/#/${view}`)
    await page.waitForTimeout(500)
    for (const one of await page.locator('summary').all()) await one.click()
    await page.waitForTimeout(300)
    const cut = await page.evaluate(`[...document.querySelectorAll('#nav a, main *')].filter(element => {
      const { left, right, width } = element.getBoundingClientRect()
      return width > 0 && !element.closest('.unseen') && (right > innerWidth + 1 || left < -1)
    }).map(element => element.outerHTML.slice(0, 100))`)
    t.same(cut, [], view)
    if (view !== 'cluster?as=table') continue
    const cells = page.locator('tbody tr').first().locator('td')
    const heads = await cells.evaluateAll(all => all.map(one => one.getAttribute('data-head')))
    t.same(heads, ['Condition', 'State', 'Last heard', 'Group', 'Rack', 'Image'])
  }
})

t.test('a large screen uses its room for few nodes', async t => {
  const { page } = await window(t, { theme: 'light', width: 2560, height: 1440 }, '/')
  const grid = page.getByRole('listbox')
  const box = await grid.boundingBox()
  t.ok((box?.height ?? 0) > 1440 / 4, `${box?.height} of 1440`)
  // The rightmost cell of the first row is far on the right.
  await grid.click({ position: { x: (box?.width ?? 0) * 0.9, y: 60 } })
  await page.getByRole('heading', { name: /^node0/ }).waitFor()
})
