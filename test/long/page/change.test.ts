import type { Browser } from 'playwright-core'
import t, { type Test } from 'tap'
import { scratch } from '../../support/scratch.js'
import { until } from '../../support/until.js'
import { browser, open, Stage } from './stage.js'

// Selection of many nodes, and the form of a node and a group, in Debian's Chromium (rules 6.12).

const desktop = { theme: 'light', width: 1360, height: 860 } as const
const stage = await Stage.start(scratch(t), 13)
t.teardown(() => stage.stop())
const on: Browser = await browser()
t.teardown(() => on.close())

const set = (path: string, body: object) => stage.ask('POST', `/config/${path}`, body)
async function node(name: string): Promise<Record<string, unknown>> {
  const { body } = await stage.ask('GET', `/config/node/${name}`)
  return (body as { config: { node: Record<string, Record<string, unknown>> } }).config.node[name] ?? {}
}

async function window(t: Test, path: string, token = stage.token) {
  const opened = await open(on, stage, desktop, token, path)
  opened.page.setDefaultTimeout(8000)
  t.teardown(() => opened.context.close())
  await opened.page.getByText('live', { exact: true }).waitFor()
  const sent: { path: string; body: string }[] = []
  opened.page.on('request', request => {
    if (request.method() === 'POST')
      sent.push({ path: request.url().replace(stage.url, ''), body: request.postData() ?? '' })
  })
  return { ...opened, sent }
}

t.test('nodes are selected one by one, in ranges, and as the filter shows them', async t => {
  const { page, problems } = await window(t, '/#/cluster?as=table')
  const box = (name: string) => page.getByLabel(`Select ${name}`)
  await box('node002').click()
  await page.getByText('1 node selected').waitFor()
  await box('node005').click({ modifiers: ['Shift'] })
  await page.getByText('4 nodes selected').waitFor()
  t.ok(await box('node004').isChecked())
  // By keyboard, backwards, and taken back.
  await box('node003').focus()
  await page.keyboard.press('Shift+Space')
  await page.getByText('1 node selected').waitFor()
  t.ok(await box('node002').isChecked())
  await page.getByLabel('Find').fill('@login')
  await page.getByRole('button', { name: 'Select all 4 shown' }).click()
  await page.getByText('4 nodes selected').waitFor()
  await page.getByLabel('Find').fill('')
  await page.getByText('13 nodes', { exact: true }).waitFor()
  t.ok(await box('node013').isChecked())
  t.notOk(await box('node002').isChecked())
  await stage.report('node001', 'installer.downloading')
  await page
    .getByRole('row', { name: /node001/ })
    .getByText('downloading')
    .waitFor()
  t.ok(await box('node013').isChecked(), 'news take nothing from the selection')
  await stage.ask('GET', '/config/node/node013/_delete')
  await page.getByText('3 nodes selected').waitFor()
  await page.getByRole('button', { name: 'Select none' }).click()
  t.equal(await page.locator('.pick:checked').count(), 0)
  t.same(problems, [])
  const viewer = await window(t, '/#/cluster?as=table', await stage.logIn('alice'))
  await viewer.page.getByRole('link', { name: 'node001' }).waitFor()
  t.equal(await viewer.page.getByRole('checkbox').count(), 0, 'a viewer selects nothing')
})

