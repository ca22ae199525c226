// Three controllers on three members of a real etcd, each pair on a machine (a network namespace) of its own:
// clocks that differ, jump and come back (rules 11.15, 11.16), and the one that packs dies (rules 11.19,
// 4.28).
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { makeTree } from '../../image/small-tree.js'
import { start } from '../../support/child.js'
import { output } from '../../support/programs.js'
import { scratch } from '../../support/scratch.js'
import { allWell, type Controller, startControllersIn, writerOf } from '../../support/site-controllers.js'
import { until } from '../../support/until.js'

const PRELOADED = '/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1'
const MAC = '52:54:00:00:00:01'
const rounds = Number(process.env.SVCD_PACK_ROUNDS ?? 3)

interface Health {
  readonly status: number
  readonly told: string
}

async function healthOf({ daemon }: Controller): Promise<Health> {
  const { status, body } = await daemon.request('GET', '/monitor/service/svcd')
  return { status, told: JSON.stringify(body) }
}

/** A text that anybody on its machine gets; '' where it does not answer. */
async function textAt({ site }: Controller, path: string): Promise<string> {
  const [program = '', ...words] = site.enter
  const url = `http://${site.address}:7050${path}`
  return output(program, [...words, 'curl', '--silent', '--max-time', '5', url]).catch(() => '')
}

async function metricOf(controller: Controller, series: string): Promise<number> {
  const line = (await textAt(controller, '/metrics')).split('\n').find(line => line.startsWith(`${series} `))
  return Number(line?.slice(series.length + 1) ?? Number.NaN)
}

const nameOf = ({ at }: Controller) => `c${at + 1}`

async function begin(t: Test) {
  const directory = scratch(t)
  const clock = (at: number) => join(directory, `clock-${at}`)
  const set = ({ at }: Controller, seconds: number) =>
    writeFileSync(clock(at), `${seconds < 0 ? '' : '+'}${seconds}\n`)
  const { controllers } = await startControllersIn(
    t,
    (site, at) => {
      writeFileSync(clock(at), '+0\n')
      const faked = [`FAKETIME_TIMESTAMP_FILE=${clock(at)}`, 'FAKETIME_DONT_FAKE_MONOTONIC=1']
      return [...site.enter, 'env', `LD_PRELOAD=${PRELOADED}`, ...faked, 'FAKETIME_CACHE_DURATION=1']
    },
    ...['http.metrics=open', 'image.initramfs=no', 'monitor.disk_free=1k', 'monitor.loop_delay=60s']
  )
  const writer = await writerOf(controllers)
  const [follower, third] = controllers.filter(one => one !== writer) as [Controller, Controller]
  return { controllers, writer, follower, third, set }
}

t.test('clocks that differ, jump and come back', { timeout: 600_000 }, async t => {
  const { controllers, writer, follower, third, set } = await begin(t)
  await writer.daemon.create('group', 'g', {})
  let count = 0
  const change = (at: Controller) => at.daemon.request('POST', '/config/group/g', { comment: `${count++}` })
  t.equal((await change(follower)).status, 204)

  // What a clock comes to in the health of all, and in what is handed on.
  const comes = async (who: Controller, seconds: number, isFar: boolean) => {
    const began = Date.now()
    set(who, seconds)
    const name = `controller ${nameOf(who)}`
    const others = controllers.filter(one => one !== who)
    const says = (told: string, other: string, ahead: number) =>
      new RegExp(`the clock of ${other} is \\d+ s ${ahead > 0 ? 'ahead of' : 'behind'} that of `).test(told)
    let found: Health[] = []
    await until(
      async () => {
        found = await Promise.all(controllers.map(healthOf))
        return controllers.every((one, i) => {
          // The directories of this test differ, which is a failure by itself: it hides what is only told.
          const { status = 0, told = '' } = isFar ? (found[i] ?? {}) : { status: 503, told: one.daemon.log() }
          const isTold =
            one === who
              ? others.every(other => says(told, `controller ${nameOf(other)}`, -seconds))
              : says(told, name, seconds)
          return isTold && status === 503
        })
      },
      () => found
    )
    const offset = await metricOf(
      others[0] as Controller,
      `svcd_controller_clock_offset_seconds{controller="${nameOf(who)}"}`
    )
    t.ok(Math.abs(offset - seconds) < 6, `${seconds} s: the metric says ${offset}`)
    t.comment(
      `${name}, ${seconds} s: all three say so after ${Date.now() - began} ms; the metric is ${offset} s`
    )
  }
  const mended = async (who: Controller) => {
    set(who, 0)
    await until(async () =>
      (await Promise.all(controllers.map(healthOf))).every(({ told }) => !/the clock of/.test(told))
    )
  }
  const refusedBy = async (at: Controller, which: string) => {
    const { status, body } = await change(at)
    t.equal(status, 503, JSON.stringify(body))
    t.match(
      (body as { message: string }).message,
      new RegExp(
        `the clock of controller ${nameOf(at)} is \\d+ s ${which} that of controller ${nameOf(writer)}, .*timedatectl`
      )
    )
    t.comment((body as { message: string }).message)
  }

  await comes(follower, 45, false)
  t.equal((await change(follower)).status, 204, 'it is told before it fails')
  await comes(follower, 90, true)
  await refusedBy(follower, 'ahead of')
  t.equal((await change(third)).status, 204, 'the third one is not concerned')
  for (const { daemon } of [writer, follower])
    t.match(
      daemon.log(),
      /warn the clock of controller c\d is \d+ s (ahead of|behind) that of controller c\d/
    )
  // The words of its start, behind those of setpriv and env.
  const [program = '', ...words] = third.daemon.child?.process.spawnargs.slice(5) ?? []
  const checked = await start(
    program,
    words.map(word => (word === 'serve' ? 'check' : word))
  ).ended
  t.equal(checked.code, 1, checked.stderr)
  t.match(
    checked.stderr,
    new RegExp(`the clock of controller ${nameOf(follower)} is \\d+ s ahead of that of this machine`)
  )
  await mended(follower)
  t.equal((await change(follower)).status, 204, 'mended')
  await comes(follower, -90, true)
  await refusedBy(follower, 'behind')
  await mended(follower)
  t.equal((await change(follower)).status, 204)

  // The one that writes jumps ahead, and goes back.
  await comes(writer, 3600, true)
  await refusedBy(third, 'behind')
  await mended(writer)
  for (const one of [follower, third]) t.equal((await change(one)).status, 204, 'it went back')
  await allWell(controllers)
})

