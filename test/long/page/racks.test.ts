import type { Browser } from 'playwright-core'
import t from 'tap'
import { scratch } from '../../support/scratch.js'
import { browser, open, Stage } from './stage.js'

// Racks on the status page, in Debian's Chromium (rules 6.12).

const desktop = { theme: 'light', width: 1360, height: 860 } as const
const on: Browser = await browser()
t.teardown(() => on.close())

t.test('nodes stand in their units', async t => {
  const stage = await Stage.start(scratch(t), 13)
  t.teardown(() => stage.stop())
  const set = (node: string, variables: object) => stage.ask('POST', `/config/node/${node}`, { variables })
  await set('node[001-013]', { rack: null })
  await set('node001', { rack: 'A2', rack_unit: '1', rack_height: '4' })
  await set('node002', { rack: 'A2', rack_unit: '5' })
  await set('node003', { rack: 'A2', rack_unit: '4', rack_height: 'x' })
  await set('node004', { rack: 'A10', rack_unit: '47', rack_height: '2' })
  await set('node005', { rack: 'A10', rack_unit: '0' })
  await set('node006', { rack: '<b>', rack_unit: '99999999' })
  const { page, problems, context } = await open(on, stage, desktop, stage.token, '/#/cluster?as=racks')
  t.teardown(() => context.close())
  const rack = (name: string) => page.getByRole('region', { name, exact: true })
  await rack('Rack A2').getByRole('link').first().waitFor()
  const titles = await page
    .locator('.rack')
    .evaluateAll(all => all.map(one => one.getAttribute('aria-label')))
  t.same(titles, ['Rack <b>', 'Rack A2', 'Rack A10', 'Without a rack'])
  t.same(
    (await rack('Rack A2').getByRole('link').allTextContents()).map(text => text.trim().split(' ')[0]),
    ['node002', 'node003', 'node001'],
    'the highest first'
  )
  const box = async (name: string) => {
    const found = await page.locator(`li:has([data-name=${name}])`).boundingBox()
    return found ?? { x: 0, y: 0, width: 0, height: 0 }
  }
  const [one, two, three, four] = await Promise.all(['node001', 'node002', 'node003', 'node004'].map(box))
  t.equal(one?.height, 96)
  t.equal(two?.height, 24)
  t.equal(four?.height, 48)
  t.equal((two?.y ?? 0) + 24, one?.y, 'unit 5 stands on units 1 to 4')
  t.equal(three?.y, one?.y, 'what overlaps is beside it')
  t.ok((three?.x ?? 0) > (one?.x ?? 0))
  t.same(await page.locator('.overlap').count(), 2)
  t.match(
    await rack('Rack A2')
      .getByRole('link', { name: /node003/ })
      .textContent(),
    /, overlaps$/
  )
  t.match(await rack('Rack A10').locator('ul').textContent(), /node005/)
  t.match(await rack('Rack <b>').locator('ul').textContent(), /node006/)
  t.equal(await rack('Without a rack').getByRole('link').count(), 7)
  // A node moves, and the keyboard stays where it is.
  await rack('Rack A2')
    .getByRole('link', { name: /node001/ })
    .focus()
  await set('node003', { rack_unit: '9' })
  await page.locator('.overlap').first().waitFor({ state: 'detached' })
  t.match(await page.evaluate('document.activeElement.textContent'), /node001/)
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'node001', exact: true }).waitFor()
  t.same(problems, [])
})

t.test('10,000 nodes in racks do not freeze the page', { timeout: 240_000 }, async t => {
  const stage = await Stage.start(scratch(t), 10_000)
  t.teardown(() => stage.stop())
  const names = stage.names(10_000)
  for (let unit = 0; unit < 64; unit++) {
    const nodes = names.filter((_, i) => i % 64 === unit).join(',')
    await stage.ask('POST', '/config/node/_set', {
      nodes,
      fields: { variables: { rack_unit: String(unit + 1) } }
    })
  }
  const { page, problems, context } = await open(on, stage, desktop, stage.token, '/#/cluster')
  t.teardown(() => context.close())
  await page.getByText('10,000 nodes', { exact: true }).waitFor()
  await page.evaluate(`
    globalThis.longest = 0
    new PerformanceObserver(list => {
      for (const { duration } of list.getEntries()) longest = Math.max(longest, duration)
    }).observe({ type: 'longtask' })`)
  await page.getByLabel('Show as').selectOption('racks')
  await page.getByRole('region', { name: 'Rack 1', exact: true }).getByRole('link').first().waitFor()
  t.equal(await page.locator('.rack').count(), 157)
  const elements = await page.locator('.unit').count()
  t.ok(elements < 3000, `${elements} nodes have elements`)
  await page.evaluate('scrollTo(0, document.body.scrollHeight)')
  await page.getByRole('region', { name: 'Rack 157', exact: true }).getByRole('link').first().waitFor()
  for (let i = 0; i < 5; i++) await stage.report(names[9_999 - i] ?? '', 'installer.failed: test')
  await page.getByRole('link', { name: /node10000 failed/ }).waitFor()
  const longest = Number(await page.evaluate('longest'))
  t.comment(`the longest task took ${Math.round(longest)} ms`)
  t.ok(longest < 1500, `${longest} ms`)
  t.same(problems, [])
})
