// The shipped set-up of keepalived, with the real one on three machines (network namespaces): the address is
// where svcd writes.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { start } from '../../support/child.js'
import { checkout, output, requirePrograms } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { allWell, type Controller, startControllers, writerOf } from '../../support/site-controllers.js'
import { until } from '../../support/until.js'

const ADDRESS = '10.99.0.100'

const has = async ({ site }: Controller) => {
  const [program = '', ...words] = site.enter
  return (await output(program, [...words, 'ip', '-4', 'address', 'show', 'dev', 'eth0'])).includes(ADDRESS)
}

t.test('the address of the nodes follows the right to write', { timeout: 300_000 }, async t => {
  requirePrograms('keepalived')
  const { controllers, enter } = await startControllers(t)
  const [first] = controllers as [Controller]
  await first.daemon.create('network', 'cluster', { network: '10.141.0.0/16' })
  const directory = scratch(t)
  const shipped = readFileSync(join(checkout, 'etc/keepalived-svcd.conf'), 'utf8')
  const file = join(directory, 'keepalived.conf')
  writeFileSync(file, shipped.replace('10.141.0.10/16', `${ADDRESS}/24`), { mode: 0o644 })
  for (const { site, at } of controllers) {
    const [program = '', ...words] = site.enter
    const child = start(program, [
      ...[...words, 'keepalived', '--dont-fork', '--log-console', '--vrrp', '--use-file', file],
      ...['--pid', join(directory, `pid${at}`), '--vrrp_pid', join(directory, `vrrp${at}`)]
    ])
    t.teardown(() => child.stop())
  }
  const isAt = (controller: Controller) =>
    until(async () => {
      const all = await Promise.all(controllers.map(has))
      return all.every((there, at) => there === (at === controller.at))
    }, `${ADDRESS} to be at controller ${controller.at} alone`)
  const menu = async () => {
    const [program = '', ...words] = enter
    const url = `http://${ADDRESS}:7050/boot`
    return output(program, [...words, 'curl', '--silent', '--max-time', '2', url]).catch(() => '')
  }
  await isAt(first)
  t.match(await menu(), /^#!ipxe/)

  const killed = performance.now()
  await first.daemon.kill()
  await until(async () => (await menu()).startsWith('#!ipxe'), 'a menu from the address')
  t.comment(`a menu from the address ${Math.round(performance.now() - killed)} ms after kill -9`)
  const second = await writerOf(controllers.slice(1))
  await isAt(second)
  await first.daemon.start()
  await allWell(controllers)
  t.ok(await has(second), 'a standby that comes back does not take it')

  await second.site.cut(true)
  const left = controllers.filter(controller => controller !== second)
  const third = await writerOf(left)
  await until(() => has(third))
  t.match(await menu(), /^#!ipxe/)
  await second.site.cut(false)
  await allWell(controllers)
  await isAt(third)
})