t.test(`${rounds} times the one that packed dies`, { timeout: 300_000 + rounds * 120_000 }, async t => {
  const { controllers, writer: first, set } = await begin(t)
  t.ok(set)
  makeTree(first.daemon.path('images', 'compute'))
  await first.daemon.create('network', 'cluster', { network: '10.99.0.0/24' })
  await first.daemon.create('osimage', 'compute', { distribution: 'debian' })
  await first.daemon.create('node', 'n1', {
    ...{ osimage: 'compute', macaddr: MAC },
    interfaces: [{ interface: 'BOOTIF', network: 'cluster', ipaddress: '10.99.0.77' }]
  })
  const touch = (mark: string) => writeFileSync(first.daemon.path('images', 'compute', 'etc', 'mark'), mark)
  const imageOf = async (at: Controller) => {
    const { body } = await at.daemon.request('GET', '/config/osimage/compute')
    const { imagefile, kernelfile, initrdfile } = (
      body as { config: { osimage: { compute: Record<string, string> } } }
    ).config.osimage.compute
    return [imagefile, kernelfile, initrdfile] as string[]
  }
  const have = (files: readonly string[]) =>
    controllers
      .filter(({ daemon }) => files.every(file => existsSync(daemon.path('files', file))))
      .map(nameOf)
  const script = (at: Controller) => textAt(at, `/boot/search/mac/${MAC}`)
  const boots = async (at: Controller, kernel: string) =>
    until(
      async () => (await script(at)).includes(kernel),
      () => at.daemon.log().slice(-3000)
    )
  let last: string[] = []
  for (let i = 0; i < rounds; i++) {
    touch(`round ${i}`)
    const began = Date.now()
    const { status, body } = await (await writerOf(controllers)).daemon.request(
      'GET',
      '/config/osimage/compute/_pack'
    )
    t.equal(status, 204, JSON.stringify(body))
    const tookMs = Date.now() - began
    last = await imageOf(await writerOf(controllers))
    const there = have(last)
    t.ok(there.length >= 2, `round ${i + 1}: ${there.join(', ')} have it when it is done`)
    await first.daemon.kill()
    const left = controllers.filter(one => one !== first)
    await writerOf(left)
    for (const one of left) await boots(one, last[1] as string)
    t.comment(
      `round ${i + 1}: packed in ${tookMs} ms, on ${there.join(' and ')}; ${nameOf(first)} killed; the others boot it`
    )
    await first.daemon.start()
    await allWell(controllers)
    // The one that writes knows a moment later that it is there.
    await until(async () => {
      const { body } = await (await writerOf(controllers)).daemon.request('GET', '/config/cluster')
      return (
        !/"gone"/.test(JSON.stringify(body)) &&
        controllers.every(one => JSON.stringify(body).includes(`"${nameOf(one)}":`))
      )
    })
  }

  // The controllers beside it are stopped: nobody waits for them, and they have the pack before.
  const others = controllers.filter(one => one !== first)
  await until(() => have(last).length === 3)
  for (const { daemon } of others) await daemon.stop()
  await writerOf([first])
  touch('alone')
  const began = Date.now()
  t.equal((await first.daemon.request('GET', '/config/osimage/compute/_pack')).status, 204)
  t.comment(`alone: packed in ${Date.now() - began} ms`)
  const alone = await imageOf(first)
  t.not(alone[0], last[0])
  await first.daemon.kill()
  for (const { daemon } of others) await daemon.start()
  await writerOf(others)
  for (const one of others) {
    await boots(one, last[1] as string)
    const text = await script(one)
    t.match(text, last[2] as string, 'with its own initramfs')
    t.notMatch(text, alone[1] as string)
  }
  const writer = await writerOf(others)
  const says = new RegExp(
    `controller ${nameOf(writer)} does not have .*, and boots the pack before, ${last[0]}`
  )
  await until(async () => says.test((await writer.daemon.monitor('n1')).reason ?? ''))
  t.match(writer.daemon.log(), says)
  t.comment((await writer.daemon.monitor('n1')).reason ?? '')
  await first.daemon.start()
  for (const one of controllers) await boots(one, alone[1] as string)
  await until(() => have(alone).length === 3)
  const sum = (one: Controller) =>
    readFileSync(one.daemon.path('files', alone[0] as string)).toString('base64')
  for (const one of others) t.equal(sum(one), sum(first))
})
