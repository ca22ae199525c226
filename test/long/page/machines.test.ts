import { rmSync } from 'node:fs'
import type { Browser } from 'playwright-core'
import t, { type Test } from 'tap'
import { scratch } from '../../support/scratch.js'
import { browser, open, Stage } from './stage.js'

// Unknown machines, inventories and odd nodes on the status page, in Debian's Chromium (rules 6.12).

const desktop = { theme: 'light', width: 1360, height: 860 } as const
const stage = await Stage.start(scratch(t), 13)
t.teardown(() => stage.stop())
const on: Browser = await browser()
t.teardown(() => on.close())

async function window(t: Test, path: string, token = stage.token) {
  const opened = await open(on, stage, desktop, token, path)
  t.teardown(() => opened.context.close())
  await opened.page.getByText('live', { exact: true }).waitFor()
  opened.page.setDefaultTimeout(8000)
  opened.page.on('dialog', () => t.fail('a script of a machine ran'))
  return opened
}

const asks = (mac: string, serial: string, maker: string) =>
  stage.ask(
    'GET',
    `/boot/search/mac/${mac}?${new URLSearchParams({ serial, maker, product: 'R6<img src=x>' })}`,
    undefined,
    '10.141.99.1'
  )

t.test('unknown machines become nodes, in the order that was chosen', async t => {
  await asks('52:54:77:00:00:03', 'S1', '<b>Dell</b>')
  await asks('52:54:77:00:00:02', 'S10', 'Dell')
  await asks('52:54:77:00:00:01', 'S2', 'Dell')
  const viewer = await window(t, '/#/unknown', await stage.logIn('alice'))
  await viewer.page.getByText('52:54:77:00:00:03').waitFor()
  t.equal(await viewer.page.getByRole('checkbox').count(), 0)
  t.equal(await viewer.page.getByRole('button', { name: 'Make nodes of them' }).count(), 0)
  const { page, problems } = await window(t, '/#/unknown')
  await page.getByRole('row', { name: /52:54:77:00:00:01/ }).waitFor()
  t.equal(await page.locator('main img').count(), 0, 'what machines say is text')
  await page.getByLabel('Take 52:54:77:00:00:01').focus()
  await page.keyboard.press('Space')
  await asks('52:54:77:00:00:04', '', 'Dell')
  await page.getByRole('row', { name: /52:54:77:00:00:04/ }).waitFor()
  t.ok(await page.getByLabel('Take 52:54:77:00:00:01').isChecked(), 'a new one takes nothing from it')
  t.match(await page.evaluate('document.activeElement.dataset.name'), '52:54:77:00:00:01')
  await page.getByRole('button', { name: 'Take all without a warning' }).click()
  const make = page.getByRole('button', { name: 'Make nodes of them' })
  await page.getByLabel('Names').fill('new[008-011]')
  await page.getByLabel('Group').fill('compute')
  await page.getByLabel('In the order of').selectOption('serial')
  await make.click()
  await page.getByText('Machine 52:54:77:00:00:04 has no serial: choose another order.').waitFor()
  await page.getByLabel('Take 52:54:77:00:00:04').uncheck()
  await make.click()
  await page.getByText('3 machines ticked, and 4 names: give as many.').waitFor()
  await page.getByLabel('Names').fill('node001,')
  await make.click()
  await page.getByText('Type names such as node[001-050].').waitFor()
  await page.getByLabel('Names').fill('node[001-003]')
  await make.click()
  await page.getByText(/^Node node001 has a machine already, 52:54:/).waitFor()
  await page.getByLabel('Names').fill('new[008-010]')
  await make.click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('dry run, nothing was changed: 3 nodes would be created').waitFor()
  t.same(await dialog.locator('tbody td:first-child').allTextContents(), ['new008', 'new009', 'new010'])
  t.same(await dialog.locator('tbody td:nth-child(3)').allTextContents(), ['S1', 'S2', 'S10'])
  await dialog.getByRole('button', { name: 'Make them' }).click()
  await page.getByText('3 nodes made.').waitFor()
  await page.getByRole('row', { name: /52:54:77:00:00:01/ }).waitFor({ state: 'detached' })
  const { body } = await stage.ask('GET', '/config/node/new009')
  t.match(body, {
    config: {
      node: { new009: { group: 'compute', macaddr: '52:54:77:00:00:01', serial: 'S2', vendor: 'Dell' } }
    }
  })
  t.same(problems, [])
})

const inventory = (gib: number) => ({
  system: { maker: 'Dell', product: 'R6<b>', serial: 'S1' },
  cpu: { model: 'EPYC', sockets: 2, cores: 64, threads: 128 },
  memory: {
    total: gib * 2 ** 30,
    slots: [{ slot: 'A1', size: gib * 2 ** 30, type: 'DDR4', speed: 3200, part: '<img src=x>' }]
  },
  disks: [{ name: 'sda', size: 480e9, model: 'SSD', rotational: false }],
  kernel: '6.1.0'
})

t.test('a node shows what it is made of, and how it is not like the others', async t => {
  for (let i = 1; i <= 9; i++) {
    const given = { monitor: { inventory: { [`node00${i}`]: inventory(i === 5 ? 64 : 128) } } }
    await stage.ask('POST', `/monitor/inventory/node00${i}`, given)
  }
  const { page, problems } = await window(t, '/#/cluster?as=table')
  await page.getByRole('row', { name: /node005 ≠ odd/ }).waitFor()
  t.equal(await page.getByText('≠ odd').count(), 1)
  await page.getByRole('button', { name: '1 node unlike the others' }).click()
  await page.getByText('1 of 16 nodes').waitFor()
  await page.getByRole('link', { name: 'node005' }).click()
  await page.getByText(/^Not like the others: /).waitFor()
  const hardware = page.getByRole('region', { name: 'Hardware' })
  await hardware.getByText('EPYC · 2 · 64 · 128').waitFor()
  await hardware.getByText(/A1 · 69 GB · DDR4 · 3200 · <img src=x>/).waitFor()
  await hardware.getByText('sda · 480 GB · SSD').waitFor()
  t.equal(await page.locator('main img').count(), 0)
  await page.goto(`${stage.url}/#/node/node010`)
  await hardware.getByText('node010 has reported no inventory yet.').waitFor()
  t.same(problems, [])
})

t.test('a rehearsal tells its end on whatever page is open', async t => {
  const { page, problems } = await window(t, '/#/node/node001')
  rmSync(stage.daemon.path('files', 'vmlinuz'))
  await page.getByRole('button', { name: 'Rehearse' }).click()
  await page.getByText('node001: a rehearsal in a virtual machine has begun.').waitFor()
  await page.locator('#notices').getByRole('link', { name: 'Jobs' }).click()
  await page.getByText('rehearsal of node node001').first().waitFor()
  const told = /^node001: .*rehearsed on [-\d]+ as node001 \(\w+\): not well: .*vmlinuz/
  await page.locator('#notices').getByText(told).waitFor({ timeout: 300_000 })
  t.same(problems, [])
})
