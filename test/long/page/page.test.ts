import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Browser, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { scratch } from '../../support/scratch.js'
import { browser, looks, open, Stage } from './stage.js'

// The status page in Debian's Chromium, against a real daemon (rules 6.12).

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const desktop = { theme: 'light', width: 1360, height: 860 } as const
const views = [
  ...['cluster', 'cluster?as=racks', 'node/node003', 'edit/node/node003', 'edit/group/compute'],
  ...['unknown', 'jobs', 'images', 'networks', 'services', 'audit']
]

/** What axe finds wrong with the page as it is. */
async function findings(page: Page): Promise<string[]> {
  await page.evaluate(axe)
  const found = (await page.evaluate(
    `axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations.map(({ id, nodes }) =>
      id + ': ' + nodes.slice(0, 3).map(node => node.html.slice(0, 150) + ' ' + (node.any[0]?.message ?? '')).join(' | ')))`
  )) as string[]
  return found
}

async function window(
  t: Test,
  on: Browser,
  ...rest: Parameters<typeof open> extends [Browser, ...infer R] ? R : never
) {
  const opened = await open(on, ...rest)
  t.teardown(() => opened.context.close())
  return opened
}

t.test('the page of a small cluster', async t => {
  const stage = await Stage.start(scratch(t), 3)
  t.teardown(() => stage.stop())
  const on = await browser()
  t.teardown(() => on.close())
  const viewer = await stage.logIn('alice')

  await t.test('log in, see the cluster, log out', async t => {
    const { page, problems } = await window(t, on, stage, desktop, undefined)
    await page.getByText('svcd: well').waitFor()
    await page.getByLabel('User').fill('root')
    await page.getByLabel('Password').fill('correct horse')
    await page.getByRole('button', { name: 'Log in' }).click()
    await page.getByText('3 nodes').waitFor()
    await page.getByText('live', { exact: true }).waitFor()
    t.notMatch(page.url(), /ey\w|token|horse/)
    t.equal(await page.evaluate('localStorage.length + document.cookie.length'), 0)
    await page.reload()
    await page.getByText('3 nodes').waitFor()
    await page.getByRole('button', { name: 'Log out' }).click()
    await page.getByLabel('Password').waitFor()
    t.equal(await page.evaluate('sessionStorage.length'), 0)
    t.same(problems, [])
  })

  await t.test('a change is on the screen within a second', async t => {
    const { page, problems } = await window(t, on, stage, desktop, viewer, '/#/node/node001')
    await page.getByText('live', { exact: true }).waitFor()
    await page.getByRole('heading', { name: 'This boot' }).waitFor()
    const took: number[] = []
    for (let i = 0; i < 10; i++) {
      const state = `installer.step${i}`
      const seen = page.getByText(state).first().waitFor()
      const began = performance.now()
      await stage.report('node001', state)
      await seen
      took.push(Math.round(performance.now() - began))
    }
    t.comment(`a change was on the screen after ${took.join(', ')} ms`)
    t.ok(Math.max(...took) <= 1000, `${took}`)
    t.same(problems, [])
  })

  await t.test('the grid by keyboard', async t => {
    const { page } = await window(t, on, stage, desktop, viewer)
    await page.getByText('3 nodes').waitFor()
    await page.getByRole('listbox').focus()
    await page.keyboard.press('ArrowRight')
    await page.keyboard.press('ArrowRight')
    t.match(await page.locator('#grid-option').textContent(), /^node003: failed/)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'node003' }).waitFor()
  })

  await t.test('a viewer is offered nothing that changes something', async t => {
    for (const view of views) {
      const { page, problems } = await window(t, on, stage, desktop, viewer, `/#/${view}`)
      await page.getByText('viewer').waitFor()
      await page.waitForTimeout(300)
      t.equal(await page.getByRole('button', { name: /Switch|cycle|Reset|Install|Cancel/ }).count(), 0, view)
      t.same(problems, [], view)
    }
  })

  await t.test('power asks first, and does nothing when the answer is no', async t => {
    const { page } = await window(t, on, stage, desktop, stage.token, '/#/node/node002')
    const sent: string[] = []
    page.on('request', request => {
      if (/control|_cancel|POST/.test(`${request.method()} ${request.url()}`)) sent.push(request.url())
    })
    for (const name of ['Switch on', 'Switch off', 'Power cycle', 'Reset', 'Install again']) {
      await page.getByRole('button', { name }).click()
      await page.getByRole('dialog').waitFor()
      t.match(await page.getByRole('dialog').textContent(), /node002/, name)
      await page.getByRole('button', { name: 'No, go back' }).click()
      await page.getByRole('dialog').waitFor({ state: 'detached' })
    }
    t.same(sent, [])
    await page.getByRole('button', { name: 'Switch off' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Switch off' }).click()
    // The node has no BMC: the refusal is shown where the question was.
    await page
      .getByRole('dialog')
      .getByRole('alert')
      .getByText(/node002/)
      .waitFor()
    t.match(sent, [/power\/node002\/_off$/])
  })

  await t.test('a job is cancelled after a question', async t => {
    // A BMC that takes what it is sent, and never answers.
    const bmc = createSocket('udp4')
    bmc.bind(623, '127.77.0.1')
    await once(bmc, 'listening')
    t.teardown(() => bmc.close())
    await stage.ask('POST', '/config/network/silent', { network: '127.77.0.0/24' })
    await stage.ask('POST', '/config/node/node001', {
      interfaces: [{ interface: 'BMC', network: 'silent', ipaddress: '127.77.0.1' }]
    })
    const { page, problems } = await window(t, on, stage, desktop, stage.token, '/#/jobs')
    await page.getByText('Nothing runs.').waitFor()
    await stage.ask('POST', '/control/action/power/_off', { hostlist: 'node001' })
    const cancel = page.getByRole('button', { name: 'Cancel power off' })
    await cancel.click()
    await page.getByRole('button', { name: 'No, go back' }).click()
    t.equal(await page.getByRole('progressbar').count(), 1, 'it goes on')
    await cancel.click()
    await page.getByRole('button', { name: 'Cancel the job' }).click()
    await page
      .getByText(/cancelled by user root/)
      .first()
      .waitFor()
    t.same(problems, [])
  })

  await t.test('the audit log tells of each field that changed, before and after', async t => {
    const { page, problems } = await window(t, on, stage, desktop, stage.token, '/#/audit')
    await page.getByText('live', { exact: true }).waitFor()
    const post = (path: string, body: object) => stage.ask('POST', `/config/${path}`, body)
    const bootif = { interface: 'BOOTIF', ipaddress: '10.141.3.3' }
    const tail = 'vmlinuz initrd.img compute.tar.gz '.repeat(3)
    const changes: [what: string, () => Promise<unknown>, values: string[]][] = [
      [
        'create network logged',
        () => post('network/logged', { network: '10.9.0.0/24', comment: '<b>new</b>' }),
        ['network: 10.9.0.0/24', 'comment: <b>new</b>']
      ],
      [
        'update node node001',
        () => post('node/node001', { comment: 'rack 7', interfaces: [bootif] }),
        ['BOOTIF.ipaddress: 10.141.0.1 → 10.141.3.3', 'comment: rack 7']
      ],
      [
        'update node node[001-002]',
        () => post('node/node001,node002', { comment: tail }),
        [`comment: various → ${tail.slice(0, 60)}…`]
      ],
      ['update network logged', () => post('network/logged', { comment: '' }), ['comment: <b>new</b> → ""']],
      [
        'delete network logged',
        () => stage.ask('GET', '/config/network/logged/_delete'),
        ['network: 10.9.0.0/24 → none', 'comment: "" → none']
      ]
    ]
    for (const [what, make, values] of changes) {
      await make()
      const row = page.locator('tbody tr').first()
      await row.getByText(what, { exact: true }).waitFor()
      t.same(await row.locator('.values > span').allTextContents(), values, what)
    }
    t.same(problems, [])
  })

  await t.test('what strangers write is shown, and is nothing else', async t => {
    const { page, problems } = await window(t, on, stage, desktop, stage.token, '/#/node/node002')
    const hostile = '<img src=x onerror=alert(1)>\u202e'
    page.on('dialog', () => t.fail('a script of a node ran'))
    await stage.report('node002', hostile)
    await page.getByText('<img src=x onerror=alert(1)>\\u202e').first().waitFor()
    t.equal(await page.locator('main img').count(), 0)
    t.same(problems, [])
  })

  await stage.ask('GET', '/boot/search/mac/52:54:77:00:00:01?serial=S1', undefined, '10.141.99.1')
  const inventory = { node003: { cpu: { model: 'EPYC', cores: 64 }, disks: [{ name: 'sda', size: 480e9 }] } }
  await stage.ask('POST', '/monitor/inventory/node003', { monitor: { inventory } })
  for (const look of looks)
    await t.test(`axe finds nothing: ${look.name}`, async t => {
      const stranger = await window(t, on, stage, look, undefined)
      await stranger.page.getByText('svcd: well').waitFor()
      t.same(await findings(stranger.page), [], 'without a token')
      for (const view of views) {
        const { page, problems, context } = await open(on, stage, look, stage.token, `/#/${view}`)
        await page.getByText('live', { exact: true }).waitFor()
        await page.waitForTimeout(500)
        t.same(await findings(page), [], view)
        t.ok(
          await page.evaluate('document.documentElement.scrollWidth <= innerWidth'),
          `${view}: nothing is cut off at the side`
        )
        if (view === 'cluster') {
          await page.getByLabel('Show as').selectOption('table')
          t.same(await findings(page), [], 'table')
          await page.getByRole('button', { name: 'Select all 3 shown' }).click()
          t.same(await findings(page), [], 'selection')
          await page.getByRole('button', { name: 'Install again' }).click()
          t.same(await findings(page), [], 'dialog of a selection')
        }
        if (view.startsWith('node')) {
          await page.getByRole('button', { name: 'Install again' }).click()
          t.same(await findings(page), [], 'dialog')
        }
        t.same(problems, [], view)
        await context.close()
      }
    })
})