t.test('power of many nodes: what the BMCs say first, then the question', async t => {
  const { page, sent, problems } = await window(t, '/#/cluster?as=table&find=node00[1-3]')
  await page.getByRole('button', { name: 'Select all 3 shown' }).click()
  await page.getByRole('button', { name: 'Switch off' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('node001, node002, node003', { exact: true }).waitFor()
  await dialog.getByText(/Power now: 0 on, 0 off/).waitFor()
  await dialog.getByText(/No answer: node001, node002, node003: .*no interface BMC/).waitFor()
  await page.getByRole('button', { name: 'No, go back' }).click()
  t.same([...new Set(sent.map(({ path }) => path))], ['/control/action/power/_status'])
  await page.getByRole('button', { name: 'Switch off' }).click()
  await dialog.getByRole('button', { name: 'Switch off' }).click()
  await page.getByText('Switch off: 3 nodes: begun.').waitFor()
  const off = sent.find(({ path }) => path.endsWith('_off'))
  t.same(JSON.parse(off?.body ?? ''), {
    control: { power: { off: { hostlist: 'node001,node002,node003' } } }
  })
  t.same(problems, [])
})

t.test('many nodes are installed again after the dry run of what that changes', async t => {
  await set('node/node004', { netboot: false })
  const { page, sent, problems } = await window(t, '/#/cluster?as=table&find=node00[4-5]')
  await page.getByRole('button', { name: 'Select all 2 shown' }).click()
  await page.getByRole('button', { name: 'Install again' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText(/dry run, nothing was changed: 1 node would be changed/).waitFor()
  await dialog.getByText('netboot: false → true').waitFor()
  t.equal((await node('node004')).netboot, false)
  await dialog.getByRole('button', { name: 'Install again' }).click()
  await page.getByText('Install again: 2 nodes: begun.').waitFor()
  t.match(await node('node004'), { netboot: true, netboot_once: true })
  t.match(sent.at(-1), { path: '/control/action/power/_boot', body: /"node004,node005"/ })
  t.same(problems, [])
})

t.test('an operator acts on nodes, and changes no other field', async t => {
  await set('node/node004', { netboot: false })
  const { page, sent, problems } = await window(
    t,
    '/#/cluster?as=table&find=node00[4-5]',
    await stage.logIn('olga')
  )
  await page.getByRole('button', { name: 'Select all 2 shown' }).click()
  await page.getByRole('button', { name: 'Power cycle' }).waitFor()
  t.equal(await page.getByRole('button', { name: 'Edit fields' }).count(), 0)
  await page.getByRole('button', { name: 'Install again' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('netboot: false → true').waitFor()
  await dialog.getByRole('button', { name: 'Install again' }).click()
  await page.getByText('Install again: 2 nodes: begun.').waitFor()
  t.match(await node('node004'), { netboot: true, netboot_once: true })
  t.match(sent.at(-1), { path: '/control/action/power/_boot', body: /"node004,node005"/ })
  await page.goto(`${stage.url}/#/node/node004`)
  await page.getByRole('button', { name: 'Power cycle' }).waitFor()
  t.equal(await page.getByRole('link', { name: 'Edit' }).count(), 0)
  t.same(problems, [])
})

t.test('fields of many nodes: the dry run, then all or none', async t => {
  const { page, problems } = await window(t, '/#/cluster?find=node00[6-8]')
  await page.getByRole('button', { name: 'Select all 3 shown' }).click()
  await page.getByRole('button', { name: 'Edit fields' }).click()
  await page.getByRole('heading', { name: 'Edit 3 nodes' }).waitFor()
  await page.getByLabel('Field').selectOption('comment')
  await page.getByLabel('comment').fill('moved')
  await page.getByLabel('One more variable').fill('rack')
  await page.getByRole('button', { name: 'Add' }).click()
  await page.getByLabel('rack', { exact: true }).fill('7')
  const dry = page.getByLabel('Dry run')
  await dry.getByText(/3 nodes would be changed/).waitFor()
  await dry.getByText('comment: – → moved').first().waitFor()
  t.notOk((await node('node006')).comment, 'nothing is changed')
  // Somebody is faster: exactly what was shown is done, or nothing.
  await set('node/node007', { comment: 'mine' })
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByText(/something has changed since the dry run/).waitFor()
  t.notOk((await node('node006')).comment)
  await dry.getByText('comment: mine → moved').waitFor()
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByText('Edit 3 nodes: saved.').waitFor()
  for (const name of ['node006', 'node007', 'node008'])
    t.match(await node(name), { comment: 'moved', variables: { rack: '7' } }, name)
  t.same(
    problems.filter(text => !/400/.test(text)),
    []
  )
})

t.test('a node in a form: types, what is inherited, the dry run, errors at their field', async t => {
  await set('group/compute', { prescript: Buffer.from('echo <b>hi</b>\n').toString('base64') })
  const { page, problems } = await window(t, '/#/node/node009')
  await page.getByRole('link', { name: 'Edit', exact: true }).click()
  const field = (name: string) => page.getByLabel(name, { exact: true })
  await field('osimage').waitFor()
  t.equal(await field('osimage').getAttribute('placeholder'), 'compute (group)')
  await page.getByText(/Inherited: compute \(group\)\. OS image \(/).waitFor()
  t.match(await field('netboot').locator('option').allTextContents(), ['true (default)', 'true', 'false'])
  t.match(await field('provision_method').locator('option').allTextContents(), [/ \(cluster\)$/, 'torrent'])
  t.equal(await field('prescript').inputValue(), '')
  t.match(await field('prescript').getAttribute('placeholder'), /^echo <b>hi/)
  const dry = page.getByLabel('Dry run')
  await dry.getByText('Nothing is changed yet.').waitFor()
  await field('osimage').fill('nowhere')
  const wrong = page.locator('#edit-osimage-wrong')
  await wrong.getByText(/nowhere/).waitFor()
  t.equal(await field('osimage').getAttribute('aria-invalid'), 'true')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByText('There is nothing to save').waitFor()
  await field('osimage').fill('login')
  await field('netboot').selectOption('false')
  await field('ipaddress').fill('10.141.9.9')
  await field('postscript').fill('echo é\n')
  await dry.getByText('osimage: – → login').waitFor()
  await dry.getByText(/BOOTIF.ipaddress: 10.141.0.9 → 10.141.9.9/).waitFor()
  t.equal(await wrong.textContent(), '')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByRole('heading', { name: 'node009', exact: true }).waitFor()
  t.match(await node('node009'), {
    ...{ osimage: 'login', netboot: false, postscript: Buffer.from('echo é\n').toString('base64') },
    ...{ prescript: Buffer.from('echo <b>hi</b>\n').toString('base64'), _prescript_source: 'group' },
    interfaces: [{ interface: 'BOOTIF', ipaddress: '10.141.9.9' }]
  })
  await page.goto(`${stage.url}/#/edit/node/node009`)
  await field('osimage').fill('')
  await field('ipaddress').fill('10.141.9.300')
  await page.locator('[id="edit-BOOTIF.ipaddress-wrong"]').getByText('10.141.9.300').waitFor()
  await field('ipaddress').fill('10.141.9.9')
  await dry.getByText('osimage: login → –').waitFor()
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByRole('heading', { name: 'node009', exact: true }).waitFor()
  t.match(await node('node009'), { osimage: 'compute', _osimage_source: 'group' })
  t.same(
    problems.filter(text => !/400/.test(text)),
    []
  )
})

t.test('two people edit a node: none overwrites the other unasked', async t => {
  await set('node/node010', { comment: 'first', domain: null })
  const { page } = await window(t, '/#/edit/node/node010')
  const field = (name: string) => page.getByLabel(name, { exact: true })
  await field('comment').fill('mine')
  await page.getByText('comment: first → mine').waitFor()
  await set('node/node010', { comment: 'theirs', domain: 'lab' })
  await page.getByText(/Somebody else has changed it from first to theirs/).waitFor()
  t.equal(await field('domain').inputValue(), 'lab', 'a field that is not edited here follows')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByText('There is nothing to save').waitFor()
  t.equal((await node('node010')).comment, 'theirs')
  await page.getByRole('button', { name: 'Keep mine' }).click()
  await page.getByText('comment: theirs → mine').waitFor()
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByRole('heading', { name: 'node010', exact: true }).waitFor()
  t.match(await node('node010'), { comment: 'mine', domain: 'lab' })
})

// rules 2.21
t.test('a form that somebody else was faster than saves nothing, and shows what differs', async t => {
  await set('node/node010', { comment: 'first', domain: null })
  const { group } = await node('node010')
  const { page } = await window(t, '/#/edit/node/node010')
  await page.getByLabel('comment', { exact: true }).fill('mine')
  await page.getByText('comment: first → mine').waitFor()
  // Between the click and the change: the group's value is no part of the dry run.
  await page.route(
    /expect=/,
    async route => {
      await set(`group/${group}`, { domain: 'changed.meanwhile' })
      await route.continue()
    },
    { times: 1 }
  )
  const [refused] = await Promise.all([
    page.waitForResponse(/expect=/),
    page.getByRole('button', { name: 'Save' }).click()
  ])
  t.equal(refused.status(), 412)
  t.match(await refused.request().headerValue('if-match'), /^"[\w-]{22}\.[\w-]{22}(\.gzip)?"$/)
  await page
    .getByRole('alert')
    .getByText(/has changed, or what it inherits.*read it again/)
    .waitFor()
  t.equal((await node('node010')).comment, 'first', 'nothing is saved')
  // The dry run is made again first.
  await until(async () => {
    const save = page.getByRole('button', { name: 'Save' })
    if (await save.isVisible()) await save.click({ timeout: 1000 }).catch(() => undefined)
    return page.getByRole('heading', { name: 'node010', exact: true }).isVisible()
  })
  t.match(await node('node010'), { comment: 'mine', domain: 'changed.meanwhile' })
  await set(`group/${group}`, { domain: null })
})

t.test('a group in a form shows what its nodes get', async t => {
  const { page, problems } = await window(t, '/#/node/node001')
  await page.getByRole('link', { name: 'compute' }).click()
  await page.getByRole('heading', { name: 'Edit group compute' }).waitFor()
  await page.getByLabel('domain', { exact: true }).fill('lab.site')
  const dry = page.getByLabel('Dry run')
  await dry.getByText(/1 group would be changed; \d nodes would get other values/).waitFor()
  await dry.getByText(/Other values for \d nodes/).waitFor()
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByText('Edit group compute: saved.').waitFor()
  t.match(await node('node001'), { domain: 'lab.site', _domain_source: 'group' })
  t.same(problems, [])
})
