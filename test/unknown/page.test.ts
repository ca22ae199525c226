import { readFileSync } from 'node:fs'
import t from 'tap'
import { Controller } from '../support/controller.js'
import { blocksOf } from '../support/page.js'
import { checkout, output } from '../support/programs.js'
import { svcctlFor } from '../support/svcctl.js'

// docs/unknown-machines.md as it is typed.
const page = 'docs/unknown-machines.md'

t.test('the commands of the page', async t => {
  const c = await Controller.start(t)
  await c.cluster()
  for (const n of [1, 2, 3])
    await c.get(`/boot/search/mac/02:00:00:00:00:0${n}?serial=S${90 + n}&maker=ACME`, {
      ...{ token: null, source: '10.141.9.9' }
    })
  const env = svcctlFor(t.testdir(), c)
  const script = blocksOf(page)
    .filter(({ language }) => language === 'sh')
    .map(({ text }) => text)
    .join('')
    // On loopback, and with few addresses.
    .replaceAll('10.148.0.0/24', '127.98.7.0/30')
  const settings = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  const said = await output('env', ['-C', c.directory, ...settings, 'sh', '-euc', script])
  t.match(said, /^mac +maker +product +serial /)
  t.match(said, /\n02:00:00:00:00:03,02:00:00:00:00:03,ACME,,S93,/, 'csv')
  t.match(said, /dry run, nothing was changed/)
  t.match(said, /3 nodes created, 0 changed/)
  const { node } = (await c.get('/config/node')).body.config
  t.match(said, /2 nodes created, 0 changed/)
  t.match(said, /\nno BMC answered at 2 addresses of network ipmi\n/)
  t.equal(node.node022.serial, 'CZ20260102')
  t.equal(node.node013.macaddr, '02:00:00:00:00:03')
})

t.test('a list of the web page is not loaded twice at once, and an event in the meantime counts', async t => {
  const [, text] =
    /export (function soon[\s\S]*?\n\})/.exec(readFileSync(`${checkout}/page/dom.js`, 'utf8')) ?? []
  const soon = new Function(`return ${text}`)() as (ms: number, work: () => Promise<void>) => () => void
  let [now, most, count] = [0, 0, 0]
  const again = soon(1, async () => {
    count++
    most = Math.max(most, ++now)
    await new Promise(resolve => setTimeout(resolve, 40))
    now--
  })
  for (let i = 0; i < 5; i++) {
    again()
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  await new Promise(resolve => setTimeout(resolve, 200))
  t.equal(most, 1)
  t.ok(count > 1)
})
